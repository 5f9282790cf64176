"""What a log has lost, as far as its records tell: worked out when a store is opened.

A message is lost if it is removed while it is the newest of its subject. The log notes how far up
that has happened, and how often by request, with a removal that names no sequence, after every
group of records that removed something. What such records after the last note name counts as lost:
an interrupted write may have kept the one and not the other, and older versions noted nothing. So
does everything that records which cannot be read may have been about.

Invariants: neither number is ever too low, and a count that the store reported is not reached again
by another history. Too high costs the followers of the log a listing.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.store.format.range_kinds import FLOOR, REMOVE, SKIP

SUSPECTED_LOSSES = 1 << 24
"""What unreadable records add to the count: more than any group of records could have counted."""
LOSSES_MAX = 1 << 62
"""The largest count that a log can note beside a sequence; a larger one in a file is damage."""


@dataclass(slots=True)
class Losses:
    """Losses of a log, told its range records in order."""

    _said: int = 0
    _unsaid: int = 0
    """The highest sequence that went since the log last said what it had lost."""
    _suspected: int = 0
    _counted: int = 0
    _uncounted: int = 0
    """How many range records removed something since the log last noted its losses."""
    _is_suspect: bool = False

    def note(self, kind: int, first: int, last: int) -> None:
        """A range record."""
        if kind == REMOVE and first > last + 1 + LOSSES_MAX:
            self.suspect(last)
        elif kind == REMOVE and first > last:
            self._said = max(self._said, last)
            self._counted = max(self._counted, first - last - 1)
            self._unsaid = self._uncounted = 0
        elif kind in (REMOVE, SKIP) and first <= last:
            # A block written anew tells of a row of removed messages at its end as skipped ones.
            self._unsaid = max(self._unsaid, last)
            self._uncounted += last - first + 1 if kind == REMOVE else 1
        elif kind == FLOOR:
            self._unsaid = max(self._unsaid, first - 1)
            self._uncounted += 1

    def cut(self, seq: int) -> None:
        """The log was cut behind a sequence: what had made way for the rest is missed now."""
        self._unsaid = max(self._unsaid, seq)
        self._uncounted += 1

    def miss(self) -> None:
        """Messages that were shown before they were durable are missing."""
        self._uncounted += 1

    def suspect(self, seq: int) -> None:
        """Something that cannot be read may have been about sequences up to this one."""
        self._suspected = max(self._suspected, seq)
        self._is_suspect = True

    @property
    def floor(self) -> int:
        return max(self._said, self._unsaid, self._suspected)

    @property
    def count(self) -> int:
        """How many were lost by request or for an older message of their subject, at most."""
        count = self._counted + self._uncounted + self._is_suspect * SUSPECTED_LOSSES
        return min(count, LOSSES_MAX)

    @property
    def is_unsaid(self) -> bool:
        """Whether the log has yet to note them."""
        return self.floor > self._said or self.count > self._counted
