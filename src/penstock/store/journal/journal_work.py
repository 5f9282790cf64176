"""Blocking file work of the journal: a sync of turns, and the upkeep of its files.

Works run on any thread. They hold what the owner decided; one sync and one upkeep may be out at a
time, and only one of them uses the anchor. After DiskFull a work may run again, any number of
times: it writes the same bytes to the same places.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.records.journal_codec import PAGE_BYTES
from penstock.store.errors import NotFound
from penstock.store.journal.journal_types import PREPARE_BYTES
from penstock.store.journal.turn_frames import encrypt_turn

if TYPE_CHECKING:
    from penstock.store.io.disk import Disk
    from penstock.store.journal.journal_anchor import AnchorValue, JournalAnchor
    from penstock.store.journal.segment_files import Segment, SegmentFile

LONG_SYNC_BYTES: Final = 1_048_576
"""A sync that writes more should run on a thread, however fast syncs are."""


@dataclass(slots=True)
class ClosedTurn:
    """A turn as it is written. `plain` holds whole pages, `plain_bytes` of them are in use."""

    segment: Segment
    place: int
    number: int
    plain: memoryview
    plain_bytes: int
    header: bytes = b""
    """The header page of the segment, before the first turn in it."""
    stored: bytes | memoryview = b""
    """What a run wrote: an encrypted turn is encrypted once."""

    def write(self, disk: Disk, size: int) -> None:
        segment = self.segment
        if not segment.file.is_ready:
            segment.file.fill(disk, size, size)
        if not self.stored:
            self.stored = self.plain
            if segment.writer is not None:
                self.stored = encrypt_turn(segment.writer, self.plain, self.plain_bytes, self.place)
        file = segment.file.open(disk)
        if self.header:
            disk.pwrite(file, self.header + self.stored, self.place - PAGE_BYTES)
        else:
            disk.pwrite(file, self.stored, self.place)


@dataclass(slots=True)
class JournalSync:
    """Turns to write, and files to sync. With `write_only` nothing is synced: the turns survive
    the end of the process, not a power cut."""

    disk: Disk
    anchor: JournalAnchor
    turns: list[ClosedTurn]
    files: list[SegmentFile]
    last_turn: int
    segment_bytes: int
    tail: int
    """The oldest segment that is needed once this work is synced."""
    anchored: AnchorValue | None = None
    """Set if a segment was begun."""
    write_only: bool = False
    has_records: bool = True

    @property
    def is_long(self) -> bool:
        written = sum(len(turn.plain) for turn in self.turns)
        return written > LONG_SYNC_BYTES or any(
            not turn.segment.file.is_ready for turn in self.turns
        )

    def run(self) -> None:
        for turn in self.turns:
            turn.write(self.disk, self.segment_bytes)
        if self.write_only:
            return
        for file in self.files:
            self.disk.fdatasync(file.open(self.disk))
        if self.anchored is not None:
            self.anchor.note(self.anchored)


@dataclass(slots=True)
class JournalUpkeep:
    """One slice: notes in the anchor that segments are free, removes files, or writes zeros to
    the next file."""

    disk: Disk
    anchor: JournalAnchor
    segment_bytes: int
    anchored: AnchorValue | None = None
    removed: list[SegmentFile] = field(default_factory=list)
    prepared: SegmentFile | None = None

    def run(self) -> None:
        if self.anchored is not None:
            self.anchor.note(self.anchored)
        for file in self.removed:
            file.close(self.disk)
            try:
                self.disk.unlink(file.name)
            except NotFound:  # an earlier run removed it
                continue
        if self.removed:
            self.disk.sync_dir()
        if self.prepared is not None:
            size = self.disk.size(self.prepared.open(self.disk))
            self.prepared.fill(self.disk, self.segment_bytes, size + PREPARE_BYTES)
