"""The sink of `jetstream`: what Spark calls in the driver and in its workers to write rows.

A writer is a value: Spark pickles it for every task and makes it anew for every batch, so it holds
options and columns and no connection. What a task wrote it reports; nothing is left to a commit,
since a stream shows every row as soon as it is stored. How often a row may be stored is the
delivery's promise, kept in `write_rows`, `ledger` and the stream itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from penstock.bulk.frames import RowError
from penstock.spark.ledger import Ledger, check_partitions
from penstock.spark.options import OptionError, parse
from penstock.spark.publishing import Outlet, SinkError, outlet
from penstock.spark.sink_options import Delivery, SinkOptions, check_sink
from penstock.spark.sink_rows import DATA, HEADERS, SUBJECT, Layout, check_columns, id_columns
from penstock.spark.sink_target import check_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"
COLUMNS: Final = {
    SUBJECT: ("string",),
    DATA: ("binary", "string"),
    HEADERS: ("map", "array"),
}


@dataclass(frozen=True, slots=True)
class Task:
    """Which part of which batch of which query this is."""

    query: str
    batch: int
    partition: int


@dataclass
class Written(WriterCommitMessage):
    """What one task did: rows that are in the stream now, and how many of them were before."""

    task: Task
    rows: int
    repeated: int


@dataclass(frozen=True, slots=True)
class Plan:
    """All a task needs to know."""

    options: SinkOptions
    layout: Layout
    id_columns: tuple[str, ...]

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        task = this_task(self.options.write_id)
        if self.options.delivery is Delivery.STRICT:
            return write_strictly(self, task, batches)
        return write_rows(self, task, batches)

    def finish(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done; what they could not see, each by itself."""
        written = [one for one in messages if isinstance(one, Written)]
        if self.options.delivery is not Delivery.STRICT or not written:
            return
        options, task = self.options, written[0].task
        partitions = [one.task.partition for one in written if one.rows]
        with outlet(options, options.stream, lambda _: None) as out:
            check_partitions(out, f"{options.ledger}.{task.query}", task.batch, partitions)


def plan_sink(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool, is_streaming: bool
) -> Plan:
    """Read the options and find the columns; no server is asked."""
    if overwrite:
        raise OptionError("a stream can only be added to: use mode append")
    read = parse(SinkOptions, options, path="stream")
    check_sink(read, is_streaming=is_streaming)
    check_columns(schema, COLUMNS, {DATA} if read.subject else {DATA, SUBJECT})
    names = id_columns(schema, read.id_columns)
    if read.delivery is Delivery.EXACTLY_ONCE and not names:
        raise OptionError(
            "delivery exactlyOnce needs a message id: add a column msgId, or keep the columns "
            "stream and seq of a stream that was read, or set msgIdColumns; or use delivery "
            "atLeastOnce"
        )
    layout = Layout(
        subject=read.subject,
        ids=names if read.delivery is Delivery.EXACTLY_ONCE else (),
        has_headers=HEADERS in schema.fieldNames(),
        drops_obeyed=read.delivery is not Delivery.AT_LEAST_ONCE,
    )
    return Plan(read, layout, names)


class BatchSink(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._plan.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._plan.finish(messages)


class StreamSink(DataSourceStreamArrowWriter):
    """Writes a streaming query, batch by batch."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._plan.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._plan.finish(messages)


def this_task(write_id: str) -> Task:
    """Told by Spark; the name of the write stands in for that of a query, if there is one."""
    context = TaskContext.get()
    if context is None:
        raise SinkError("rows are written in tasks of Spark")
    batch = context.getLocalProperty(BATCH_ID)
    query = write_id or context.getLocalProperty(QUERY_ID) or ""
    return Task(query, int(batch) if batch else 0, context.partitionId())


def write_rows(plan: Plan, task: Task, batches: Iterable[pa.RecordBatch]) -> Written:
    """Publish every row, many in flight; a refusal of any fails the task."""
    options = plan.options
    count = 0
    for first in (full for full in batches if full.num_rows):
        with outlet(options, options.stream, lambda config: check_target(config, options)) as out:
            before = out.publisher.duplicates
            for batch in chain((first,), batches):
                count += publish(out, plan.layout, batch)
            out.settle()
            return Written(task, count, out.publisher.duplicates - before)
    return Written(task, 0, 0)


def publish(out: Outlet, layout: Layout, batch: pa.RecordBatch) -> int:
    """One batch of rows on its way."""
    if not batch.num_rows:
        return 0
    rows = layout.rows(batch)
    try:
        out.publisher.publish(rows.subjects, rows.payloads, ids=rows.ids, lines=rows.lines)
    except RowError as error:
        raise SinkError(f"a row cannot be published: {error}") from None
    out.refuse(out.publisher.take_refused())
    return rows.count


def write_strictly(plan: Plan, task: Task, batches: Iterable[pa.RecordBatch]) -> Written:
    """Rows in atomic batches, each counted in the ledger of this partition."""
    options = plan.options
    if not task.query:
        raise OptionError("delivery strict needs the id of a query, or writeId")
    count = 0
    slices = in_slices(in_order(batches, plan.id_columns), options.batch_rows)
    ledger: Ledger | None = None
    for first, is_last in slices:
        with outlet(options, options.stream, lambda config: check_target(config, options)) as out:
            subject = f"{options.ledger}.{task.query}.{task.partition}"
            ledger = Ledger(out, subject, task.batch)
            count += record(ledger, plan.layout, first, is_last=is_last)
            for batch, ends in slices:
                count += record(ledger, plan.layout, batch, is_last=ends)
    return Written(task, count, ledger.skipped if ledger is not None else 0)


def record(ledger: Ledger, layout: Layout, batch: pa.RecordBatch, *, is_last: bool) -> int:
    rows = layout.rows(batch)
    try:
        ledger.write(rows, is_last=is_last)
    except RowError as error:
        raise SinkError(f"a row cannot be published: {error}") from None
    return rows.count


def in_order(batches: Iterable[pa.RecordBatch], names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """The partition in an order that a repetition has too: that of its ids, if it has any."""
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
    """Pieces of so many rows at most, and whether it is the last one."""
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
