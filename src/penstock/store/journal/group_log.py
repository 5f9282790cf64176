"""The index of one group: where its entries lie, and its latest state.

Entries have consecutive indexes, so an entry costs the 8 bytes of its position. A position is the
number of a segment and a place in it; 0 stands for an entry that is unreadable. Pure; the owner is
the journal, or its recovery.
"""

from __future__ import annotations

from array import array
from typing import Final

from penstock.store.journal.journal_types import GAP_MAX

PLACE_BITS: Final = 32
PLACE_MASK: Final = (1 << PLACE_BITS) - 1


class GroupLog:
    """Entries `first` to `next - 1`. `next` is 0 until the group has an entry or a floor."""

    __slots__ = ("newest", "next", "positions", "state", "state_at")

    def __init__(self) -> None:
        self.positions = array("Q")
        self.next = 0
        self.state: bytes | None = None
        self.state_at = 0
        """The position of the record that holds the state; 0 without a state."""
        self.newest = 0
        """The last segment that knows of the group."""

    @property
    def first(self) -> int:
        return self.next - len(self.positions)

    @property
    def oldest_segment(self) -> int:
        """The segment of the oldest entry that is needed and readable; 0 without entries."""
        for position in self.positions:
            if position:
                return position >> PLACE_BITS
        return 0

    @property
    def state_segment(self) -> int:
        return self.state_at >> PLACE_BITS

    def cut(self, index: int) -> None:
        """Remove the entries from an index on."""
        if index < self.next:
            del self.positions[max(0, index - self.first) :]
            self.next = index

    def drop(self, index: int) -> None:
        """Remove the entries up to an index, and expect the one after it at the earliest."""
        if index >= self.next:
            del self.positions[:]
            self.next = index + 1
        else:
            del self.positions[: max(0, index + 1 - self.first)]

    def replay(self, index: int, position: int) -> None:
        """Add an entry that was read from a file. Without damage its index is the next; otherwise
        it replaces the entries from it on, or leaves a gap."""
        if self.next == 0:
            self.next = index
        self.cut(index)
        gap = index - self.next
        if gap > GAP_MAX:
            del self.positions[:]
        elif gap:
            self.positions.extend([0] * gap)
        self.positions.append(position)
        self.next = index + 1

    def gaps(self) -> list[tuple[int, int]]:
        """Return the ranges of unreadable entries."""
        found: list[tuple[int, int]] = []
        for index, position in enumerate(self.positions, self.first):
            if position:
                continue
            if found and found[-1][1] == index - 1:
                found[-1] = (found[-1][0], index)
            else:
                found.append((index, index))
        return found
