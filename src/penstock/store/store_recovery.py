"""Opening a store: builds the log from the files of a directory, and reports what was found.

Blocks are loaded in order. A block with a valid footer is loaded from its index without reading
the records; any other block is scanned. Every valid record is used. Invalid bytes are damage if
they were durable once, according to the marks in the log; otherwise a power cut interrupted the
write. Only bytes after the last valid record of the newest block are cut off, and saved in a
separate file. Nothing else is changed. `FileStore` and the store tools call it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.store.block_file import (
    REWRITTEN,
    TORN_SUFFIX,
    BlockFile,
    Form,
    block_name,
    find_header,
    is_litter,
    number_of,
    read_footer,
    read_image,
    read_trailer,
    salvaged_header,
)
from penstock.store.format.block_frames import Binding
from penstock.store.format.range_kinds import FLOOR, MARK, REMOVE, RESERVE, SKIP
from penstock.store.index.block_images import (
    begin_block,
    block_facts,
    drop_image,
    end_block,
    last_block,
    reach_to,
    replay,
    set_damaged,
    survey,
)
from penstock.store.index.block_index import BadIndex, load_index
from penstock.store.index.losses import Losses
from penstock.store.index.seq_set import SequenceSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.store.block_file import Image
    from penstock.store.contract import Range
    from penstock.store.format.block_header import BlockHeader
    from penstock.store.format.encryption import DataKey
    from penstock.store.format.end_marker import End
    from penstock.store.index.block_images import Replayed
    from penstock.store.index.message_log import MessageLog
    from penstock.store.io.disk import Disk

MARK_BYTES: Final = 56


@dataclass(slots=True)
class Recovery:
    """The findings of opening a store."""

    records: int = 0
    torn_bytes: int = 0
    """Bytes cut off at the end of the newest block and saved in a file next to it."""
    damaged: tuple[Range, ...] = ()
    """Sequences that were durable and cannot be read."""
    torn: tuple[Range, ...] = ()
    """Sequences missing before others of the last batch, whose sync is not known to have
    returned: a power cut lost them before the store reported them as durable."""
    unsynced: Range | None = None
    """Sequences that a lazy store may have shown but had not synced: they stay unused."""
    unreadable: tuple[str, ...] = ()
    """Block files without any usable record; they are left unchanged."""
    repaired: tuple[str, ...] = ()
    """Block files that were read although the header is damaged or does not match the name."""
    faulty: tuple[str, ...] = ()
    """Block files with invalid bytes before the last valid record. Those bytes may have recorded
    a removal, in which case the removed message is live again."""
    unlinked: tuple[str, ...] = ()
    """Block files that do not follow the block before them: a block is missing or stale."""
    blocks: int = 0
    scanned: int = 0
    """Blocks without a valid footer."""
    clean: bool = False
    """Whether the last user of the store closed it."""
    cut_short: bool = False
    """Whether the log once continued after its last block: that part, with its records, is
    missing."""


@dataclass(slots=True)
class SyncMark:
    """Everything before this place of this block is durable, and so are sequences up to `seq`."""

    block: int = 0
    place: int = 0
    seq: int = 0

    def covers(self, block: int, place: int) -> bool:
        return (block, place) < (self.block, self.place)


@dataclass(slots=True)
class Opening:
    """Builds a log from a directory. `run` does the work; the other fields hold the results."""

    disk: Disk
    log: MessageLog
    incarnation: int
    keys: Mapping[int, DataKey]
    warm_bytes_max: int
    end: End
    recovery: Recovery = field(default_factory=Recovery)
    files: dict[int, BlockFile] = field(default_factory=dict)
    deadlines: list[tuple[int, int]] = field(default_factory=list)
    doomed: list[int] = field(default_factory=list)
    litter: list[str] = field(default_factory=list)
    newest: Image | None = None
    reserved: int = 0
    mark: SyncMark = field(default_factory=SyncMark)
    lost: SequenceSet = field(default_factory=SequenceSet)
    torn: SequenceSet = field(default_factory=SequenceSet)
    losses: Losses = field(default_factory=Losses)
    _inside: SyncMark = field(default_factory=SyncMark)
    _warm_bytes: int = 0

    def run(self) -> None:
        self._find_files()
        order = sorted(self.files)
        self._find_mark(order)
        for number in order:
            self._take(self.files[number], last=number == order[-1])
        self._check_end()
        self._make_durable(order)
        self._keep_reserved()
        self.doomed = [number for number in order if block_facts(self.log, number) is None]
        self.recovery.blocks = len(order) - len(self.doomed)
        self.recovery.damaged = tuple(self.lost.ranges())
        self.recovery.torn = tuple(self.torn.ranges())
        self._suspect_losses()
        live = [due for due in self.deadlines if self.log.size_at(due[0])]
        self.deadlines = live  # a later block may have removed some

    # -- files

    def _find_files(self) -> None:
        unreadable: list[str] = []
        strays: list[BlockFile] = []
        for name in self.disk.files():
            if is_litter(name):
                self.litter.append(name)
            number = number_of(name)
            if number is None:
                continue
            self.log.next_number = max(self.log.next_number, number + 1)
            found = self._look_at(name, number)
            if found is None:
                unreadable.append(name)
            elif found.number == number:
                self.files[number] = found
            else:
                strays.append(found)
        for stray in strays:  # swapped or misnamed: the record keys verify the header's claim
            if stray.number in self.files:
                unreadable.append(stray.name)
            else:
                self.files[stray.number] = stray
        self.recovery.unreadable = tuple(unreadable)
        damaged = (
            f for f in self.files.values() if f.header_damaged or block_name(f.number) != f.name
        )
        self.recovery.repaired = tuple(sorted(f.name for f in damaged))

    def _look_at(self, name: str, number: int) -> BlockFile | None:
        file = self.disk.open(name, writable=False)
        try:
            size = self.disk.size(file)
            header = find_header(self.disk, file, size)
            if header is not None:
                if header.incarnation != self.incarnation:
                    return None
                found = BlockFile(name, header.number, header, size)
            else:
                binding = Binding(self.incarnation, number)
                trailer = read_trailer(self.disk, file, size, binding)
                raw = b"" if trailer is not None else self.disk.pread(file, size, 0)
                header = salvaged_header(raw, trailer, binding)
                if header is None:
                    return None
                found = BlockFile(name, number, header, size, header_damaged=True)
            found.ending = read_trailer(self.disk, file, size, self._binding(found))
            return found
        finally:
            self.disk.close_file(file)

    def _read_index(self, found: BlockFile) -> None:
        """Read the index of a block when the block is loaded: all indexes of a large store at
        once take more memory than the log built from them."""
        if found.ending is None or found.trailer is not None:
            return
        file = self.disk.open(found.name, writable=False)
        try:
            read_footer(self.disk, file, found, self._binding(found), self.keys)
        finally:
            self.disk.close_file(file)

    def _binding(self, found: BlockFile) -> Binding:
        return Binding(self.incarnation, found.number)

    def _find_mark(self, order: list[int]) -> None:
        self._find_mark_inside(order)
        self._inside = self.mark
        if self.mark.covers(self.end.block, self.end.place):
            return
        self.mark = SyncMark(*self.end)
        self.log.next_number = max(self.log.next_number, self.end.block + 1)

    def _find_mark_inside(self, order: list[int]) -> None:
        """Find the last mark written; it is in the newest block unless that has none yet."""
        for number in reversed(order):
            found = self.files[number]
            self._read_index(found)
            if found.trailer is not None:
                self.mark = SyncMark(found.trailer.mark_block, found.trailer.mark_place)
            else:
                image = self._image(found)
                seen = survey(image.data, found.header.length, *self._binding(found))
                if seen.mark is None:
                    continue
                self.mark = SyncMark(*seen.mark)
            return

    def _image(self, found: BlockFile) -> Image:
        return read_image(self.disk, found.name, found.header, self._binding(found), self.keys)

    # -- blocks

    def _take(self, found: BlockFile, *, last: bool) -> None:
        header = self._checked_header(found)
        expected = self.log.last_seq + 1
        if header.first_seq < expected:  # the log was truncated there and continued
            self.deadlines = [due for due in self.deadlines if due[0] < header.first_seq]
            for missing in (self.lost, self.torn):
                missing.remove_range(header.first_seq, expected)
            self.losses.cut(header.first_seq - 1)
        elif header.first_seq > expected:
            self._miss(found.number, 0, expected, header.first_seq - 1)
        begin_block(self.log, header.first_seq)
        self._check_link(found, header)
        self._read_index(found)
        if found.trailer is None or not self._load(found):
            self._scan(found, header, last=last)
        found.index = b""

    def _checked_header(self, found: BlockFile) -> BlockHeader:
        """Return the header; estimate the first sequence if a reconstructed header lacks it."""
        header = found.header
        if header.first_seq == 0:
            seen = survey(self._image(found).data, header.length, *self._binding(found))
            header = header._replace(first_seq=seen.first_seq or self.log.last_seq + 1)
            found.header = header
        return header

    def _check_link(self, found: BlockFile, header: BlockHeader) -> None:
        before = last_block(self.log)
        if before is None or header.previous == 0 or before.damaged:
            return
        rewritten = self.files[before.number].header.flags & REWRITTEN
        if before.lineage != header.previous and (before.footed or not rewritten):
            self.recovery.unlinked += (found.name,)
            self.losses.suspect(self.log.last_seq)

    def _load(self, found: BlockFile) -> bool:
        trailer = found.trailer
        assert trailer is not None
        try:
            loaded = load_index(
                self.log,
                found.index,
                number=found.number,
                first_seq=found.header.first_seq,
                last_seq=trailer.last_seq,
                head=trailer.head,
                used=trailer.used,
            )
        except BadIndex:
            return False
        end_block(self.log, loaded.events, trailer)
        self.deadlines += loaded.deadlines
        self._note_events(loaded.events)
        self.recovery.records += trailer.records
        return True

    def _scan(self, found: BlockFile, header: BlockHeader, *, last: bool) -> None:
        image = self._image(found)
        self.recovery.scanned += 1
        end = survey(image.data, header.length, *self._binding(found)).end
        stays_open = last and found.trailer is None and self._can_go_on(found, image, end)
        replayed = replay(self.log, image.data, header, end=end, last=stays_open)
        for place, first, behind in replayed.holes:
            self._miss(found.number, place, first, behind)
        self._note_events(replayed.events)
        self.deadlines += replayed.deadlines
        self.recovery.records += replayed.records
        if found.ending is not None and found.ending.last_seq > self.log.last_seq:
            self.lost.insert_range(self.log.last_seq + 1, found.ending.last_seq)
            reach_to(self.log, found.ending.last_seq)
        if image.damaged or found.header_damaged:
            set_damaged(self.log, found.number)
        facts = block_facts(self.log, found.number)
        if facts is not None and facts.damaged:
            self.recovery.faulty += (found.name,)
            self.losses.suspect(self.log.last_seq)
        if last:
            self._end(found, image, replayed)
        else:
            self._keep_warm(found.number, end)

    def _can_go_on(self, found: BlockFile, image: Image, end: int) -> bool:
        """Return whether appends may continue in this block."""
        if found.header_damaged or found.header.form == Form.SEALED or image.damaged:
            return False
        if found.header.form == Form.FRAMES:
            return self.log.form == Form.FRAMES and end == len(image.data) and not image.torn_bytes
        return self.log.form == Form.PLAIN

    def _end(self, found: BlockFile, image: Image, replayed: Replayed) -> None:
        events = replayed.events
        mark = self._inside
        closed = bool(events) and events[-1][0] == MARK and mark.block == found.number
        # `close` writes a mark for its own place.
        self.recovery.clean = closed and replayed.used - mark.place == MARK_BYTES
        mark = self.mark
        if mark.covers(found.number, replayed.used) and mark.seq > self.log.last_seq:
            self.lost.insert_range(self.log.last_seq + 1, mark.seq)
            reach_to(self.log, mark.seq)
        elif found.header.form == Form.PLAIN and replayed.torn:
            self._cut(found, replayed.used)
        elif image.torn_bytes:
            self._cut(found, image.position)
        self.newest = image

    def _check_end(self) -> None:
        """Check whether the log ends before a place where it was durable."""
        last = last_block(self.log)
        number, used = (0, 0) if last is None else (last.number, last.used)
        if (number, used) >= (self.end.block, self.end.place):
            return
        if last is not None and number == self.end.block and self._is_rewritten(number):
            return  # a rewrite changed the places in it
        self.recovery.cut_short = True
        if self.end.seq > self.log.last_seq:
            self.lost.insert_range(self.log.last_seq + 1, self.end.seq)
            reach_to(self.log, self.end.seq)

    def _is_rewritten(self, number: int) -> bool:
        found = self.files.get(number)
        return found is not None and bool(found.header.flags & REWRITTEN)

    def _cut(self, found: BlockFile, size: int) -> None:
        """Cut off the end of the newest block, whose write a crash interrupted, and save it."""
        file = self.disk.open(found.name)
        aside = self.disk.open(f"{found.number}{TORN_SUFFIX}", create=True)
        try:
            tail = self.disk.pread(file, found.size - size, size)
            self.disk.truncate(aside, 0)
            self.disk.pwrite(aside, tail, 0)
            self.disk.fdatasync(aside)
            self.disk.truncate(file, size)
            self.disk.fdatasync(file)
        finally:
            self.disk.close_file(aside)
            self.disk.close_file(file)
        self.recovery.torn_bytes += len(tail.rstrip(b"\0"))

    def _keep_warm(self, number: int, image_bytes: int) -> None:
        """Keep the image of a block without a footer, so that it gets one, if memory allows."""
        self._warm_bytes += image_bytes
        if self._warm_bytes > self.warm_bytes_max:
            drop_image(self.log, number)

    def _make_durable(self, order: list[int]) -> None:
        """Sync blocks that a killed process wrote: readable data may not be durable yet."""
        for number in order:
            if number >= self.mark.block:
                file = self.disk.open(self.files[number].name)
                try:
                    self.disk.fdatasync(file)
                finally:
                    self.disk.close_file(file)
        if order:
            self.disk.sync_dir()

    # -- missing sequences

    def _miss(self, number: int, place: int, first: int, last: int) -> None:
        missing = self.lost if self.mark.covers(number, place) else self.torn
        missing.insert_range(first, last)

    def _note_events(self, events: Iterable[tuple[int, int, int, int]]) -> None:
        for kind, first, last, _ in events:
            self.losses.note(kind, first, last)
            if kind == RESERVE:
                self.reserved = last
            elif kind == FLOOR:
                self._explained(0, first - 1)
            elif kind in (SKIP, REMOVE) and first <= last:
                self._explained(first, last)

    def _explained(self, first: int, last: int) -> None:
        for missing in (self.lost, self.torn):
            missing.remove_range(first, last)

    def _suspect_losses(self) -> None:
        """Suspect losses where records cannot be read: they may have recorded a loss."""
        for missing in (self.lost, self.torn):
            for _, last in missing.ranges():
                self.losses.suspect(last)
        if self.recovery.unreadable or self.recovery.cut_short:
            self.losses.suspect(self.log.last_seq)

    def _keep_reserved(self) -> None:
        """Skip the reserved sequences: a lazy store may have shown them, so none is reused."""
        last = self.log.last_seq
        if self.reserved > last:
            self.recovery.unsynced = (last + 1, self.reserved)
            self.losses.miss()
            self.log.skip(self.reserved, self.log.last_ts_ns)
