"""A store in files: a directory of blocks, appended to, synced in groups, recovered by replay.

Appends go to the newest block's image; `pending_sync` takes what the files lack, and running it
writes and syncs that, wherever the edge wants it run. Only when `synced` is called is anything
durable. A block's file is its image, byte for byte, so recovery replays blocks in order and needs
nothing else. Only the torn tail of the newest block is cut; all other damage is kept, reported
and read around.

Invariants: a file is removed only after the record that says so is durable; a sync that failed is
final for the store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.store.contract import Limits, Range
from penstock.store.errors import StoreError
from penstock.store.images import (
    Unwritten,
    drop_image,
    has_unwritten,
    image_part,
    put_image,
    read_block_header,
    replay,
    take_unwritten,
    warm_blocks,
)
from penstock.store.indexed import IndexedStore
from penstock.store.log import MessageLog
from penstock.store.seqset import SequenceSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.store.contract import Cold, Work
    from penstock.store.disk import Disk, File
    from penstock.store.images import BlockHeader, Replayed

BLOCK_BYTES: Final = 8 * 1024 * 1024
WARM_BYTES_MAX: Final = 64 * 1024 * 1024
"""Images of sealed blocks kept in memory; the oldest go first."""
BLOCK_SUFFIX: Final = ".blk"
TORN_SUFFIX: Final = ".torn"
SKIP, REMOVE, FLOOR = 2, 3, 4


@dataclass(slots=True)
class Recovery:
    """What opening a store found."""

    records: int = 0
    torn_bytes: int = 0
    damaged: tuple[Range, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Block files whose header does not hold; they are left alone."""


@dataclass(slots=True)
class SyncWork:
    """Writes, syncs and removals of one group commit. `run` may be called on any thread."""

    disk: Disk
    files: dict[int, File]
    pieces: list[Unwritten]
    erasures: list[Unwritten]
    doomed: list[int]
    seq: int

    def run(self) -> None:
        created = self._write(self.pieces)
        if created:
            self.disk.sync_dir()
        # An overwriting that is cut short may leave nothing to be read: that the message is gone
        # must be known before.
        self._write(self.erasures)
        self._remove_dead()

    def _write(self, pieces: list[Unwritten]) -> bool:
        """Writes and syncs; answers whether a file was made."""
        touched: dict[int, File] = {}
        created = False
        for piece in pieces:
            file = self.files.get(piece.number)
            if file is None:
                file = self.files[piece.number] = self.disk.open(
                    block_name(piece.number), create=True
                )
                created = True
            self.disk.pwrite(file, piece.data, piece.offset)
            touched[piece.number] = file
        for file in touched.values():
            self.disk.fdatasync(file)
        return created

    def _remove_dead(self) -> None:
        """Only now is it durable that nothing in these blocks is wanted.

        Their going is made durable too: one that came back would bring erased messages along.
        """
        gone = [number for number in self.doomed if number in self.files]  # others: never written
        for number in gone:
            self.disk.close_file(self.files.pop(number))
            self.disk.unlink(block_name(number))
        if gone:
            self.disk.sync_dir()


@dataclass(slots=True)
class FetchWork:
    """Reads a cold block."""

    disk: Disk
    number: int
    data: bytes = field(default=b"", repr=False)

    def run(self) -> None:
        file = self.disk.open(block_name(self.number), writable=False)
        try:
            self.data = self.disk.pread(file, self.disk.size(file), 0)
        finally:
            self.disk.close_file(file)


def block_name(number: int) -> str:
    return f"{number}{BLOCK_SUFFIX}"


class FileStore(IndexedStore):
    """Messages in the block files of one directory. Made by `open`."""

    def __init__(
        self, disk: Disk, log: MessageLog, limits: Limits, noise: Callable[[int], bytes]
    ) -> None:
        super().__init__(log, limits, noise)
        self.recovery = Recovery()
        self._disk = disk
        self._files: dict[int, File] = {}
        self._rewritten: list[tuple[int, int, int]] = []
        self._doomed: list[int] = []
        self._working: SyncWork | None = None
        self._failure: Exception | None = None
        self._durable_seq = 0

    @classmethod
    def open(
        cls,
        disk: Disk,
        *,
        limits: Limits | None = None,
        incarnation: int,
        meta: bytes = b"",
        first_seq: int = 1,
        block_bytes: int = BLOCK_BYTES,
        seed: int = 0,
        noise: Callable[[int], bytes],
    ) -> FileStore:
        """Recovers what the directory holds, or starts with nothing. Raises StoreError."""
        log = MessageLog(
            incarnation=incarnation,
            meta=meta,
            block_bytes=block_bytes,
            durable=True,
            seed=seed,
            first_seq=first_seq,
        )
        store = cls(disk, log, limits or Limits(), noise)
        store._recover(incarnation)
        store.set_limits(store._limits)
        store._set_durable(log.last_seq)
        return store

    # -- recovery

    def _recover(self, incarnation: int) -> None:
        unreadable: list[str] = []
        missing = SequenceSet()
        deadlines: list[tuple[int, int]] = []
        blocks = self._find_blocks(incarnation, unreadable)
        for position, (number, header, data) in enumerate(blocks):
            newest = position == len(blocks) - 1
            expected = self._log.last_seq + 1
            if header.first_seq < expected:  # the log was cut there and went on
                deadlines = [due for due in deadlines if due[0] < header.first_seq]
                missing.remove_range(header.first_seq, expected)
            if header.first_seq > expected:
                missing.insert_range(expected, header.first_seq - 1)
            found = replay(self._log, data, header, last=newest)
            self._note_replayed(number, found, missing)
            deadlines += found.deadlines
        for seq, deadline_ns in deadlines:
            if self._log.size_at(seq):  # a later block may have removed it
                self._note_deadline(seq, deadline_ns)
        self._make_durable()
        # The number of an unreadable block is not given out again: its records have its keys.
        self._log.next_number = max((self._log.next_number - 1, *self._files)) + 1
        self._age_from = self._log.first_seq
        self.recovery.unreadable = tuple(unreadable)
        self.recovery.damaged = tuple(missing.ranges())
        self._damaged = list(missing.ranges())

    def _find_blocks(
        self, incarnation: int, unreadable: list[str]
    ) -> list[tuple[int, BlockHeader, bytes]]:
        found = []
        for name in self._disk.files():
            if not name.endswith(BLOCK_SUFFIX) or not name.removesuffix(BLOCK_SUFFIX).isdigit():
                continue
            number = int(name.removesuffix(BLOCK_SUFFIX))
            file = self._files[number] = self._disk.open(name)
            data = self._disk.pread(file, self._disk.size(file), 0)
            header = read_block_header(data)
            if header is None or header.number != number or header.incarnation != incarnation:
                unreadable.append(name)
                continue
            found.append((number, header, data))
        return sorted(found, key=lambda block: block[0])

    def _make_durable(self) -> None:
        """What a killed process wrote can be read before it is durable."""
        for file in self._files.values():
            self._disk.fdatasync(file)
        if self._files:
            self._disk.sync_dir()

    def _note_replayed(self, number: int, found: Replayed, missing: SequenceSet) -> None:
        for first, last in found.damaged:
            missing.insert_range(first, last)
        for kind, first, last in found.events:
            if kind == FLOOR:
                missing.remove_range(0, first - 1)
            elif kind in (SKIP, REMOVE) and first <= last:
                missing.remove_range(first, last)
        self.recovery.records += found.records
        if found.torn:
            self._cut_tail(number, found)

    def _cut_tail(self, number: int, found: Replayed) -> None:
        """The end of the newest block was being written when the power went: kept aside."""
        file = self._files[number]
        tail = self._disk.pread(file, found.torn, found.used)
        aside = self._disk.open(f"{number}{TORN_SUFFIX}", create=True)
        self._disk.pwrite(aside, tail, 0)
        self._disk.close_file(aside)
        self._disk.truncate(file, found.used)
        self.recovery.torn_bytes += found.torn

    # -- durability

    @property
    def durable_seq(self) -> int:
        return self._durable_seq

    def _set_durable(self, seq: int) -> None:
        self._durable_seq = self._log.visible_max = seq

    @property
    def sync_wanted(self) -> bool:
        return self._working is None and (
            bool(self._doomed) or bool(self._rewritten) or has_unwritten(self._log)
        )

    def pending_sync(self, *, write_only: bool = False) -> Work | None:
        self._check_sound()
        if self._working is not None:
            return None
        self._doomed += self._log.drop_dead_blocks(self._log.last_ts_ns)
        pieces = take_unwritten(self._log)
        erasures = []
        for number, offset, length in self._rewritten:
            data = image_part(self._log, number, offset, length)
            erasures += [Unwritten(number, offset, data)] if data else []
        self._rewritten = []
        if not pieces and not erasures and not self._doomed:
            return None
        self._working = SyncWork(
            self._disk, self._files, pieces, erasures, self._doomed, self._log.last_seq
        )
        self._doomed = []
        return self._working

    def synced(self, work: Work, failure: Exception | None = None) -> None:
        if work is not self._working or self._working is None:
            raise ValueError("this is not the work that was given out")
        if failure is not None:
            self._failure = failure
            return
        self._set_durable(self._working.seq)
        self._working = None
        self._cool_down()

    def _cool_down(self) -> None:
        warm = warm_blocks(self._log)
        excess = sum(size for _, size in warm) - WARM_BYTES_MAX
        for number, size in warm:
            if excess <= 0:
                return
            drop_image(self._log, number)
            excess -= size

    def _check_sound(self) -> None:
        if self._failure is not None:
            raise StoreError(self._disk.path, "sync", 0, f"an earlier one failed: {self._failure}")

    def _check_writable(self) -> None:
        self._check_sound()

    def _forgotten(self, blocks: list[int]) -> None:
        """What the forgotten blocks said of older ones must be said again."""
        self._doomed += blocks
        log = self._log
        # Sequences behind the last are given out again, and are not durable then.
        self._set_durable(min(self._durable_seq, log.last_seq))
        if self._working is not None:
            self._working.seq = min(self._working.seq, log.last_seq)
        log.note_range(FLOOR, log.first_seq, log.first_seq, log.last_ts_ns)
        for first, last in log.deleted_ranges():
            log.note_range(REMOVE, first, last, log.last_ts_ns)

    def _overwritten(self, block: int, offset: int, length: int) -> None:
        self._rewritten.append((block, offset, length))

    # -- cold blocks

    def fetch(self, cold: Cold) -> Work:
        return FetchWork(self._disk, cold.block)

    def fetched(self, work: Work) -> None:
        assert isinstance(work, FetchWork)
        put_image(self._log, work.number, work.data)

    def close(self) -> None:
        if self._failure is None:
            while (work := self.pending_sync()) is not None:
                work.run()
                self.synced(work)
        for file in self._files.values():
            self._disk.close_file(file)
        self._files.clear()
