"""Segments and their files: `<id>.seg` with a header page, then turns.

A file outlives its segments: a free file is used again under a higher segment number, and keeps the
bytes of earlier segments after the end of the turns. `held` and `is_stained` keep track of them for
erasure. The owner's thread plans, a work opens and writes; one work uses a file at a time.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.records.journal_codec import PAGE_BYTES, SegmentKeys
from penstock.records.record_codec import checksum
from penstock.store.journal.journal_types import SEGMENT_BYTES_MAX

if TYPE_CHECKING:
    from penstock.store.format.block_frames import FrameWriter
    from penstock.store.io.disk import Disk, File

SEGMENT_MAGIC: Final = b"PENJNL\x01\0"
SUFFIX: Final = ".seg"
ENCRYPTED: Final = 1
_HEADER: Final = struct.Struct("<8sQQQQQqQII")
_SUM: Final = struct.Struct("<Q")
_NUMBER_MAX: Final = 2**32 - 1


class SegmentHeader(NamedTuple):
    """The header of a segment. `first_turn` voids turns from this number on in older segments;
    `tail` and `newest` are those of the anchor when the segment was begun: segments between
    `newest` and this one may be missing, because a power cut can undo them."""

    incarnation: int
    number: int
    first_turn: int
    tail: int
    newest: int
    created_ns: int
    size: int
    flags: int

    @property
    def is_encrypted(self) -> bool:
        return bool(self.flags & ENCRYPTED)


def segment_header(header: SegmentHeader, file: int) -> bytes:
    """Return the first page of a segment file; `file` is the id in its name."""
    fixed = _HEADER.pack(SEGMENT_MAGIC, *header, 0)
    return (fixed + _SUM.pack(checksum(fixed, file))).ljust(PAGE_BYTES, b"\0")


def read_segment_header(data: bytes, file: int) -> SegmentHeader | None:
    """Return the header, or None if the bytes do not start with a valid one of this file."""
    if len(data) < _HEADER.size + _SUM.size:
        return None
    (expected,) = _SUM.unpack_from(data, _HEADER.size)
    if not data.startswith(SEGMENT_MAGIC) or checksum(data[: _HEADER.size], file) != expected:
        return None
    *fields, zero = _HEADER.unpack_from(data)[1:]
    header = SegmentHeader(*fields)
    if zero or header.flags & ~ENCRYPTED or not 0 < header.number <= _NUMBER_MAX:
        return None
    return header if header.size <= SEGMENT_BYTES_MAX else None


def file_name(number: int) -> str:
    return f"{number:08d}{SUFFIX}"


def file_number(name: str) -> int | None:
    """Return the id in the name of a segment file; None for other files."""
    stem = name.removesuffix(SUFFIX)
    return int(stem) if stem != name and stem.isascii() and stem.isdecimal() else None


@dataclass(slots=True, eq=False)
class SegmentFile:
    """A file for one segment after the other."""

    name: str
    is_ready: bool = False
    """Whether the file has its full size, durably."""
    file: File | None = None
    held: set[int] | None = field(default_factory=set)
    """Groups of which it may hold bytes, of this or earlier segments; None: any group."""
    is_stained: bool = False
    """Whether erased bytes may be in it: it is removed when it is free, not used again."""

    @property
    def number(self) -> int:
        """The id in its name."""
        return file_number(self.name) or 0

    def open(self, disk: Disk) -> File:
        """Return the open file, created if it is missing."""
        if self.file is None:
            self.file = disk.open(self.name, create=True)
        return self.file

    def fill(self, disk: Disk, size: int, stop: int) -> None:
        """Write zeros up to `stop`; at the full size, make file and name durable."""
        file = self.open(disk)
        disk.preallocate(file, min(size, stop))
        if disk.size(file) >= size:
            disk.fdatasync(file)
            disk.sync_dir()
            self.is_ready = True

    def close(self, disk: Disk) -> None:
        if self.file is not None:
            disk.close_file(self.file)
            self.file = None


@dataclass(slots=True, eq=False)
class Segment:
    """A segment in use. `end`: where the next turn begins."""

    number: int
    file: SegmentFile
    keys: SegmentKeys
    end: int = PAGE_BYTES
    records: int = 0
    is_encrypted: bool = False
    header: bytes = b""
    """The header page, until it is written with the first turn."""
    turns: array[int] = field(default_factory=lambda: array("Q"))
    """Where its turns begin."""
    groups: set[int] = field(default_factory=set)
    """Groups that may need it; some no longer do."""
    writer: FrameWriter | None = None
