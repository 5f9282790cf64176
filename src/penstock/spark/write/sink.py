"""The sink of `jetstream`: the writers that Spark calls in the driver and in its workers.

A writer is a value: Spark pickles it for every task and creates a new one for every batch, so it
holds options and columns but no connection. A task stores its rows itself and reports counters; the
commit checks and sums them, because a row is visible in the stream as soon as it is stored.
`row_writer`, `ledger_writer` and the stream guarantee how often a row may be stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    WriterCommitMessage,
)

from penstock.spark.compat import DataSourceStreamArrowWriter
from penstock.spark.options import OptionError, parse
from penstock.spark.write.dead_letters import DeadLetters, dead_letters
from penstock.spark.write.duplicates import check_tasks
from penstock.spark.write.ledger_writer import LedgerWriter
from penstock.spark.write.row_writer import RowWriter, ids_of_batch
from penstock.spark.write.sink_ids import RowIds, row_ids
from penstock.spark.write.sink_options import FAIL, DeliveryMode, SinkOptions, check_sink
from penstock.spark.write.sink_payloads import SinkPayloads
from penstock.spark.write.sink_report import Written, numbers_of, report
from penstock.spark.write.sink_rows import DATA, HEADERS, SUBJECT, RowLayout, check_columns
from penstock.spark.write.sink_target import check_target
from penstock.spark.write.sink_task import Task, this_task
from penstock.spark.write.worker_publisher import outlet
from penstock.spark.write.write_ledger import check_partitions
from penstock.spark.write.write_start import WriteStart, begin, check_created, warn_of_window

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

COLUMNS: Final = {
    SUBJECT: ("string",),
    DATA: ("binary", "string"),
    HEADERS: ("map", "array"),
}


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """Everything a task needs."""

    options: SinkOptions
    layout: RowLayout
    id_columns: tuple[str, ...]
    payloads: SinkPayloads | None = None
    is_streaming: bool = False
    start: WriteStart | None = None

    def begun(self) -> SinkPlan:
        """Return this plan with the state of the target; asks the server."""
        options = self.options
        start = begin(options, options.stream, lambda config: check_target(config, options))
        return replace(self, start=start)

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        if self.payloads is not None:
            batches = self.payloads.encoded(batches)
        assert self.start is not None, "the driver asks for the target before it sends a plan"
        token = "" if self.is_streaming else write_token(self.options, self.start)
        task = this_task(self.options.write_id, token)
        letters = dead_letters(self.options, task)
        try:
            if self.options.delivery is DeliveryMode.STRICT:
                return write_strictly(self, self.start, task, batches, letters)
            return write_rows(self, self.start, task, batches, letters)
        finally:
            if letters is not None:
                letters.close()

    def finish(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """After all tasks: check across tasks for what no task can see alone, and report."""
        options = self.options
        written = [one for one in messages if isinstance(one, Written)]
        numbers = numbers_of(f"stream {options.stream}", written)
        if numbers is None:
            return
        with outlet(options, options.stream, lambda _: None) as out:
            for created in {one.created for one in written if one.created}:
                check_created(out, created)
            if options.delivery is DeliveryMode.STRICT:
                task = written[0].task
                partitions = [one.task.partition for one in written if one.rows > one.refused]
                check_partitions(out, f"{options.ledger}.{task.ledger}", task, partitions)
            elif numbers.repeated:
                check_tasks(out, written)
            if options.delivery is DeliveryMode.EXACTLY_ONCE:
                warn_of_window(out, written)
        report(numbers, options.report_path)


def write_token(options: SinkOptions, start: WriteStart) -> str:
    """Return what tells this batch write from others: its target, and a token if it has no name."""
    return options.stream if options.write_id else f"{options.stream}-{start.token}"


def plan_sink(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool, is_streaming: bool
) -> SinkPlan:
    """Parse the options and find the columns; contacts a server only for a schema in a bucket."""
    if overwrite:
        raise OptionError("a stream can only be added to: use mode append")
    read = parse(SinkOptions, options, path="stream")
    check_sink(read, is_streaming=is_streaming)
    payloads = SinkPayloads.of(read, schema)
    needed = ({DATA} if payloads is None else set()) | (set() if read.subject else {SUBJECT})
    check_columns(schema, COLUMNS, needed)
    ids = row_ids(
        schema,
        read.id_columns,
        target="" if read.subject else SUBJECT,
        scheme=read.id_scheme,
        may_repeat=read.on_duplicate != FAIL,
        needs_time=read.delivery is DeliveryMode.EXACTLY_ONCE,
    )
    if read.delivery is DeliveryMode.EXACTLY_ONCE and not ids:
        raise OptionError(
            "delivery exactlyOnce needs a message id: add a column msgId, or keep the columns "
            "stream and seq of a stream that was read, or set msgIdColumns; or use delivery "
            "atLeastOnce"
        )
    layout = RowLayout(
        subject=read.subject,
        ids=ids if read.delivery is DeliveryMode.EXACTLY_ONCE else RowIds(),
        has_headers=HEADERS in schema.fieldNames(),
        drops_obeyed=read.delivery is not DeliveryMode.AT_LEAST_ONCE,
    )
    return SinkPlan(read, layout, ids.columns, payloads, is_streaming)


class BatchSink(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan.begun()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._plan.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._plan.finish(messages)


class StreamSink(DataSourceStreamArrowWriter):
    """Writes a streaming query, batch by batch."""

    def __init__(self, plan: SinkPlan) -> None:
        self._plan = plan.begun()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._plan.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._plan.finish(messages)


def write_rows(
    plan: SinkPlan,
    start: WriteStart,
    task: Task,
    batches: Iterable[pa.RecordBatch],
    letters: DeadLetters | None,
) -> Written:
    """Publish every row, many in flight; a refusal fails the task unless `onBadRow` allows it."""
    options = plan.options
    for first in (full for full in batches if full.num_rows):
        with outlet(options, options.stream, lambda config: check_target(config, options)) as out:
            start.check(out)
            layout = replace(plan.layout, ids=ids_of_batch(out, plan.layout, task, first))
            writer = RowWriter(out, layout, task, options, letters, start)
            for batch in chain((first,), batches):
                if batch.num_rows:
                    writer.write(batch)
            return writer.finish()
    return Written(task)


def write_strictly(
    plan: SinkPlan,
    start: WriteStart,
    task: Task,
    batches: Iterable[pa.RecordBatch],
    letters: DeadLetters | None,
) -> Written:
    """Write rows in atomic batches, each recorded in the ledger of this partition."""
    options = plan.options
    if not task.ledger:
        raise OptionError("delivery strict needs the id of a query, or writeId")
    for first in (full for full in batches if full.num_rows):
        with outlet(options, options.stream, lambda config: check_target(config, options)) as out:
            start.check(out)
            writer = LedgerWriter(out, plan.layout, task, options, letters)
            sifted = map(writer.sift, chain((first,), batches))
            for batch, is_last in in_slices(in_order(sifted, plan.id_columns), options.batch_rows):
                writer.write(batch, is_last=is_last)
            return writer.finish()
    return Written(task)


def in_order(batches: Iterable[pa.RecordBatch], names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yield the partition in a repeatable order: sorted by its ids, if it has any."""
    if not names:
        yield from batches
        return
    full = [batch for batch in batches if batch.num_rows]
    if full:
        table = pa.Table.from_batches(full).sort_by([(name, "ascending") for name in names])
        yield from table.combine_chunks().to_batches()


def in_slices(
    batches: Iterable[pa.RecordBatch], rows_max: int
) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Yield slices of at most `rows_max` rows, each with a flag for the last one."""
    pieces = (
        batch.slice(start, rows_max)
        for batch in batches
        for start in range(0, batch.num_rows, rows_max)
    )
    held = next(pieces, None)
    while held is not None:
        following = next(pieces, None)
        yield held, following is None
        held = following
