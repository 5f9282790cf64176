"""The losses of a log, computed from its records when a store is opened.

A message is lost if it is removed while it is the newest of its subject. After every group of
records that removed something, the log records the highest lost sequence and the loss count, in a
REMOVE record with an empty range. Removals after the last such record count as losses: an
interrupted write may have kept one without the other, and older versions recorded no losses. So
does everything that unreadable records may have described.

Invariants: neither the floor nor the count is ever too low, and a different history never reaches a
count that the store reported before. A value that is too high costs followers a full listing.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.store.format.range_kinds import FLOOR, REMOVE, SKIP

SUSPECTED_LOSSES = 1 << 24
"""What unreadable records add to the count: more than any group of records could contain."""
LOSSES_MAX = 1 << 62
"""The largest count that a log can record with a sequence; a larger one in a file is damage."""


@dataclass(slots=True)
class Losses:
    """The losses of a log; `note` receives its range records in order."""

    _recorded: int = 0
    _unrecorded: int = 0
    """The highest sequence removed since the log last recorded its losses."""
    _suspected: int = 0
    _counted: int = 0
    _uncounted: int = 0
    """Sequences in REMOVE records, plus one for each SKIP, FLOOR, truncation or miss, since the log
    last recorded its losses."""
    _is_suspect: bool = False

    def note(self, kind: int, first: int, last: int) -> None:
        """Process a range record."""
        if kind == REMOVE and first > last + 1 + LOSSES_MAX:
            self.suspect(last)
        elif kind == REMOVE and first > last:
            self._recorded = max(self._recorded, last)
            self._counted = max(self._counted, first - last - 1)
            self._unrecorded = self._uncounted = 0
        elif kind in (REMOVE, SKIP) and first <= last:
            # A rewritten block records removed messages at its end as skipped sequences.
            self._unrecorded = max(self._unrecorded, last)
            self._uncounted += last - first + 1 if kind == REMOVE else 1
        elif kind == FLOOR:
            self._unrecorded = max(self._unrecorded, first - 1)
            self._uncounted += 1

    def cut(self, seq: int) -> None:
        """Process a truncation after a sequence: messages displaced by the truncated are lost."""
        self._unrecorded = max(self._unrecorded, seq)
        self._uncounted += 1

    def miss(self) -> None:
        """Count messages that were visible before they were durable and are now missing."""
        self._uncounted += 1

    def suspect(self, seq: int) -> None:
        """Assume losses up to a sequence, which unreadable records may have described."""
        self._suspected = max(self._suspected, seq)
        self._is_suspect = True

    @property
    def floor(self) -> int:
        return max(self._recorded, self._unrecorded, self._suspected)

    @property
    def count(self) -> int:
        """Upper bound of messages lost by request or while an older one of the subject stayed."""
        count = self._counted + self._uncounted + self._is_suspect * SUSPECTED_LOSSES
        return min(count, LOSSES_MAX)

    @property
    def is_unsaid(self) -> bool:
        """Whether the log still has to record these losses."""
        return self.floor > self._recorded or self.count > self._counted
