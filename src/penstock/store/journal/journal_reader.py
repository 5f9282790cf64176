"""Reads segment files: which there are, which turns they hold, and the records of a turn.

Reading changes nothing and decides nothing: `journal_recovery` decides what counts. Heads of turns
are found page by page, so damage to a turn hides no other turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.records.journal_codec import (
    HEAD_BYTES,
    PAGE_BYTES,
    SegmentKeys,
    find_turn,
    read_turn_head,
    scan_records,
)
from penstock.store.format.block_frames import Binding, FrameReader
from penstock.store.journal.segment_files import (
    SegmentFile,
    SegmentHeader,
    file_number,
    read_segment_header,
)
from penstock.store.journal.turn_frames import decrypt_turn, whole_pages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.store.format.encryption import DataKey
    from penstock.store.io.disk import Disk

Record: TypeAlias = tuple[int, int, int, int, int, int, int]
"""Place, kind, group, index, term, payload start and length in the bytes that were scanned."""


class TurnSeen(NamedTuple):
    """The valid head of a turn in a segment."""

    place: int
    number: int
    durable: int
    plain: int
    stored: int
    records: int
    continues: bool

    @property
    def end(self) -> int:
        return self.place + whole_pages(self.stored)


class TurnRead(NamedTuple):
    """The valid records of a turn, the bytes they lie in, and whether none is missing."""

    records: list[Record]
    plain: bytes | bytearray
    is_whole: bool


class FileSeen(NamedTuple):
    """A segment file, and the header it has."""

    file: SegmentFile
    header: SegmentHeader | None


class SegmentReader:
    """The bytes of one segment. Holds the whole file in memory."""

    def __init__(
        self,
        disk: Disk,
        file: SegmentFile,
        keys: SegmentKeys,
        binding: Binding,
        data_keys: Mapping[int, DataKey],
        *,
        is_encrypted: bool,
    ) -> None:
        handle = file.open(disk)
        self.data = disk.pread(handle, disk.size(handle), 0)
        self._keys = keys
        self._frames = FrameReader(binding, data_keys) if is_encrypted else None

    def turns(self) -> Iterator[TurnSeen]:
        """Yield the turns whose heads are valid, in order."""
        at = PAGE_BYTES
        while (at := find_turn(self._keys, self.data, at)) < len(self.data):
            head = read_turn_head(self._keys, self.data, at, at)
            if head is None or at + head[3] > len(self.data):
                at += PAGE_BYTES
                continue
            turn = TurnSeen(at, *head)
            yield turn
            at = turn.end

    def read(self, turn: TurnSeen) -> TurnRead:
        """Return the records of a turn."""
        plain, is_whole = self._plain(turn.place, turn.place + turn.stored, turn.plain)
        if self._frames is None:
            start, stop, base = turn.place, turn.place + turn.plain, 0
        else:
            start, stop, base = 0, turn.plain, turn.place
        records, holes = scan_records(self._keys, plain, start + HEAD_BYTES, stop, base)
        return TurnRead(records, plain, is_whole and not holes and len(records) == turn.records)

    def salvage(self, start: int, stop: int) -> TurnRead:
        """Return the valid records between two places, where a head is unreadable."""
        stop = min(stop, len(self.data))
        if start >= stop:
            return TurnRead([], b"", is_whole=False)
        plain, _ = self._plain(start, stop, stop - start)
        if self._frames is None:
            records, _ = scan_records(self._keys, plain, start, stop, 0)
        else:
            records, _ = scan_records(self._keys, plain, 0, stop - start, start)
        return TurnRead(records, plain, is_whole=False)

    def read_all(self, stop: int) -> Iterator[TurnRead]:
        """Yield all valid records up to a place, whether or not their turns have valid heads."""
        at = PAGE_BYTES
        for turn in self.turns():
            if turn.place >= stop:
                break
            if turn.place > at:
                yield self.salvage(at, turn.place)
            yield self.read(turn)
            at = turn.end
        if at < stop:
            yield self.salvage(at, stop)

    def _plain(self, start: int, stop: int, plain_bytes: int) -> tuple[bytes | bytearray, bool]:
        if self._frames is None:
            return self.data, True
        return decrypt_turn(self._frames, self.data, 0, start, stop, plain_bytes)


def files_seen(disk: Disk) -> list[FileSeen]:
    """Return the segment files of a directory, by name."""
    found = []
    for name in disk.files():
        number = file_number(name)
        if number is None:
            continue
        file = SegmentFile(name, held=None)
        page = disk.pread(file.open(disk), PAGE_BYTES, 0)
        found.append(FileSeen(file, read_segment_header(page, number)))
    return found


def holds_segment(disk: Disk, file: SegmentFile, keys: SegmentKeys) -> bool:
    """Return whether a file without a header has turns of this segment."""
    handle = file.open(disk)
    size = disk.size(handle)
    return find_turn(keys, disk.pread(handle, size, 0), PAGE_BYTES) < size
