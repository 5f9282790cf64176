"""The sink of `jetstream-kv`: rows become puts, deletes and purges of a bucket's keys.

Within a task the rows of a key are applied in order, each after the previous one is stored. A
replay writes the same values again, so the bucket ends in the same state; with message ids it
writes nothing twice. A row that depends on a revision is written if and only if its key has that
revision: a replay recognises its own write by the message id.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    WriterCommitMessage,
)

from penstock.api.error_codes import NO_MESSAGE_FOUND, WRONG_LAST_SEQUENCE
from penstock.bulk.errors import Refused
from penstock.bulk.publish_frames import RowError
from penstock.spark.compat import DataSourceStreamArrowWriter
from penstock.spark.kv.kv_changes import ChangeLayout
from penstock.spark.kv.kv_options import (
    FAIL,
    REPORT,
    SKIP,
    KvWriteOptions,
    check_write,
    named_stream,
)
from penstock.spark.kv.kv_rows import KEY, OP, VALUE
from penstock.spark.options import OptionError, parse
from penstock.spark.write.duplicates import Content, DuplicateCheck, check_tasks
from penstock.spark.write.sink_ids import row_ids
from penstock.spark.write.sink_report import Written, numbers_of, report
from penstock.spark.write.sink_rows import check_columns
from penstock.spark.write.sink_target import check_writable
from penstock.spark.write.sink_task import Task, this_task
from penstock.spark.write.worker_publisher import SinkError, outlet
from penstock.spark.write.write_start import WriteStart, begin, check_created
from penstock.wire import headers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from penstock.bulk.bulk_publisher import PublishRefusal
    from penstock.spark.kv.kv_changes import BucketChanges
    from penstock.spark.write.worker_publisher import WorkerPublisher

WHOLE_NUMBERS: Final = ("byte", "short", "integer", "long")
COLUMNS: Final = {KEY: ("string",), VALUE: ("binary", "string"), OP: ("string",)}
MSG_ID: Final = b"Nats-Msg-Id"
CONFLICTS_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class KvPlan:
    """Everything a task needs."""

    options: KvWriteOptions
    layout: ChangeLayout
    is_streaming: bool = False
    start: WriteStart | None = None

    def begun(self) -> KvPlan:
        """Return this plan with the state of the bucket; asks the server."""
        options = self.options
        stream = named_stream(options.bucket)
        start = begin(options, stream, lambda config: check_bucket(config, options))
        return replace(self, start=start)

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        options = self.options
        assert self.start is not None, "the driver asks for the bucket before it sends a plan"
        token = "" if self.is_streaming else self.start.token
        task = this_task(options.write_id, token)
        stream = named_stream(options.bucket)
        for first in (full for full in batches if full.num_rows):
            with outlet(options, stream, lambda config: check_bucket(config, options)) as out:
                self.start.check(out)
                writing = Writing(out, options, self.layout, task, self.start)
                for batch in chain((first,), batches):
                    if batch.num_rows:
                        writing.write(batch)
                return writing.finish()
        return Written(task)

    def finish(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """After all tasks: check for duplicates across tasks, and report."""
        options = self.options
        written = [one for one in messages if isinstance(one, Written)]
        numbers = numbers_of(f"bucket {options.bucket}", written)
        if numbers is None:
            return
        with outlet(options, named_stream(options.bucket), lambda _: None) as out:
            for created in {one.created for one in written if one.created}:
                check_created(out, created)
            if numbers.repeated:
                check_tasks(out, written)
        report(numbers, options.report_path)


def plan_kv_sink(
    options: Mapping[str, str],
    schema: StructType,
    *,
    overwrite: bool,
    is_streaming: bool = False,
) -> KvPlan:
    """Parse the options and find the columns; contacts no server."""
    if overwrite:
        raise OptionError("a bucket is changed key by key: use mode append")
    read = parse(KvWriteOptions, options, path="bucket")
    check_write(read)
    extra = {name: WHOLE_NUMBERS for name in (read.revision_column, read.ttl_column) if name}
    check_columns(schema, COLUMNS | extra, {KEY, VALUE, *extra})
    layout = ChangeLayout(
        bucket=read.bucket,
        has_op=OP in schema.fieldNames(),
        ids=row_ids(
            schema,
            read.id_columns,
            target=KEY,
            scheme=read.id_scheme,
            may_repeat=read.on_duplicate != FAIL,
        ),
        revision=read.revision_column,
        ttl=read.ttl_column,
        ttl_ms=read.ttl_ms,
    )
    return KvPlan(read, layout, is_streaming)


def check_bucket(config: dict[str, Any], options: KvWriteOptions) -> None:
    """Raise if the bucket cannot store what will be written."""
    check_writable(config)
    wants_ttl = bool(options.ttl_ms or options.ttl_column)
    if wants_ttl and not config.get("allow_msg_ttl"):
        raise SinkError(
            f"bucket {options.bucket} knows no time to live: set allow_msg_ttl on its stream "
            f"{config['name']}, or leave out ttlMs and ttlColumn"
        )


class KvBatchSink(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, plan: KvPlan) -> None:
        self._plan = plan.begun()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._plan.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._plan.finish(messages)


class KvStreamSink(DataSourceStreamArrowWriter):
    """Writes a streaming query, batch by batch."""

    def __init__(self, plan: KvPlan) -> None:
        self._plan = plan.begun()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._plan.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._plan.finish(messages)


class Writing:
    """The changes of one task."""

    def __init__(
        self,
        outlet: WorkerPublisher,
        options: KvWriteOptions,
        layout: ChangeLayout,
        task: Task,
        start: WriteStart,
    ) -> None:
        self.outlet = outlet
        self.options = options
        self._layout = layout
        self._scope = task.scope(options.bucket)
        self._written = Written(task, created=outlet.created)
        self._wave: tuple[int, BucketChanges] | None = None
        # Ids not from the user identify a change by its content, or by one attempt.
        policy = options.on_duplicate if layout.ids else SKIP
        self._duplicates = DuplicateCheck(outlet, task, start.last_seq, policy, self._content)

    def write(self, batch: pa.RecordBatch) -> None:
        self._written.rows += batch.num_rows
        changes = self._layout.changes(batch, self._scope)
        if self.options.latest_per_key:
            changes = changes.latest()
        for wave in changes.waves():
            self._write_wave(wave)

    def finish(self) -> Written:
        self._duplicates.finish(self.options)
        written = self._written
        written.repeated = self._duplicates.count
        written.messages = self._duplicates.messages
        return written

    def _write_wave(self, wave: BucketChanges) -> None:
        rows = wave.rows()
        publisher = self.outlet.publisher
        try:
            first = publisher.publish(
                rows.subjects,
                rows.payloads,
                ids=rows.ids,
                lines=rows.lines,
                common=self.outlet.common,
            )
        except RowError as error:
            key = wave.keys[error.row].as_py()
            raise SinkError(f"key {key!r} cannot be written: {error}") from None
        publisher.drain()
        self._wave = (first, wave)
        refused = publisher.take_refused()
        missed = [one for one in refused if self._is_conflict(wave, one.number - first, one)]
        self.outlet.refuse([one for one in refused if one not in missed])
        self._duplicates.record_replies(publisher.take_repeats(), publisher.take_stored())
        conflicting = [at for one in missed if not self._is_ours(wave, at := one.number - first)]
        self._written.bytes += pc.sum(pc.binary_length(wave.payloads)).as_py() or 0
        self._resolve(wave, conflicting)

    def _content(self, number: int) -> Content:
        """Return the change of a publish of this wave."""
        assert self._wave is not None
        first, wave = self._wave
        at = number - first
        key = wave.keys[at].as_py()
        return Content(
            f"key {key!r} in partition {self._written.task.partition}",
            (wave.prefix + key.encode()).decode(),
            wave.payloads[at].as_py(),
            wave.ids[at].as_py().decode(),
        )

    def _is_conflict(self, wave: BucketChanges, at: int, refusal: PublishRefusal) -> bool:
        if wave.revisions is None or not wave.revisions[at].is_valid:
            return False
        return refusal.err_code in WRONG_LAST_SEQUENCE

    def _is_ours(self, wave: BucketChanges, at: int) -> bool:
        """Return True if the message after the revision is this change, stored by an earlier
        attempt."""
        assert wave.revisions is not None
        subject = (wave.prefix + wave.keys[at].as_py().encode()).decode()
        body = {"seq": wave.revisions[at].as_py() + 1, "next_by_subj": subject}
        try:
            found = self.outlet.call(f"STREAM.MSG.GET.{self.outlet.config['name']}", body)
        except Refused as error:
            if error.err_code == NO_MESSAGE_FOUND:
                return False
            raise
        block = base64.b64decode(found["message"].get("hdrs", ""))
        ours: bytes = wave.ids[at].as_py()
        return headers.get(block, MSG_ID) == ours

    def _resolve(self, wave: BucketChanges, conflicting: list[int]) -> None:
        self._written.refused += len(conflicting)
        if not conflicting:
            return
        if self.options.on_conflict == FAIL:
            keys = [wave.keys[at].as_py() for at in conflicting[:CONFLICTS_SHOWN]]
            raise SinkError(
                f"{len(conflicting)} keys of bucket {self.options.bucket} have another revision "
                f"than their rows say: {', '.join(keys)}. Read them again, or set onConflict to "
                "skip or report"
            )
        if self.options.on_conflict == REPORT:
            for at in conflicting:
                self._report(wave, at)

    def _report(self, wave: BucketChanges, at: int) -> None:
        """Publish the conflicting row once: the id of the change prevents a second copy."""
        assert wave.revisions is not None
        block = headers.EMPTY_BLOCK
        for name, value in {
            MSG_ID: wave.ids[at].as_py(),
            b"Penstock-Bucket": self.options.bucket.encode(),
            b"Penstock-Key": wave.keys[at].as_py().encode(),
            b"Penstock-Revision": b"%d" % wave.revisions[at].as_py(),
        }.items():
            block = headers.added(block, name, value)
        subject = self.options.conflict_subject
        reply = self.outlet.publisher.ask(subject, wave.payloads[at].as_py(), header=block)
        answer = json.loads(reply.payload)
        if "error" in answer:
            raise SinkError(f"a conflict could not be reported to {subject}: {answer['error']}")
