"""Writes the rows of a task to a stream, with or without message ids: many in flight, all
confirmed.

A batch is filtered for rows that cannot be stored, published, and remembered until its replies
arrive: refused rows go to `RowFilter`, duplicates to `DuplicateCheck`. `finish` returns when every
row has a reply and every dead letter is durable.
"""

from __future__ import annotations

import base64
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from penstock.bulk.errors import BulkError
from penstock.bulk.publish_frames import RowError
from penstock.spark.write.bad_rows import HEADER_BYTES, ID_BYTES, BadRecord, RowFilter
from penstock.spark.write.duplicates import Content, DuplicateCheck, message_at
from penstock.spark.write.sent_rows import SentRows
from penstock.spark.write.sink_ids import BadRow
from penstock.spark.write.sink_options import SKIP
from penstock.spark.write.sink_report import Written
from penstock.spark.write.sink_rows import payload_column
from penstock.spark.write.subject_coverage import Coverage, probe

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.bulk.bulk_publisher import PublishRefusal
    from penstock.spark.write.dead_letters import DeadLetters
    from penstock.spark.write.sink_ids import RowIds
    from penstock.spark.write.sink_options import SinkOptions
    from penstock.spark.write.sink_rows import RowLayout
    from penstock.spark.write.sink_task import Task
    from penstock.spark.write.worker_publisher import WorkerPublisher
    from penstock.spark.write.write_start import WriteStart


class RowWriter:
    """Writes the rows of one task."""

    def __init__(
        self,
        outlet: WorkerPublisher,
        layout: RowLayout,
        task: Task,
        options: SinkOptions,
        letters: DeadLetters | None,
        start: WriteStart,
    ) -> None:
        self._outlet = outlet
        self._layout = layout
        self._options = options
        self._letters = letters
        self._scope = task.scope(layout.subject)
        self._sent = SentRows()
        self._written = Written(task, created=outlet.created, began_s=start.time_s)
        self._sieve = RowFilter(
            outlet,
            layout,
            task,
            Coverage(outlet),
            policy=options.on_bad_row,
            scope=self._scope,
            letters=letters,
            extra_bytes=len(outlet.common) + HEADER_BYTES + (ID_BYTES if layout.ids else 0),
        )
        policy = options.on_duplicate if layout.ids else SKIP
        self._duplicates = DuplicateCheck(outlet, task, start.last_seq, policy, self._content)

    def write(self, batch: pa.RecordBatch) -> None:
        """Send a batch, and process the replies to earlier ones."""
        start, written = self._written.rows, self._written
        written.rows += batch.num_rows
        good = self._sieve.sift(batch, start)
        if not good.num_rows:
            return
        written.bytes += pc.sum(pc.binary_length(payload_column(good))).as_py()
        publisher = self._outlet.publisher
        try:
            rows = self._layout.rows(good, self._scope)
            first = publisher.publish(
                rows.subjects,
                rows.payloads,
                ids=rows.ids,
                lines=rows.lines,
                common=self._outlet.common,
            )
        except (BadRow, RowError) as error:
            raise self._sieve.explained(good, start, error) from None
        self._sent.add(first, good, start)
        self._look()

    def finish(self) -> Written:
        """Wait for every reply."""
        self._outlet.publisher.drain()
        self._look()
        self._duplicates.finish(self._options)
        if self._letters is not None:
            self._letters.finish()
        written = self._written
        written.repeated = self._duplicates.count
        written.refused = self._sieve.count
        written.messages = self._duplicates.messages
        return written

    def _look(self) -> None:
        """Process refusals and duplicates."""
        publisher = self._outlet.publisher
        oldest = publisher.oldest_number  # read first, so rows with later replies stay available
        self._refuse(sorted(publisher.take_refused(), key=lambda one: one.number))
        self._duplicates.record_replies(publisher.take_repeats(), publisher.take_stored())
        self._sent.forget(oldest)

    def _refuse(self, refusals: list[PublishRefusal]) -> None:
        """Handle rows that the stream refused, batch by batch."""
        for start, found in groupby(
            ((self._sent.at(one.number), one) for one in refusals), key=lambda pair: pair[0].start
        ):
            pairs = list(found)
            bad = [
                BadRecord(
                    sent.row,
                    self._layout.subject_at(sent.batch, sent.row),
                    f"{one.description} ({one.err_code or one.code})",
                )
                for sent, one in pairs
            ]
            self._sieve.refuse(pairs[0][0].batch, bad, start)

    def _content(self, number: int) -> Content:
        """Return the content of the row of a publish."""
        batch, row, start = self._sent.at(number)
        one = batch.slice(row, 1)
        ids = self._layout.ids.texts(one, self._scope) if self._layout.ids else None
        return Content(
            f"row {start + row} of partition {self._written.task.partition}",
            self._layout.subject_at(batch, row) or "",
            payload_column(one)[0].as_py(),
            str(ids[0].as_py()) if ids is not None else "",
        )


def ids_of_batch(
    outlet: WorkerPublisher, layout: RowLayout, task: Task, batch: pa.RecordBatch
) -> RowIds:
    """Return how the rows of this task are named.

    A streaming batch that an older version began is finished with the ids that version used;
    otherwise its rows would be stored again. In that case the stream holds its first row under
    `stream:seq`, with this content.
    """
    ids = layout.ids
    if not ids.is_lineage or not task.is_streaming:
        return ids
    first = batch.slice(0, 1)
    older = ids.first_scheme()
    subject, text = layout.subject_at(first, 0), older.texts(first, "")[0].as_py()
    if subject is None or text is None:
        return ids
    found = known_id(outlet, subject, text)
    if found is None:
        return ids
    is_this_row = (
        found["subject"] == subject
        and base64.b64decode(found.get("data", "")) == payload_column(first)[0].as_py()
    )
    return older if is_this_row else ids


def known_id(outlet: WorkerPublisher, subject: str, text: str) -> dict[str, Any] | None:
    """Return the message that has this id, if the stream remembers it."""
    try:
        answer = probe(outlet, subject, text.encode())
        return message_at(outlet, int(answer["seq"])) if answer.get("duplicate") else None
    except (BulkError, ValueError):
        return None
