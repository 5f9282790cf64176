"""The write-ahead log of a server: entries of many groups, one write and one sync per turn.

A group has entries with consecutive indexes and one small state; the journal does not look into
either. The owner's duties, in order: `append`, `put_state` and so on during a turn; at its end
`pending_sync`, run the work on any thread, `synced`. Then everything up to `durable_turn` survives
a power cut, in every group, and a turn survives wholly or not at all. From time to time
`pending_upkeep`, run, `kept_up`; and for each group that `holding_back` names: write its data
elsewhere, sync that, and only then call `checkpointed`.

Times are arguments, file calls are in the works, one thread owns the object. If a work fails with
`DiskFull` it may run again; after any other failure the owner calls `failed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from penstock.records.journal_codec import (
    HEAD_BYTES,
    KIND_CUT,
    KIND_ENTRY,
    KIND_FLOOR,
    KIND_FORGET,
    KIND_STATE,
    PAGE_BYTES,
    SegmentKeys,
    TurnBuffer,
    record_bytes,
)
from penstock.store.format.block_frames import Binding, FrameWriter
from penstock.store.journal.entry_reader import EntryReader
from penstock.store.journal.group_log import PLACE_BITS, GroupLog
from penstock.store.journal.journal_anchor import AnchorValue
from penstock.store.journal.journal_types import (
    CARRY_MAX,
    HOLDERS_MAX,
    MARK_AFTER_NS,
    RECORDS_MAX,
    SEGMENT_BYTES,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    SEGMENTS_MAX,
    STATE_BYTES_MAX,
    TURN_BYTES_MAX,
    JournalEntry,
    JournalFailed,
    JournalFull,
    JournalRecovery,
)
from penstock.store.journal.journal_work import ClosedTurn, JournalSync
from penstock.store.journal.opened_journal import OpenedJournal, open_journal
from penstock.store.journal.segment_files import (
    ENCRYPTED,
    Segment,
    SegmentHeader,
    segment_header,
)
from penstock.store.journal.segment_pool import SegmentPool
from penstock.store.journal.turn_frames import plain_bytes_max, stored_bytes, whole_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.store.format.encryption import ServerKey
    from penstock.store.io.disk import Disk
    from penstock.store.journal.journal_types import ReplayedEntry
    from penstock.store.journal.journal_work import JournalUpkeep
    from penstock.store.journal.segment_files import SegmentFile

_SALT_BYTES: Final = 8


class Journal:
    """An open journal. `recovery` tells what opening it found."""

    def __init__(self, opened: OpenedJournal, segment_bytes: int, segments_max: int) -> None:
        """Called by `open`."""
        self.recovery: JournalRecovery = opened.recovered.report
        self.durable_turn = self.recovery.turn
        """Turns up to this one are durable."""
        self.turn = self.durable_turn + 1
        """The number of the turn that takes the next record."""
        self._disk = opened.disk
        self._incarnation = opened.incarnation
        self._noise = opened.noise
        self._key = opened.key
        self._anchor = opened.anchor
        self._groups = opened.recovered.groups
        self._pool = SegmentPool(
            opened.disk, opened.anchor, self._groups, segment_bytes, segments_max
        )
        self._pool.number = opened.recovered.number
        self._pool.adopt(opened.recovered.segments, opened.recovered.free, opened.now_ns)
        self._reader = EntryReader(
            opened.disk, opened.incarnation, self._pool.segments, opened.data_keys
        )
        self._now_ns = opened.now_ns
        self._buffer: TurnBuffer | None = None
        self._closed: list[ClosedTurn] = []
        self._unsynced: dict[int, SegmentFile] = {}
        self._floors: dict[int, int] = {}
        self._out: JournalSync | None = None
        self._is_failed = False
        self._base = 0
        self._number = 0
        is_unmarked = opened.recovered.has_unmarked
        self._mark_due_ns = opened.now_ns + MARK_AFTER_NS if is_unmarked else 0
        self._is_marking = False

    @classmethod
    def open(
        cls,
        disk: Disk,
        *,
        incarnation: int,
        now_ns: int,
        noise: Callable[[int], bytes],
        key: ServerKey | None = None,
        former: tuple[ServerKey, ...] = (),
        salt: bytes | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        segments_max: int = SEGMENTS_MAX,
    ) -> Self:
        """Open the journal of a directory, or create one. Reads all segments and syncs what was
        found. `incarnation`: a random number that the server keeps; `noise` returns random bytes.
        Raises StoreError and changes nothing if the journal is of another incarnation or key."""
        if segment_bytes % PAGE_BYTES or not segment_bytes >= SEGMENT_BYTES_MIN:
            raise ValueError(f"a segment has whole pages, at least {SEGMENT_BYTES_MIN} bytes")
        if segment_bytes > SEGMENT_BYTES_MAX or segments_max < 2:
            raise ValueError(f"at most {SEGMENT_BYTES_MAX} bytes, at least two segments")
        opened = open_journal(disk, incarnation, now_ns, noise, key, former, salt)
        return cls(opened, segment_bytes, segments_max)

    # -- what is in it

    def groups(self) -> list[int]:
        """Return the groups that have entries or a state."""
        return list(self._groups)

    def span(self, group: int) -> tuple[int, int]:
        """Return the first index that is held and the next that may be appended; for a group that
        is unknown (0, 0)."""
        log = self._groups.get(group)
        return (log.first, log.next) if log is not None else (0, 0)

    def state(self, group: int) -> bytes | None:
        """Return the latest state of a group."""
        log = self._groups.get(group)
        return log.state if log is not None else None

    def entries(self, group: int, lo: int, hi: int, bytes_max: int) -> list[JournalEntry]:
        """Return the entries from `lo` to `hi - 1`, as many as `bytes_max` allows but at least
        one. Raises MissingEntries at an unreadable one."""
        log = self._groups.get(group)
        if log is None:
            return []
        return self._reader.entries(group, log, lo, hi, bytes_max, self._images())

    def replay(self) -> Iterator[ReplayedEntry]:
        """Yield all entries in the order of the journal, after `open` and before any change."""
        return self._reader.replay(self._groups)

    def _images(self) -> list[tuple[int, int, memoryview]]:
        """Return segment, place and bytes of the turns that no file has for certain."""
        turns = [*(self._out.turns if self._out else ()), *self._closed]
        images = [(turn.segment.number, turn.place, turn.plain) for turn in turns]
        if self._buffer is not None:
            view = memoryview(self._buffer.data)[: self._buffer.used]
            images.append((self._number, self._buffer.place, view))
        return images

    # -- records of a turn

    def append(
        self, group: int, entries: Iterable[JournalEntry], state: bytes | None = None
    ) -> None:
        """Append entries and, if given, a state. If it raises JournalFull, some may be in."""
        for entry in entries:
            self.append_entry(group, entry.index, entry.data, kind=entry.kind, term=entry.term)
        if state is not None:
            self.put_state(group, state)

    def append_entry(
        self, group: int, index: int, data: bytes, *, kind: int = KIND_ENTRY, term: int = 0
    ) -> None:
        """Append one entry; its index is one above the last. Raises JournalFull, or ValueError for
        an entry that no turn can hold, and changes nothing then."""
        log = self._groups.get(group)
        if (log is not None and log.next not in (0, index)) or kind < KIND_ENTRY or index < 1:
            raise ValueError(f"entry {index} of kind {kind} does not follow in group {group:x}")
        place = self._put(kind, group, index, term, data)
        if log is None:
            log = self._groups[group] = GroupLog()
        log.positions.append(self._base | place)
        log.next = index + 1
        if log.newest != self._number:
            self._note_group(group, log)

    def put_state(self, group: int, state: bytes) -> None:
        """Replace the state of a group."""
        if len(state) > STATE_BYTES_MAX:
            raise ValueError(f"a state has at most {STATE_BYTES_MAX} bytes")
        self._put_state(group, state, is_own=False)

    def _put_state(self, group: int, state: bytes, *, is_own: bool) -> None:
        place = self._put(KIND_STATE, group, 0, 0, state, is_own=is_own)
        log = self._groups.setdefault(group, GroupLog())
        log.state, log.state_at = state, self._base | place
        self._note_group(group, log)

    def cut(self, group: int, index: int) -> None:
        """Remove the entries of a group from an index on; the next one has that index."""
        log = self._groups.get(group)
        if log is None or not log.first <= index <= log.next:
            raise ValueError(f"group {group:x} cannot be cut at {index}")
        self._put(KIND_CUT, group, index, 0, b"", is_own=True)
        log.cut(index)

    def checkpointed(self, group: int, index: int) -> None:
        """Record that entries up to an index are durable elsewhere, and no longer needed here."""
        log = self._groups.get(group)
        if log is not None and (log.next == 0 or index >= log.first):
            log.drop(index)
            self._floors[group] = index

    def forget(self, group: int) -> None:
        """Remove a group: its entries and its state."""
        if group in self._groups:
            self._put(KIND_FORGET, group, 0, 0, b"", is_own=True)
            del self._groups[group]
            self._floors.pop(group, None)

    def erase(self, group: int, now_ns: int) -> None:
        """Begin to remove all bytes of a group that are no longer needed. They have left the files
        once `is_erased`; ERASE_NS from now on, `holding_back` names the groups in the way."""
        self._pool.erase(group, now_ns)

    @property
    def is_erased(self) -> bool:
        return self._pool.is_erased

    def _note_group(self, group: int, log: GroupLog) -> None:
        log.newest = self._number
        active = self._pool.active
        assert active is not None
        active.groups.add(group)
        if active.file.held is not None:
            active.file.held.add(group)

    def _put(
        self, kind: int, group: int, index: int, term: int, data: bytes, *, is_own: bool = False
    ) -> int:
        """Append a record; return its place in the segment `_number`."""
        if self._is_failed:
            raise JournalFailed(self._disk.path)
        if self._buffer is not None:
            place = self._buffer.put(kind, group, index, term, data)
            if place >= 0:
                return place
        self._begin_turn(record_bytes(len(data)), is_own=is_own)
        assert self._buffer is not None
        return self._buffer.put(kind, group, index, term, data)

    # -- turns and segments

    def _begin_turn(self, n: int, *, is_own: bool) -> None:
        """Begin a turn that has room for a record of `n` bytes, in a new segment if need be."""
        largest = min(TURN_BYTES_MAX, self._room(PAGE_BYTES))
        if n + HEAD_BYTES > largest:
            raise ValueError(f"a record of {n} bytes is too large for a turn of {largest}")
        active = self._pool.active
        if active is not None and (
            self._room(self._end(active)) < n + HEAD_BYTES or active.records >= RECORDS_MAX
        ):
            active = None
        if active is None and not is_own and not self._pool.may_begin:
            raise JournalFull(self._disk.path, len(self._pool.segments))
        self._close_turn(continues=True)
        if active is None:
            active = self._begin_segment()
        capacity = min(TURN_BYTES_MAX, self._room(active.end))
        self._buffer = TurnBuffer(active.keys, active.end, capacity)
        self._number = active.number
        self._base = active.number << PLACE_BITS

    def _end(self, active: Segment) -> int:
        """Return where the next turn begins in the active segment, if the current one is closed."""
        buffer = self._buffer
        if buffer is None:
            return active.end
        stored = stored_bytes(buffer.used) if active.is_encrypted else buffer.used
        return buffer.place + whole_pages(stored)

    def _room(self, place: int) -> int:
        """Return the bytes that a turn at a place of a segment may have."""
        room = self._pool.segment_bytes - place
        return plain_bytes_max(room) if self._key is not None else room

    def _begin_segment(self) -> Segment:
        number = self._pool.number + 1
        segment = Segment(number, self._pool.take_file(), SegmentKeys(self._incarnation, number))
        segment.is_encrypted = self._key is not None
        if self._key is not None:
            salt = int.from_bytes(self._noise(_SALT_BYTES), "little")
            segment.writer = FrameWriter(Binding(self._incarnation, number), salt, key=self._key)
        header = SegmentHeader(
            self._incarnation,
            number,
            self.turn,
            self._anchor.value.tail,
            self._anchor.value.newest,
            self._now_ns,
            self._pool.segment_bytes,
            ENCRYPTED if segment.is_encrypted else 0,
        )
        segment.header = segment_header(header, segment.file.number)
        self._pool.begin(segment)
        return segment

    def _close_turn(self, *, continues: bool = False) -> None:
        """Close the current turn. `continues`: the next one is part of it, because it did not fit;
        after a power cut both are there, or none."""
        buffer, segment = self._buffer, self._pool.active
        if buffer is None or segment is None:
            return
        stored = stored_bytes(buffer.used) if segment.is_encrypted else 0
        plain = buffer.close(self.turn, self.durable_turn, stored, continues)
        self._closed.append(
            ClosedTurn(segment, buffer.place, self.turn, plain, buffer.used, segment.header)
        )
        segment.header = b""
        segment.turns.append(buffer.place)
        segment.end = buffer.place + whole_pages(stored or buffer.used)
        segment.records += buffer.records
        self._unsynced[segment.number] = segment.file
        self._buffer = None
        self.turn += 1

    # -- syncs

    def pending_sync(self, now_ns: int, *, write_only: bool = False) -> JournalSync | None:
        """Return the work that makes the turn durable; None if there is nothing to do, or a work
        is out. With `write_only` it is written and not synced."""
        self._now_ns = now_ns
        if self._out is not None or self._is_failed:
            return None
        is_room_wanted = self._pool.wants_room(now_ns)
        if is_room_wanted:
            self._carry_states()
        is_marking = self._fill_turn(now_ns, is_room_wanted=is_room_wanted)
        self._close_turn()
        self._pool.retire(now_ns)
        tail = self._pool.tail_now()
        if not self._closed and (write_only or not self._unsynced):
            if not self._unsynced and not self._floors:
                self._pool.tail_durable(tail)
            return None
        begun = not write_only and max(self._unsynced) > self._anchor.value.newest
        if begun and self._pool.upkeep is not None and self._pool.upkeep.anchored is not None:
            return None  # the upkeep uses the anchor
        work = JournalSync(
            self._disk,
            self._anchor,
            self._closed,
            [] if write_only else list(self._unsynced.values()),
            self.turn - 1,
            self._pool.segment_bytes,
            tail,
            write_only=write_only,
        )
        if begun:
            newest = max(self._unsynced)
            work.anchored = AnchorValue(self._anchor.value.tail, newest, work.last_turn)
        self._is_marking = is_marking
        self._closed = []
        if not write_only:
            self._unsynced = {}
        self._out = work
        return work

    def _fill_turn(self, now_ns: int, *, is_room_wanted: bool) -> bool:
        """Add floors to the turn, and begin one for a mark that is due; return whether the turn
        consists of nothing else."""
        is_due = self._mark_due_ns and now_ns >= self._mark_due_ns
        is_empty = self._buffer is None and not self._closed
        if is_empty and not is_due and not (is_room_wanted and self._floors):
            return False
        floors, self._floors = self._floors, {}
        for group, index in floors.items():
            self._put(KIND_FLOOR, group, index, 0, b"", is_own=True)
        if self._buffer is None and not self._closed and is_due:
            self._begin_turn(0, is_own=True)
        return is_empty

    def _carry_states(self) -> None:
        """Write the states in the oldest segment again, so that it can be freed."""
        oldest = self._pool.oldest()
        if oldest is None or oldest is self._pool.active:
            return
        states = [
            (group, log.state)
            for group in oldest.groups
            if (log := self._groups.get(group)) and log.state_segment == oldest.number
        ]
        for group, state in states[:CARRY_MAX]:
            assert state is not None
            self._put_state(group, state, is_own=True)

    def synced(self, work: JournalSync) -> None:
        """Record that a sync work succeeded."""
        assert work is self._out
        self._out = None
        if work.write_only:
            return
        self.durable_turn = work.last_turn
        self._pool.tail_durable(work.tail)
        self._mark_due_ns = 0 if self._is_marking else self._now_ns + MARK_AFTER_NS

    def failed(self) -> None:
        """Record that a work failed: the journal accepts nothing more until it is opened again."""
        self._is_failed = True

    def next_deadline_ns(self) -> int:
        """Return when `pending_sync` has work without a new record; 0: never."""
        due = [at for at in (self._mark_due_ns, self._pool.erase_due_ns) if at]
        return min(due, default=0)

    # -- checkpoints and upkeep

    def holding_back(self, now_ns: int, at_most: int = HOLDERS_MAX) -> list[int]:
        """Return groups whose entries keep the oldest segment, if it should be freed."""
        oldest = self._pool.oldest()
        if oldest is None or not self._pool.wants_room(now_ns):
            return []
        found = []
        for group in oldest.groups:
            log = self._groups.get(group)
            if log is not None and log.oldest_segment == oldest.number:
                found.append(group)
                if len(found) == at_most:
                    break
        return found

    def pending_upkeep(self) -> JournalUpkeep | None:
        """Return a slice of file work: free segments, remove files, prepare the next one."""
        if self._is_failed:
            return None
        is_free = self._out is None or self._out.anchored is None
        return self._pool.pending_upkeep(self.durable_turn, anchor_is_free=is_free)

    def kept_up(self, work: JournalUpkeep) -> None:
        """Record that an upkeep work succeeded."""
        self._pool.kept_up(work)

    @property
    def segments_used(self) -> int:
        return len(self._pool.segments)

    def close(self, now_ns: int) -> None:
        """Sync, record the end in the anchor, and close the files. Blocks."""
        work = self.pending_sync(now_ns)
        if work is not None:
            work.run()
            self.synced(work)
        if not self._is_failed and self._out is None and self.durable_turn:
            self._anchor.note(self._anchor.value._replace(turn=self.durable_turn))
        self._pool.close()
        self._anchor.close()
