"""Accumulates the messages that one store call removes, and finds the next aging message."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.store.contract import NOTHING_REMOVED, SLICE_LOOKS, Removed

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from penstock.store.contract import Range
    from penstock.store.index.message_log import MessageLog
    from penstock.store.index.record_log import RecordLog
    from penstock.store.index.removal_index import Taken


@contextmanager
def by_request(log: RecordLog) -> Iterator[None]:
    """Mark removals from the log inside this context as requested, not caused by a limit."""
    log.is_requested = True
    try:
        yield
    finally:
        log.is_requested = False


class Removal:
    """The messages that one call removes, added up."""

    __slots__ = ("bytes", "msgs", "ranges")

    def __init__(self) -> None:
        self.msgs = self.bytes = 0
        self.ranges: list[Range] = []

    def one(self, seq: int, size: int) -> None:
        self.msgs += 1
        self.bytes += size
        self.ranges.append((seq, seq))

    def add(self, taken: Taken) -> Removal:
        self.msgs += taken.msgs
        self.bytes += taken.bytes
        self.ranges += taken.ranges
        return self

    def add_removed(self, removed: Removed) -> Removal:
        self.msgs += removed.msgs
        self.bytes += removed.bytes
        self.ranges += removed.seqs
        return self

    def removed(self) -> Removed:
        """Return the total; merge ranges that touch or overlap: nothing in them is live."""
        if not self.msgs:
            return NOTHING_REMOVED
        if len(self.ranges) == 1:
            return Removed(self.msgs, self.bytes, (self.ranges[0],))
        merged: list[Range] = []
        for first, last in sorted(self.ranges):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        return Removed(self.msgs, self.bytes, tuple(merged))


def first_aging(log: MessageLog, exempt: Container[int], start: int) -> tuple[int, int]:
    """Return the first message from `start` on that is not exempt, and where to continue.

    Returns 0 if there is none, and an exempt message after SLICE_LOOKS exempt ones: the caller
    then calls again.
    """
    seq, looks = log.next_seq((), start), 0
    while seq and seq in exempt and looks < SLICE_LOOKS:
        start = seq + 1
        seq = log.next_seq((), start)
        looks += 1
    return seq, start
