"""What one call takes out of a store, added up over the ways it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store.contract import NOTHING_REMOVED, Removed

if TYPE_CHECKING:
    from penstock.store.contract import Range
    from penstock.store.removing import Taken


class Gone:
    """What one call takes out, by whatever ways."""

    __slots__ = ("bytes", "msgs", "ranges")

    def __init__(self) -> None:
        self.msgs = self.bytes = 0
        self.ranges: list[Range] = []

    def one(self, seq: int, size: int) -> None:
        self.msgs += 1
        self.bytes += size
        self.ranges.append((seq, seq))

    def add(self, taken: Taken) -> Gone:
        self.msgs += taken.msgs
        self.bytes += taken.bytes
        self.ranges += taken.ranges
        return self

    def add_removed(self, removed: Removed) -> Gone:
        self.msgs += removed.msgs
        self.bytes += removed.bytes
        self.ranges += removed.seqs
        return self

    def removed(self) -> Removed:
        """Ranges that touch or overlap become one: nothing in them is live."""
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
