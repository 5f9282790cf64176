"""Rows of a sink that cannot be stored: detection, reason and handling.

`RowFilter.sift` removes them from a batch before it is sent; rows that the stream refuses come in
later through `refuse`. Under the policy `fail` the first bad row raises an error with partition,
row, subject and reason; otherwise bad rows are counted, and kept as dead letters if the options say
so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.write.sink_ids import faulty_ids
from penstock.spark.write.sink_options import FAIL
from penstock.spark.write.sink_rows import HEADERS, REASON, SUBJECT, faulty_headers
from penstock.spark.write.worker_publisher import SinkError

if TYPE_CHECKING:
    from penstock.spark.write.dead_letters import DeadLetters
    from penstock.spark.write.sink_rows import RowLayout
    from penstock.spark.write.sink_task import Task
    from penstock.spark.write.subject_coverage import Coverage
    from penstock.spark.write.worker_publisher import WorkerPublisher

#: Size of `NATS/1.0` and line ends; of `Nats-Msg-Id: `; and of what an atomic batch adds to a
#: header.
HEADER_BYTES: Final = 12
ID_BYTES: Final = 15
BATCH_BYTES: Final = 75


class BadRecord(NamedTuple):
    """A bad row of a batch. `row` is its index within the batch."""

    row: int
    subject: str | None
    reason: str


class RowFilter:
    """Removes bad rows from the batches of one task. Unless `is_thorough`, it checks ids, headers
    and sizes only after a batch failed to encode."""

    def __init__(
        self,
        outlet: WorkerPublisher,
        layout: RowLayout,
        task: Task,
        coverage: Coverage,
        *,
        policy: str,
        scope: str,
        letters: DeadLetters | None,
        extra_bytes: int,
        is_thorough: bool = False,
    ) -> None:
        self._outlet = outlet
        self._layout = layout
        self._task = task
        self._coverage = coverage
        self._policy = policy
        self._scope = scope
        self._letters = letters
        self._extra_bytes = extra_bytes
        self._is_thorough = is_thorough or policy != FAIL
        self.count = 0

    def sift(self, batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
        """Return the rows that can be sent; `start` is the number of earlier rows of the task."""
        bad = self._payload_faults(batch) | self._subject_faults(batch)
        if self._is_thorough:
            bad |= self._other_faults(batch, bad)
        if not bad:
            return batch
        self.refuse(batch, [bad[row] for row in sorted(bad)], start)
        kept = [row for row in range(batch.num_rows) if row not in bad]
        return batch.take(pa.array(kept, pa.int64()))

    def refuse(self, batch: pa.RecordBatch, bad: list[BadRecord], start: int) -> None:
        """Handle bad rows of a batch; the policy `fail` raises."""
        if self._policy == FAIL:
            raise self.error(bad, start)
        self.count += len(bad)
        if self._letters is not None:
            chosen = batch.take(pa.array([one.row for one in bad], pa.int64()))
            self._letters.add(chosen, bad, start)

    def error(self, bad: list[BadRecord], start: int) -> SinkError:
        first = bad[0]
        return SinkError(
            f"stream {self._outlet.config['name']} cannot store {len(bad)} of the rows; the first "
            f"is row {start + first.row} of partition {self._task.partition}, subject "
            f"{first.subject!r}: {first.reason}. Set onBadRow to skip or deadletter to go on "
            "without such rows"
        )

    def explained(self, batch: pa.RecordBatch, start: int, otherwise: Exception) -> SinkError:
        """Return an error that names the row because of which a batch failed to encode."""
        bad = self._other_faults(batch, {})
        if bad:
            return self.error([bad[row] for row in sorted(bad)], start)
        return SinkError(f"partition {self._task.partition}: {otherwise}")

    def _payload_faults(self, batch: pa.RecordBatch) -> dict[int, BadRecord]:
        """Return the rows whose value could not be encoded."""
        if REASON not in batch.schema.names:
            return {}
        reasons = batch.column(REASON)
        return {
            row: BadRecord(row, self._layout.subject_at(batch, row), reasons[row].as_py())
            for row in pc.indices_nonzero(reasons.is_valid()).to_pylist()
        }

    def _subject_faults(self, batch: pa.RecordBatch) -> dict[int, BadRecord]:
        if self._layout.subject:
            subjects = pa.array([self._layout.subject])
            found = self._coverage.faulty(subjects)
            masks = [(pa.repeat(mask[0], batch.num_rows), why) for mask, why in found]
        else:
            masks = self._coverage.faulty(batch.column(SUBJECT))
        return self._records(batch, masks)

    def _other_faults(
        self, batch: pa.RecordBatch, known: dict[int, BadRecord]
    ) -> dict[int, BadRecord]:
        layout, masks = self._layout, []
        if layout.ids:
            masks += faulty_ids(layout.ids.texts(batch, self._scope))
        if layout.has_headers:
            masks += faulty_headers(batch.column(HEADERS))
        found = self._records(batch, masks)
        bad = known.keys() | found.keys()
        rows = [row for row in range(batch.num_rows) if row not in bad] if bad else None
        rest = batch if rows is None else batch.take(pa.array(rows, pa.int64()))
        for one in self._oversized(rest):
            row = one.row if rows is None else rows[one.row]
            found[row] = one._replace(row=row)
        return {row: one for row, one in found.items() if row not in known}

    def _oversized(self, batch: pa.RecordBatch) -> list[BadRecord]:
        takes = self._outlet.publisher.payload_bytes_max
        if (limit := int(self._outlet.config.get("max_msg_size") or -1)) > 0:
            takes = min(takes, limit)
        sizes = pc.add(self._layout.sizes(batch, self._scope), self._extra_bytes)
        return [
            BadRecord(
                row,
                self._layout.subject_at(batch, row),
                f"{sizes[row].as_py()} bytes, and the stream takes {takes}",
            )
            for row in pc.indices_nonzero(pc.greater(sizes, takes)).to_pylist()
        ]

    def _records(
        self, batch: pa.RecordBatch, masks: list[tuple[pa.Array, str]]
    ) -> dict[int, BadRecord]:
        found: dict[int, BadRecord] = {}
        for mask, reason in masks:
            for row in pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist():
                found.setdefault(row, BadRecord(row, self._layout.subject_at(batch, row), reason))
        return found
