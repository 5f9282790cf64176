"""Rows in flight: maps publish numbers to rows until their replies are processed.

The size is bounded by the publisher's window, plus the batch that is being sent.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


class SentRow(NamedTuple):
    """A row of a batch; `start` is the number of rows of the task before the batch."""

    batch: pa.RecordBatch
    row: int
    start: int


class SentRows:
    """The batches of one task with rows that lack a reply."""

    def __init__(self) -> None:
        self._batches: deque[tuple[int, pa.RecordBatch, int]] = deque()

    def add(self, first: int, batch: pa.RecordBatch, start: int) -> None:
        """Add a batch whose rows are publishes from the number `first` on."""
        self._batches.append((first, batch, start))

    def at(self, number: int) -> SentRow:
        for first, batch, start in self._batches:
            if first <= number < first + batch.num_rows:
                return SentRow(batch, number - first, start)
        raise LookupError(f"publish {number} is none of these rows")

    def forget(self, oldest: int) -> None:
        """Drop batches below `oldest`: their rows have replies, and these are processed."""
        while self._batches and self._batches[0][0] + self._batches[0][1].num_rows <= oldest:
            self._batches.popleft()
