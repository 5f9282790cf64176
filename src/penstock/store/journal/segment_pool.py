"""The segments in use, the free files, and what upkeep does to them.

Segments are freed in order, oldest first: then the records that void entries, floors and cuts,
outlive what they void. A file is free once the anchor with the new tail is durable. It is used
again, or removed if it may hold erased bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store.journal.journal_anchor import AnchorValue
from penstock.store.journal.journal_types import ERASE_NS, SEGMENTS_HELD_MAX, SPARES_MAX
from penstock.store.journal.journal_work import JournalUpkeep
from penstock.store.journal.segment_files import Segment, SegmentFile, file_name

if TYPE_CHECKING:
    from penstock.store.io.disk import Disk
    from penstock.store.journal.group_log import GroupLog
    from penstock.store.journal.journal_anchor import JournalAnchor


class SegmentPool:
    """Owns the segment files. Its owner reports syncs with `tail_durable`."""

    def __init__(
        self,
        disk: Disk,
        anchor: JournalAnchor,
        groups: dict[int, GroupLog],
        segment_bytes: int,
        segments_max: int,
    ) -> None:
        self.segments: dict[int, Segment] = {}
        """Those in use, in order."""
        self.active: Segment | None = None
        """The one that turns are written to."""
        self.number = 0
        """The highest segment number ever used."""
        self.segments_max = segments_max
        self.segment_bytes = segment_bytes
        self.upkeep: JournalUpkeep | None = None
        """The upkeep work that is out."""
        self.erase_due_ns = 0
        """From when on groups must make room for an erase; 0: no erase is under way."""
        self._disk = disk
        self._anchor = anchor
        self._groups = groups
        self._spares: list[SegmentFile] = []
        self._doomed: list[SegmentFile] = []
        self._next_file = 1
        self._tail = 1
        """The oldest segment that is needed, as far as synced turns say."""

    def adopt(self, segments: dict[int, Segment], free: list[SegmentFile], now_ns: int) -> None:
        """Take over what a recovery found. Any file may hold bytes that were erased since."""
        self.segments.update(segments)
        self._doomed = free
        found = [segment.file for segment in segments.values()] + free
        self._next_file = max((file.number for file in found), default=0) + 1
        self._tail = min(segments, default=self.number + 1)
        self._tail = max(self._tail, self._anchor.value.tail)
        for file in found:
            file.is_stained = True
            file.held = None
        if segments:
            self.erase_due_ns = now_ns + ERASE_NS

    # -- segments

    @property
    def may_begin(self) -> bool:
        """Whether another segment may be begun for an append."""
        return len(self.segments) < self.segments_max

    def begin(self, segment: Segment) -> None:
        """Make a new segment the active one."""
        self.number = segment.number
        self.segments[segment.number] = self.active = segment

    def take_file(self) -> SegmentFile:
        """Return a file for a new segment; it may have to be created by the sync."""
        if self._spares:
            return self._spares.pop(0)
        return self._new_file()

    def _new_file(self) -> SegmentFile:
        file = SegmentFile(file_name(self._next_file))
        self._next_file += 1
        return file

    def is_held(self, segment: Segment) -> bool:
        """Return whether a group needs the segment."""
        while segment.groups:
            group = next(iter(segment.groups))
            if self._needs(group, segment):
                return True
            segment.groups.discard(group)
        return False

    def _needs(self, group: int, segment: Segment) -> bool:
        log = self._groups.get(group)
        if log is None:
            return False
        return log.state_segment == segment.number or 0 < log.oldest_segment <= segment.number

    def tail_now(self) -> int:
        """Return the oldest segment that is needed, as far as the index says."""
        for segment in self.segments.values():
            if segment is self.active or self.is_held(segment):
                return segment.number
        return self.number + 1

    def tail_durable(self, tail: int) -> None:
        """Record that the turns which make older segments dispensable are durable."""
        self._tail = max(self._tail, tail)

    def oldest(self) -> Segment | None:
        return next(iter(self.segments.values()), None)

    def wants_room(self, now_ns: int) -> bool:
        """Return whether the oldest segment should be freed."""
        if len(self.segments) > min(SEGMENTS_HELD_MAX, self.segments_max // 2):
            return True
        if not self.erase_due_ns or now_ns < self.erase_due_ns:
            return False
        return any(segment.file.is_stained for segment in self.segments.values())

    # -- erasure

    def erase(self, group: int, now_ns: int) -> None:
        """Stain the files that may hold bytes of a group."""
        stained = False
        for segment in self.segments.values():
            if segment.file.held is None or group in segment.file.held:
                segment.file.is_stained = stained = True
        for file in list(self._spares):
            if file.held is None or group in file.held:
                self._spares.remove(file)
                self._doomed.append(file)
        if stained and not self.erase_due_ns:
            self.erase_due_ns = now_ns + ERASE_NS

    @property
    def is_erased(self) -> bool:
        """Whether no file holds erased bytes any more."""
        stained = any(segment.file.is_stained for segment in self.segments.values())
        return not (stained or self._doomed or (self.upkeep and self.upkeep.removed))

    def retire(self, now_ns: int) -> bool:
        """Stop writing to a stained active segment that is due; return whether it was."""
        if self.active is None or not self.active.file.is_stained:
            return False
        if not self.erase_due_ns or now_ns < self.erase_due_ns:
            return False
        self.active = None
        return True

    # -- upkeep

    def pending_upkeep(self, turn: int, *, anchor_is_free: bool) -> JournalUpkeep | None:
        """Return the next slice of file work; None if there is none. A sync may wait for one that
        uses the anchor, so that one does nothing else."""
        if self.upkeep is not None:
            return None
        work = JournalUpkeep(self._disk, self._anchor, self.segment_bytes)
        if self._tail > self._anchor.value.tail and anchor_is_free:
            work.anchored = AnchorValue(self._tail, self._anchor.value.newest, turn)
        elif self._doomed:
            work.removed, self._doomed = self._doomed, []
        elif (file := self._to_prepare()) is not None:
            work.prepared = file
        else:
            return None
        self.upkeep = work
        return work

    def _to_prepare(self) -> SegmentFile | None:
        if self.active is None or self.active.end <= self.segment_bytes // 2:
            return None
        if not self._spares and self.may_begin:
            self._spares.append(self._new_file())
        unready = [file for file in self._spares if not file.is_ready]
        return unready[0] if unready else None

    def kept_up(self, work: JournalUpkeep) -> None:
        """Record that an upkeep work succeeded."""
        assert work is self.upkeep
        self.upkeep = None
        if work.anchored is None:
            return
        for number in [n for n in self.segments if n < work.anchored.tail]:
            self._free(self.segments.pop(number).file)
        if not any(segment.file.is_stained for segment in self.segments.values()):
            self.erase_due_ns = 0

    def _free(self, file: SegmentFile) -> None:
        if file.is_stained or len(self._spares) >= SPARES_MAX:
            self._doomed.append(file)
        else:
            self._spares.append(file)

    def close(self) -> None:
        """Close all files."""
        for segment in self.segments.values():
            segment.file.close(self._disk)
        for file in (*self._spares, *self._doomed):
            file.close(self._disk)
