"""What a log has lost, as far as its records tell: worked out when a store is opened.

A message is lost if it goes while it is the newest of its subject. The log says how far up that has
happened, with a removal that names no sequence, after every group of records that took something
out. What took something out behind the last of these words counts as a loss: an interrupted write
may have kept the one and not the other, and a version that did not know of losses said nothing.
So does everything that records which cannot be read may have been about.

Invariant: never too low. Too high costs those who follow the log a listing.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.store.rangekinds import FLOOR, REMOVE, SKIP


@dataclass(slots=True)
class Losses:
    """Losses of a log, told its range records in order."""

    _said: int = 0
    _unsaid: int = 0
    """The highest sequence that went since the log last said what it had lost."""
    _suspected: int = 0

    def note(self, kind: int, first: int, last: int) -> None:
        """A range record."""
        if kind == REMOVE and first > last:
            self._said = max(self._said, last)
            self._unsaid = 0
        elif kind in (REMOVE, SKIP) and first <= last:
            # A block written anew tells of a row of removed messages at its end as skipped ones.
            self._unsaid = max(self._unsaid, last)
        elif kind == FLOOR:
            self._unsaid = max(self._unsaid, first - 1)

    def cut(self, seq: int) -> None:
        """The log was cut behind a sequence: what had made way for the rest is missed now."""
        self._unsaid = max(self._unsaid, seq)

    def suspect(self, seq: int) -> None:
        """Something that cannot be read may have been about sequences up to this one."""
        self._suspected = max(self._suspected, seq)

    @property
    def floor(self) -> int:
        return max(self._said, self._unsaid, self._suspected)

    @property
    def is_unsaid(self) -> bool:
        """Whether the log has yet to say so."""
        return self.floor > self._said
