"""The append log's file format, "PGSS" version 2, byte by byte; see docs/formats/fold-log.md.

    header   "PGSS" | version: u16
    put      crc: u32 | 01 | key length: u16 | key | value length: u32 | value | version field
    delete   crc: u32 | 02 | key length: u16 | key | version field
    cursor   crc: u32 | 03 | length: u8 | cursor

Lengths are little endian; a version field is a length (u8) and at most ten bytes; the CRC-32 is
zlib's, over everything behind it. A file ends where it was torn: what lies before that is believed,
what lies behind it is not, and damage before the tail is told. Nothing here touches a file.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from penstock.fold.errors import FoldCorruptedError, FoldFormatError
from penstock.fold.record import decode_key, encode_key, version_field
from penstock.kv.types import TOKEN_BYTES_MAX, KvUpdate, Op, WatchCursor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from mmap import mmap

MAGIC = b"PGSS"
VERSION = 2
HEADER = MAGIC + VERSION.to_bytes(2, "little")
PUT, DELETE, CURSOR = 1, 2, 3
VALUE_BYTES_MAX = 16 * 1024 * 1024
"""A longer value would make the file unreadable for other implementations."""
RECORD_BYTES_MIN = 6
"""The shortest record: a cursor of no bytes."""
TRUSTED_TAIL_BYTES_MAX = 64 * 1024
"""A longer torn tail is searched for a cursor before it is believed to be torn."""
MEMO_BYTES = 12
MEMO_TIMED_BYTES = 20
_MEMO_EVICTING, _MEMO_TIMED = 1, 2

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_HEAD = struct.Struct("<IBH")
"""CRC, type and key length: what a put and a delete begin with."""


class Found(NamedTuple):
    """One record of a file. For a cursor, `version` is it, and `evicting` its memo."""

    kind: int
    key: bytes
    value: bytes
    version: bytes
    evicting: bool = False


# -- writing


def put_record(key: bytes, value: bytes, version: bytes) -> bytes:
    """`version` is a version field: its length and its bytes."""
    if len(value) > VALUE_BYTES_MAX:
        raise ValueError(f"a value has at most {VALUE_BYTES_MAX} bytes, not {len(value)}")
    body = b"".join((b"\x01", _U16.pack(len(key)), key, _U32.pack(len(value)), value, version))
    return _U32.pack(crc32(body)) + body


def delete_record(key: bytes, version: bytes) -> bytes:
    body = b"\x02" + _U16.pack(len(key)) + key + version
    return _U32.pack(crc32(body)) + body


def cursor_record(cursor: WatchCursor, *, evicting: bool = False) -> bytes:
    """`evicting` writes the long form, which older readers refuse: only for files that had it."""
    raw = cursor.raw
    if evicting:
        raw = raw.ljust(TOKEN_BYTES_MAX, b"\0") + bytes((len(raw), _MEMO_EVICTING))
    body = bytes((CURSOR, len(raw))) + raw
    return _U32.pack(crc32(body)) + body


def update_record(update: KvUpdate) -> bytes:
    key = encode_key(update.key)
    if update.op is Op.PUT:
        return put_record(key, update.value, version_field(update))
    return delete_record(key, version_field(update))


def encode_batch(
    batch: Iterable[KvUpdate], cursor: WatchCursor, *, evicting: bool = False
) -> bytes:
    """A batch as it is appended: its updates, then the cursor that is true once they are there."""
    records = [update_record(update) for update in batch]
    records.append(cursor_record(cursor, evicting=evicting))
    return b"".join(records)


def compacted(
    entries: Iterable[tuple[bytes, bytes]], cursor: WatchCursor, *, evicting: bool = False
) -> Iterator[bytes]:
    """A whole file in pieces, from keys in ascending order and their value records.

    The same state always gives the same bytes.
    """
    yield HEADER
    for key, record in entries:
        stop = 1 + record[0]
        yield put_record(key, record[stop:], record[:stop])
    if cursor:
        yield cursor_record(cursor, evicting=evicting)


# -- reading


class Scan:
    """The records of a file in order. `torn` and `end` hold once they have all been taken."""

    def __init__(self, data: bytes | mmap, *, path: str = "") -> None:
        self.torn = False
        self.end = len(HEADER)
        """Where the last record that is believed ends."""
        self._data = data
        self._path = path
        if data[:4] != MAGIC:
            raise FoldFormatError("not an append log of a fold", path=path)
        if len(data) < len(HEADER) or (version := _U16.unpack_from(data, 4)[0]) != VERSION:
            found = version if len(data) >= len(HEADER) else "cut off"
            raise FoldFormatError(f"version {found} of the append log, not {VERSION}", path=path)

    def __iter__(self) -> Iterator[Found]:
        size = len(self._data)
        while self.end < size:
            found, stop = self._record(self.end)
            if found is None:
                self.torn = True
                self._check_tail()
                return
            yield found
            self.end = stop

    def _record(self, start: int) -> tuple[Found | None, int]:
        """The record at `start` and where it ends; None if it is torn."""
        data = self._data
        if len(data) - start < 5:
            return None, start
        kind = data[start + 4]
        if kind == CURSOR:
            return self._cursor(start)
        if kind not in (PUT, DELETE):
            return self._unknown(start, kind)
        if len(data) - start < _HEAD.size:
            return None, start
        crc, _, key_size = _HEAD.unpack_from(data, start)
        key_stop = start + _HEAD.size + key_size
        value_start = value_stop = key_stop
        if kind == PUT:
            value_start += 4
            if value_start > len(data):
                return None, start
            value_size = _U32.unpack_from(data, key_stop)[0]
            if value_size > VALUE_BYTES_MAX:
                return self._damaged(start, value_start)
            value_stop = value_start + value_size
        if value_stop >= len(data):
            return None, start
        version_size = data[value_stop]
        if version_size > TOKEN_BYTES_MAX:
            raise self._format_error(start, f"a version of {version_size} bytes")
        stop = value_stop + 1 + version_size
        if stop > len(data):
            return None, start
        if crc32(data[start + 4 : stop]) != crc:
            return self._damaged(start, stop)
        key = data[start + _HEAD.size : key_stop]
        return Found(kind, key, data[value_start:value_stop], data[value_stop:stop]), stop

    def _cursor(self, start: int) -> tuple[Found | None, int]:
        data = self._data
        if len(data) - start < RECORD_BYTES_MIN:
            return None, start
        size = data[start + 5]
        if size > TOKEN_BYTES_MAX and size not in (MEMO_BYTES, MEMO_TIMED_BYTES):
            raise self._format_error(start, f"a cursor of {size} bytes")
        stop = start + RECORD_BYTES_MIN + size
        if stop > len(data):
            return None, start
        if crc32(data[start + 4 : stop]) != _U32.unpack_from(data, start)[0]:
            return self._damaged(start, stop)
        raw = data[start + RECORD_BYTES_MIN : stop]
        if size <= TOKEN_BYTES_MAX:
            return Found(CURSOR, b"", b"", raw), stop
        token_size, flags = raw[TOKEN_BYTES_MAX], raw[TOKEN_BYTES_MAX + 1]
        if token_size > TOKEN_BYTES_MAX or bool(flags & _MEMO_TIMED) != (size == MEMO_TIMED_BYTES):
            raise self._format_error(start, "a cursor with a memo that is none")
        return Found(CURSOR, b"", b"", raw[:token_size], bool(flags & _MEMO_EVICTING)), stop

    def _unknown(self, start: int, kind: int) -> tuple[None, int]:
        """Space that was allocated and never written is a torn tail; else nobody wrote this."""
        if any(self._data[start : start + 5]):
            raise self._format_error(start, f"a record of type {kind}")
        if self._data[start:].strip(b"\0"):
            raise self._format_error(start, "zeros before something else")
        return None, start

    def _damaged(self, start: int, stop: int) -> tuple[None, int]:
        """A wrong checksum is a torn tail only where no other record fits behind it."""
        if len(self._data) - stop >= RECORD_BYTES_MIN:
            raise FoldCorruptedError(f"wrong checksum at byte {start}", path=self._path)
        return None, start

    def _check_tail(self) -> None:
        """A damaged length looks like a torn record that hides all that follows it.

        Only a short tail is given the benefit of the doubt, as others do with any tail.
        """
        tail = self._data[self.end :]
        if len(tail) > TRUSTED_TAIL_BYTES_MAX and _holds_a_cursor(tail):
            raise FoldCorruptedError(f"records behind a torn one at byte {self.end}")

    def _format_error(self, start: int, what: str) -> FoldFormatError:
        return FoldFormatError(f"{what} at byte {start}", path=self._path)


def _holds_a_cursor(tail: bytes) -> bool:
    """Whether a cursor record lies anywhere behind the tail's first byte."""
    at = tail.find(CURSOR, 5)
    while at >= 0:
        size = tail[at + 1] if at + 1 < len(tail) else 0
        body = tail[at : at + 2 + size]
        if size and len(body) == 2 + size and crc32(body) == _U32.unpack_from(tail, at - 4)[0]:
            return True
        at = tail.find(CURSOR, at + 1)
    return False


class Replay(NamedTuple):
    """What a file says: its live entries as value records, its cursor, and its state."""

    entries: dict[str, bytes]
    cursor: WatchCursor
    evicting: bool
    """A cursor said that the bucket had been seen dropping current values."""
    settled: bool
    """Every record counts: writing it anew would not make it shorter."""


def replay(data: bytes, *, path: str = "") -> Replay:
    """Fold a file. FoldFormatError or FoldCorruptedError if it cannot be believed."""
    entries: dict[str, bytes] = {}
    cursor, evicting, puts, redundant = b"", False, 0, False
    scan = Scan(data, path=path)
    for kind, key, value, version, memo in scan:
        if kind == PUT:
            entries[decode_key(key)] = version + value
            puts += 1
        elif kind == DELETE:
            entries.pop(decode_key(key), None)
            redundant = True
        else:
            redundant = redundant or bool(cursor)
            cursor, evicting = version, evicting or memo
    settled = not (redundant or scan.torn) and puts == len(entries)
    if not entries and not cursor and len(data) > len(HEADER):
        settled = False  # behind such bytes no later record would be read
    return Replay(entries, WatchCursor(cursor), evicting, settled)
