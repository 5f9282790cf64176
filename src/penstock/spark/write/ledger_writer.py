"""Writes the rows of a task to a stream under delivery `strict`: filtered, then recorded in a
ledger.

Every row that is known to fail is removed before the others become an atomic batch, because a
server refuses a batch as a whole and does not report which row was at fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from penstock.bulk.publish_frames import RowError
from penstock.spark.write.bad_rows import BATCH_BYTES, HEADER_BYTES, RowFilter
from penstock.spark.write.sink_ids import BadRow
from penstock.spark.write.sink_report import Written
from penstock.spark.write.sink_rows import payload_column
from penstock.spark.write.subject_coverage import Coverage
from penstock.spark.write.write_ledger import WriteLedger

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.write.dead_letters import DeadLetters
    from penstock.spark.write.sink_options import SinkOptions
    from penstock.spark.write.sink_rows import RowLayout
    from penstock.spark.write.sink_task import Task
    from penstock.spark.write.worker_publisher import WorkerPublisher


class LedgerWriter:
    """Writes the rows of one task."""

    def __init__(
        self,
        outlet: WorkerPublisher,
        layout: RowLayout,
        task: Task,
        options: SinkOptions,
        letters: DeadLetters | None,
    ) -> None:
        subject = f"{options.ledger}.{task.ledger}.{task.partition}"
        self._ledger = WriteLedger(outlet, subject, task.batch, task.query)
        self._layout = layout
        self._letters = letters
        self._written = Written(task, created=outlet.created)
        self._sieve = RowFilter(
            outlet,
            layout,
            task,
            Coverage(outlet),
            policy=options.on_bad_row,
            scope="",
            letters=letters,
            extra_bytes=HEADER_BYTES + BATCH_BYTES,
            is_thorough=True,
        )

    def sift(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that can be stored."""
        start = self._written.rows
        self._written.rows += batch.num_rows
        return self._sieve.sift(batch, start) if batch.num_rows else batch

    def write(self, batch: pa.RecordBatch, *, is_last: bool) -> None:
        """Store filtered rows, or verify that they are stored."""
        self._written.bytes += pc.sum(pc.binary_length(payload_column(batch))).as_py()
        try:
            self._ledger.write(self._layout.rows(batch), is_last=is_last)
        except (BadRow, RowError) as error:
            raise self._sieve.explained(batch, 0, error) from None

    def finish(self) -> Written:
        """Return what was done; every dead letter is durable then."""
        if self._letters is not None:
            self._letters.finish()
        self._written.repeated = self._ledger.skipped
        self._written.refused = self._sieve.count
        return self._written
