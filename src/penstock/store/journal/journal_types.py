"""Values and bounds of the journal: entries, the report of a recovery, refusals.

All bounds are named here. Sizes of segments are arguments of `Journal.open`, so that tests can use
small ones.
"""

from __future__ import annotations

import errno as codes
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.store.errors import StoreError

SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""Size of a segment file, header page included."""
SEGMENT_BYTES_MIN: Final = 4 * 4096
SEGMENT_BYTES_MAX: Final = 1024 * 1024 * 1024
SEGMENTS_MAX: Final = 16
"""Segments in use before `append` refuses. Records of the journal itself may take one more."""
SEGMENTS_HELD_MAX: Final = 8
"""More segments in use, and `holding_back` names the groups that keep the oldest."""
SPARES_MAX: Final = 2
"""Free segment files that are kept for reuse; others are removed."""
RECORDS_MAX: Final = 524_288
"""Records of one segment: bounds the index in memory, 8 bytes for each."""
TURN_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of a turn; a sync may write several. The largest record is a little smaller."""
STATE_BYTES_MAX: Final = 4096
"""Bytes of the state of a group, which the journal keeps in memory."""
CARRY_MAX: Final = 1024
"""States that one sync copies from the oldest segment, so that it can be freed."""
HOLDERS_MAX: Final = 64
"""Groups that one call of `holding_back` names."""
PREPARE_BYTES: Final = 8 * 1024 * 1024
"""Zeros that one upkeep work writes to the next segment file."""
GAP_MAX: Final = 65_536
"""Missing entries that are remembered one by one; after a longer gap the group begins again."""
MARK_AFTER_NS: Final = 1_000_000_000
"""After this time without a turn an empty one marks the last as durable."""
ERASE_NS: Final = 60_000_000_000
"""After an erase, `holding_back` names groups from this time on, until the bytes are removed."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An entry of a group. `kind` is from KIND_ENTRY to 255, and belongs to the group's owner."""

    index: int
    term: int
    kind: int
    data: bytes


class ReplayedEntry(NamedTuple):
    """An entry in the order of the journal."""

    group: int
    entry: JournalEntry


class JournalDamage(NamedTuple):
    """Durable bytes that are unreadable: a turn, or a part of it, of a segment."""

    segment: int
    place: int
    turn: int
    reason: str


@dataclass(slots=True)
class JournalRecovery:
    """What opening a journal found.

    `damage`: records that were durable are lost. `gaps`: the entries known to be among them, as
    group to (first, last); a group whose newest entries were lost is not in it, so with damage the
    end of every group is uncertain. `torn_turns`: turns with a readable head that have no effect,
    because no sync is known to have returned for them or for one before them. `kept_files`: files
    without a readable header, which are left alone because a segment is missing.
    """

    turn: int = 0
    segments: int = 0
    torn_turns: int = 0
    kept_files: list[str] = field(default_factory=list)
    damage: list[JournalDamage] = field(default_factory=list)
    gaps: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    is_anchor_damaged: bool = False

    @property
    def is_clean(self) -> bool:
        return not self.damage and not self.is_anchor_damaged


class JournalFull(StoreError):
    """All segments are in use. Nothing was changed; the caller writes without the journal, or
    checkpoints the groups that `holding_back` names."""

    def __init__(self, path: str, segments: int) -> None:
        reason = f"the journal holds {segments} segments that are still needed"
        super().__init__(path, "append", codes.ENOSPC, reason)


class JournalFailed(StoreError):
    """An earlier write or sync of the journal failed; it accepts nothing more."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "append", codes.EIO, "an earlier write of the journal failed")


class MissingEntries(StoreError):
    """Entries in the asked range are unreadable."""

    def __init__(self, path: str, group: int, index: int) -> None:
        reason = f"entry {index} of group {group:x} is unreadable"
        super().__init__(path, "read", codes.EBADMSG, reason)
        self.index = index
