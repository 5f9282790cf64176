"""The append log's file format, "PGSS" version 2, byte by byte; see docs/formats/fold-log.md.

    header   "PGSS" | version: u16
    put      crc: u32 | 01 | key length: u16 | key | value length: u32 | value | version field
    delete   crc: u32 | 02 | key length: u16 | key | version field
    cursor   crc: u32 | 03 | length: u8 | cursor

Lengths are little endian. A version field is a length (u8) and at most ten bytes. The CRC-32 is
zlib's, over everything after it. A torn tail is ignored; the records before it are valid. Damage
before the tail, and a tail that contains a valid record, raise an error. The functions take bytes
and do not access files.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from penstock.fold.errors import FoldCorruptedError, FoldFormatError
from penstock.fold.store import log_codec, log_scan
from penstock.kv.kv_types import TOKEN_BYTES_MAX, KvUpdate, Op, WatchCursor
from penstock.kv.update_batch import Updates, pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from mmap import mmap

MAGIC = b"PGSS"
VERSION = 2
HEADER = MAGIC + VERSION.to_bytes(2, "little")
PUT, DELETE, CURSOR = 1, 2, 3
SEARCH_BYTES_MIN = 64 * 1024 * 1024
SEARCH_FACTOR = 16
"""Limit of the bytes checksummed in the search of a torn tail: SEARCH_BYTES_MIN plus this factor
times the length of the tail. A real record is found long before; only bytes crafted to look like
records reach the limit."""
_MEMO_EVICTING = 1
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_IMPOSSIBLE = {
    log_scan.BAD_TYPE: "a record of no known type",
    log_scan.BAD_ZEROS: "zeros before something else",
    log_scan.BAD_VERSION: f"a version of more than {TOKEN_BYTES_MAX} bytes",
    log_scan.BAD_CURSOR: f"a cursor of more than {TOKEN_BYTES_MAX} bytes",
    log_scan.BAD_MEMO: "a cursor with a memo that is none",
}


# -- writing


def cursor_record(cursor: WatchCursor, *, evicting: bool = False) -> bytes:
    """Return a cursor record. `evicting` writes the long form, which older readers reject; use it
    only for files that already had it."""
    raw = cursor.raw
    if evicting:
        raw = raw.ljust(TOKEN_BYTES_MAX, b"\0") + bytes((len(raw), _MEMO_EVICTING))
    body = bytes((CURSOR, len(raw))) + raw
    return _U32.pack(crc32(body)) + body


def encode_batch(
    batch: Sequence[KvUpdate], cursor: WatchCursor, *, evicting: bool = False
) -> bytes:
    """Return the bytes to append for a batch: its updates, then the cursor."""
    records = [_encoded(piece) for piece in pieces_of(batch)]
    return b"".join((*records, cursor_record(cursor, evicting=evicting)))


def _encoded(piece: Sequence[KvUpdate]) -> bytes:
    if isinstance(piece, Updates):
        return log_codec.encode_columns(piece.batch, piece.skipped, piece.ops)
    return log_codec.encode_updates(piece)


def compacted(
    entries: Iterable[bytes], cursor: WatchCursor, *, evicting: bool = False
) -> Iterator[bytes]:
    """Yield the pieces of a whole file, from put records in ascending key order.

    The same state always gives the same bytes.
    """
    yield HEADER
    yield from entries
    if cursor:
        yield cursor_record(cursor, evicting=evicting)


# -- reading


class LogReplay(NamedTuple):
    """The contents of a file: its live entries as value records, its cursor, and its state."""

    entries: dict[str, bytes]
    cursor: WatchCursor
    evicting: bool
    """A cursor record has the flag that the bucket may evict current values (`seen_evicting`)."""
    is_compact: bool
    """No record is redundant: a rewrite would not make the file shorter."""
    torn_bytes: int
    """Length of the torn tail; 0 if the file ends with a whole record."""
    live_bytes: int
    """Length of a log of the entries alone."""


def replay(data: bytes | mmap, *, path: str = "") -> LogReplay:
    """Replay a file; raise FoldFormatError or FoldCorruptedError if it is invalid or damaged."""
    check_header(data, path)
    entries: dict[str, bytes] = {}
    try:
        end, verdict, cursor, evicting, is_compact, live_bytes = log_scan.replay_records(
            data, len(HEADER), entries
        )
    except UnicodeDecodeError as error:
        raise FoldFormatError("a key is not UTF-8", path=path) from error
    _check_verdict(data, end, verdict, path)
    if not entries and not cursor and len(data) > len(HEADER):
        is_compact = False  # rewrite: a record appended after these bytes would not be read
    torn_bytes = len(data) - end if verdict == log_scan.TORN else 0
    return LogReplay(entries, WatchCursor(cursor), evicting, is_compact, torn_bytes, live_bytes)


def read_updates(
    data: bytes | mmap, count: int, *, path: str = ""
) -> Iterator[tuple[list[KvUpdate], WatchCursor | None]]:
    """Yield the updates of a file, `count` records at a time, with the last cursor among them."""
    check_header(data, path)
    at, verdict = len(HEADER), log_scan.FULL
    while verdict == log_scan.FULL:
        try:
            found, at, verdict = log_scan.read_records(data, at, count)
        except UnicodeDecodeError as error:
            raise FoldFormatError("a key is not UTF-8", path=path) from error
        _check_verdict(data, at, verdict, path)
        cursor = None
        batch: list[KvUpdate] = []
        for kind, key, value, version, _ in found:
            if kind == CURSOR:
                cursor = WatchCursor(version)
            else:
                op = Op.PUT if kind == PUT else Op.DELETE
                batch.append(KvUpdate(op, key, value, token=version[1:]))
        yield batch, cursor


def check_header(data: bytes | mmap, path: str) -> None:
    if data[:4] != MAGIC:
        raise FoldFormatError("not an append log of a fold", path=path)
    found = _U16.unpack_from(data, 4)[0] if len(data) >= len(HEADER) else "cut off"
    if found != VERSION:
        raise FoldFormatError(f"version {found} of the append log, not {VERSION}", path=path)


def _check_verdict(data: bytes | mmap, end: int, verdict: int, path: str) -> None:
    """Raise unless the records end with the file or at a torn tail.

    A damaged length makes its record look torn and hides all records after it. So a tail counts as
    torn only if no valid record begins inside it.
    """
    if verdict == log_scan.TORN:
        work = SEARCH_BYTES_MIN + SEARCH_FACTOR * (len(data) - end)
        found = log_scan.find_record(data, end + 1, work)
        if found == log_scan.TOO_COSTLY:
            raise FoldCorruptedError(
                f"the record at byte {end} is damaged or torn, and the bytes after it cannot be "
                "told from records",
                path=path,
            )
        if found != log_scan.NO_RECORD:
            raise FoldCorruptedError(
                f"the record at byte {end} is damaged: a valid record follows at byte {found}",
                path=path,
            )
    elif verdict == log_scan.DAMAGED:
        raise FoldCorruptedError(f"wrong checksum at byte {end}", path=path)
    elif verdict in _IMPOSSIBLE:
        raise FoldFormatError(f"{_IMPOSSIBLE[verdict]} at byte {end}", path=path)
