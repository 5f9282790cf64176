"""Recovery of a journal: which turns count, and what every group has.

A turn counts if all turns before it count and it is whole: so the result is a prefix of what was
written, and holds everything that was synced. A turn that is missing or not whole is *damage* if a
later head calls it durable: then its readable records count, and the rest is reported. Otherwise it
is *torn*, and neither it nor anything after it counts. Reading twice gives the same result: nothing
is written to a segment that was found.

Turns that do not count stay in their files. The header of the next segment names its first turn,
which voids all turns from that number on in older segments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.records.journal_codec import (
    KIND_CUT,
    KIND_ENTRY,
    KIND_FLOOR,
    KIND_FORGET,
    KIND_STATE,
    PAGE_BYTES,
    SegmentKeys,
)
from penstock.store.format.block_frames import Binding
from penstock.store.journal.group_log import PLACE_BITS, GroupLog
from penstock.store.journal.journal_reader import (
    FileSeen,
    SegmentReader,
    TurnRead,
    TurnSeen,
    files_seen,
    holds_segment,
)
from penstock.store.journal.journal_types import JournalDamage, JournalRecovery
from penstock.store.journal.segment_files import Segment, SegmentFile, SegmentHeader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.store.format.encryption import DataKey
    from penstock.store.io.disk import Disk
    from penstock.store.journal.journal_anchor import AnchorValue, JournalAnchor

_NO_LIMIT: Final = 2**64


@dataclass(slots=True)
class SegmentSeen:
    """A segment that was found: its state for the journal, and the turns that are not void."""

    segment: Segment
    header: SegmentHeader | None
    turns: list[TurnSeen]
    limit: int = _NO_LIMIT
    """The first turn number that is void here, because a later segment has it."""

    @property
    def first_turn(self) -> int:
        if self.header is not None:
            return self.header.first_turn
        return self.turns[0].number if self.turns else _NO_LIMIT


@dataclass(slots=True)
class RecoveredJournal:
    """What the journal continues with."""

    report: JournalRecovery = field(default_factory=JournalRecovery)
    groups: dict[int, GroupLog] = field(default_factory=dict)
    segments: dict[int, Segment] = field(default_factory=dict)
    free: list[SegmentFile] = field(default_factory=list)
    durable_turn: int = 0
    """The last turn that a head calls durable: later ones need a sync."""
    has_unmarked: bool = False
    """Whether a turn with records counts that no head calls durable."""
    number: int = 0
    """The highest segment number that any file or the anchor names."""


class JournalScan:
    """One recovery. `run` returns the result; the files stay open."""

    def __init__(
        self,
        disk: Disk,
        incarnation: int,
        anchor: JournalAnchor,
        data_keys: Mapping[int, DataKey],
    ) -> None:
        self._disk = disk
        self._incarnation = incarnation
        self._anchor = anchor
        self._data_keys = data_keys
        self._out = RecoveredJournal()
        self._expected = 0
        self._absent: list[int] = []
        """Segments that were durable and that no file holds."""
        self._parts: list[tuple[Segment, TurnSeen, TurnRead]] = []
        """Turns that count if the turn that they continue in does."""

    def run(self, files: list[FileSeen]) -> RecoveredJournal:
        """Read all segments; `files` are those of the directory."""
        report = self._out.report
        used = self._used(files)
        # A missing anchor is no damage before the first turn: creation was interrupted.
        is_missing = self._anchor.is_missing and any(one.turns for one in used)
        report.is_anchor_damaged = self._anchor.is_damaged or is_missing
        self._void(used)
        marks = [turn.durable for one in used for turn in one.turns]
        durable = max(marks, default=0)
        durable = max(durable, self._anchor.value.turn)
        self._out.durable_turn = durable
        self._check_segments(used)
        self._expected = _first_turn(used, self._anchor.value)
        for one in used:
            if not self._apply_segment(one, durable):
                break
        if self._expected <= durable:
            last = max(self._out.segments, default=0)
            self._damage(last, 0, self._expected, "the end of the journal is missing")
            self._expected = durable + 1
        if self._parts:
            self._expected = self._parts[0][1].number
        seen = [turn for one in used for turn in one.turns]
        report.torn_turns = sum(turn.number >= self._expected for turn in seen)
        report.turn = self._expected - 1
        report.segments = len(used)
        report.gaps = {
            group: log.gaps() for group, log in self._out.groups.items() if 0 in log.positions
        }
        return self._out

    # -- which segments and turns there are

    def _used(self, files: list[FileSeen]) -> list[SegmentSeen]:
        tail, newest, _ = self._anchor.value
        if self._anchor.is_damaged or self._anchor.is_missing:
            tail = max((seen.header.tail for seen in files if seen.header), default=tail)
        named = {seen.header.number: seen for seen in files if seen.header}
        headers = [seen.header for seen in files if seen.header]
        missing = [
            n
            for n in range(tail, newest + 1)
            if n not in named and not any(one.newest < n < one.number for one in headers)
        ]
        for seen in files:
            if seen.header is None and missing:
                number = self._owner_of(seen.file, missing)
                if number:
                    named[number] = seen
                    missing.remove(number)
        self._out.number = max([newest, tail - 1, *named])
        used = [self._seen(named[n], n) for n in sorted(named) if n >= tail]
        in_use = {id(one.segment.file) for one in used}
        free = [seen for seen in files if id(seen.file) not in in_use]
        self._absent = missing
        if missing:
            kept = [seen for seen in free if seen.header is None]
            self._out.report.kept_files = [seen.file.name for seen in kept]
            for seen in kept:
                seen.file.close(self._disk)
                free.remove(seen)
        self._out.free = [seen.file for seen in free]
        return used

    def _owner_of(self, file: SegmentFile, missing: list[int]) -> int:
        """Return which missing segment a file without a header holds; 0 if none."""
        for number in missing:
            if holds_segment(self._disk, file, SegmentKeys(self._incarnation, number)):
                return number
        return 0

    def _seen(self, seen: FileSeen, number: int) -> SegmentSeen:
        segment = Segment(number, seen.file, SegmentKeys(self._incarnation, number))
        segment.is_encrypted = bool(seen.header.is_encrypted if seen.header else self._data_keys)
        self._out.segments[number] = segment
        return SegmentSeen(segment, seen.header, list(self._reader(segment).turns()))

    def _reader(self, segment: Segment) -> SegmentReader:
        return SegmentReader(
            self._disk,
            segment.file,
            segment.keys,
            Binding(self._incarnation, segment.number),
            self._data_keys,
            is_encrypted=segment.is_encrypted,
        )

    def _void(self, used: list[SegmentSeen]) -> None:
        limit = _NO_LIMIT
        for one in reversed(used):
            one.limit = limit
            one.turns = [turn for turn in one.turns if turn.number < limit]
            limit = min(limit, one.first_turn)

    def _check_segments(self, used: list[SegmentSeen]) -> None:
        """Report headers that are unreadable, and segments that no file holds."""
        for one in used:
            if one.header is None:
                self._damage(one.segment.number, 0, 0, "the header of the segment is unreadable")
        for number in self._absent:
            self._damage(number, 0, 0, "the segment is missing")

    # -- what counts

    def _apply_segment(self, one: SegmentSeen, durable: int) -> bool:
        """Apply the turns of a segment; return False at the first torn one."""
        if not one.turns and one.limit == _NO_LIMIT:
            return True
        reader = self._reader(one.segment)
        for turn in one.turns:
            if turn.number > self._expected:
                if not self._missing(one, reader, turn.place, turn.number, durable):
                    return False
            elif turn.number < self._expected:
                reason = "the turn is out of order"
                self._damage(one.segment.number, turn.place, turn.number, reason)
                continue
            read = reader.read(turn)
            if not read.is_whole:
                if turn.number > durable:
                    return False
                reason = "some records of the turn are unreadable"
                self._damage(one.segment.number, turn.place, turn.number, reason)
            self._expected = turn.number + 1
            self._parts.append((one.segment, turn, read))
            if turn.number <= durable or not turn.continues:
                self._accept(durable)
        if self._expected < one.limit < _NO_LIMIT:
            return self._missing(one, reader, len(reader.data), one.limit, durable)
        return True

    def _accept(self, durable: int) -> None:
        """Apply a turn and those that continue in it."""
        for segment, turn, read in self._parts:
            self._apply(segment, read)
            self._out.has_unmarked |= turn.number > durable and turn.records > 0
            segment.turns.append(turn.place)
            segment.end = turn.end
        self._parts.clear()

    def _missing(
        self, one: SegmentSeen, reader: SegmentReader, stop: int, number: int, durable: int
    ) -> bool:
        """Handle the turns from the expected one up to `number`, whose heads are unreadable;
        return False if they are torn."""
        if self._expected > durable:
            return False
        reason = "the head of the turn is unreadable"
        self._damage(one.segment.number, one.segment.end, self._expected, reason)
        self._apply(one.segment, reader.salvage(one.segment.end, stop))
        one.segment.turns.append(one.segment.end)
        one.segment.end = max(one.segment.end, min(stop, len(reader.data)))
        self._expected = min(number, durable + 1)
        return self._expected == number

    def _damage(self, segment: int, place: int, turn: int, reason: str) -> None:
        self._out.report.damage.append(JournalDamage(segment, place, turn, reason))

    def _apply(self, segment: Segment, read: TurnRead) -> None:
        base = segment.number << PLACE_BITS
        groups = self._out.groups
        segment.records += len(read.records)
        for place, kind, group, index, _, start, length in read.records:
            if kind == KIND_FORGET:
                groups.pop(group, None)
                continue
            log = groups.get(group)
            if log is None:
                log = groups[group] = GroupLog()
            if kind >= KIND_ENTRY:
                log.replay(index, base | place)
            elif kind == KIND_STATE:
                log.state = bytes(read.plain[start : start + length])
                log.state_at = base | place
            elif kind == KIND_CUT:
                log.cut(index)
            elif kind == KIND_FLOOR:
                log.drop(index)
            if log.newest != segment.number:
                log.newest = segment.number
                segment.groups.add(group)


def _first_turn(used: list[SegmentSeen], anchor: AnchorValue) -> int:
    """Return the number of the first turn that the segments should have."""
    otherwise = anchor.turn + 1
    first = min((one.first_turn for one in used), default=otherwise)
    if used and used[0].segment.number > anchor.tail:
        # Segments before the first are missing: unless their turns were durable, they are torn.
        first = min(first, otherwise)
    if used and used[0].header is None and used[0].turns and used[0].turns[0].place > PAGE_BYTES:
        return first - 1  # neither the header nor the first head is readable
    return otherwise if first == _NO_LIMIT else first


def scan_journal(
    disk: Disk,
    incarnation: int,
    anchor: JournalAnchor,
    data_keys: Mapping[int, DataKey],
) -> RecoveredJournal:
    """Return what a journal holds. Writes nothing."""
    scan = JournalScan(disk, incarnation, anchor, data_keys)
    return scan.run(files_seen(disk))
