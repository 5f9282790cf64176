"""Reads entries of a journal: from turns in memory, or from the files of segments.

A record of a plain segment is read by itself, one of an encrypted segment with its turn. Every
record is checked again, and its group and index are compared: the index in memory may be right and
the file damaged since.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from penstock.records.journal_codec import (
    KIND_ENTRY,
    SegmentKeys,
    length_at,
    read_turn_head,
    record_at,
)
from penstock.store.format.block_frames import Binding, FrameReader
from penstock.store.journal.group_log import PLACE_BITS, PLACE_MASK
from penstock.store.journal.journal_reader import SegmentReader
from penstock.store.journal.journal_types import JournalEntry, MissingEntries, ReplayedEntry
from penstock.store.journal.turn_frames import decrypt_turn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.store.format.encryption import DataKey
    from penstock.store.io.disk import Disk
    from penstock.store.journal.group_log import GroupLog
    from penstock.store.journal.segment_files import Segment

_FIRST_READ_BYTES = 4096


class EntryReader:
    """Reads what an index points to. Keeps the last turn that it decrypted."""

    def __init__(
        self,
        disk: Disk,
        incarnation: int,
        segments: Mapping[int, Segment],
        data_keys: Mapping[int, DataKey],
    ) -> None:
        self._disk = disk
        self._incarnation = incarnation
        self._segments = segments
        self._data_keys = data_keys
        self._turn_at = (0, 0)
        self._turn: bytearray = bytearray()

    def entries(
        self,
        group: int,
        log: GroupLog,
        lo: int,
        hi: int,
        bytes_max: int,
        images: list[tuple[int, int, memoryview]],
    ) -> list[JournalEntry]:
        """Return the entries from `lo` to `hi - 1`, at most `bytes_max` bytes but at least one."""
        found: list[JournalEntry] = []
        used = 0
        first = log.first
        for index in range(max(lo, first), min(hi, log.next)):
            entry = self._entry(group, index, log.positions[index - first], images)
            if entry is None:
                raise MissingEntries(self._disk.path, group, index)
            used += len(entry.data)
            if found and used > bytes_max:
                break
            found.append(entry)
        return found

    def replay(self, groups: Mapping[int, GroupLog]) -> Iterator[ReplayedEntry]:
        """Yield the entries that the index of the groups holds, in the order of the journal."""
        for segment in list(self._segments.values()):
            yield from self._replay_segment(segment, groups)

    def _replay_segment(
        self, segment: Segment, groups: Mapping[int, GroupLog]
    ) -> Iterator[ReplayedEntry]:
        if not any(groups[group].positions for group in segment.groups if group in groups):
            return
        reader = SegmentReader(
            self._disk,
            segment.file,
            segment.keys,
            Binding(self._incarnation, segment.number),
            self._data_keys,
            is_encrypted=segment.is_encrypted,
        )
        base = segment.number << PLACE_BITS
        for read in reader.read_all(segment.end):
            for place, kind, group, index, term, start, length in read.records:
                log = groups.get(group)
                if kind < KIND_ENTRY or log is None or not log.first <= index < log.next:
                    continue
                if log.positions[index - log.first] == base | place:
                    data = bytes(read.plain[start : start + length])
                    yield ReplayedEntry(group, JournalEntry(index, term, kind, data))

    def _entry(
        self, group: int, index: int, position: int, images: list[tuple[int, int, memoryview]]
    ) -> JournalEntry | None:
        number, place = position >> PLACE_BITS, position & PLACE_MASK
        if not number:
            return None
        data, at = self._bytes(number, place, images)
        record = record_at(SegmentKeys(self._incarnation, number), data, at, place)
        if record is None or record[1:3] != (group, index):
            return None
        kind, _, _, term, start, length, _ = record
        return JournalEntry(index, term, kind, bytes(data[start : start + length]))

    def _bytes(
        self, number: int, place: int, images: list[tuple[int, int, memoryview]]
    ) -> tuple[bytes | bytearray | memoryview, int]:
        """Return bytes that hold the record at a place, and the offset of the record in them."""
        for segment, start, image in images:
            if segment == number and start <= place < start + len(image):
                return image, place - start
        segment_of = self._segments[number]
        if segment_of.is_encrypted:
            return self._decrypted(segment_of, place)
        file = segment_of.file.open(self._disk)
        data = self._disk.pread(file, _FIRST_READ_BYTES, place)
        length = length_at(segment_of.keys, data[:_FIRST_READ_BYTES], place)
        if length > len(data):
            data = self._disk.pread(file, length, place)
        return data, 0

    def _decrypted(self, segment: Segment, place: int) -> tuple[bytearray, int]:
        start = segment.turns[max(0, bisect_right(segment.turns, place) - 1)]
        if self._turn_at != (segment.number, start):
            self._turn = self._decrypt(segment, start)
            self._turn_at = (segment.number, start)
        return self._turn, place - start

    def _decrypt(self, segment: Segment, start: int) -> bytearray:
        """Return the plain bytes of a turn; its head may be unreadable."""
        file = segment.file.open(self._disk)
        after = bisect_right(segment.turns, start)
        stop = segment.turns[after] if after < len(segment.turns) else segment.end
        data = self._disk.pread(file, stop - start, start)
        head = read_turn_head(segment.keys, data, 0, start)
        frames = FrameReader(Binding(self._incarnation, segment.number), self._data_keys)
        plain_bytes = stop - start if head is None else head[2]
        plain, _ = decrypt_turn(frames, data, start, start, stop, plain_bytes)
        return plain
