"""What an append log says, read as naively as possible: the spec of the compiled reader."""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from penstock.kv.kv_types import KvUpdate, Op

VALUE_BYTES_MAX = 1 << 24
TOKEN_BYTES_MAX = 10


class Refused(Exception):
    """Not a log, or damaged."""


class UnreadableKey(Refused):
    """The record is whole, but its key is not UTF-8."""


class Said(NamedTuple):
    entries: dict[str, bytes]
    cursor: bytes
    evicting: bool
    is_compact: bool


class Torn(Exception):
    """The file ends within this record."""


def encode(update: KvUpdate) -> bytes:
    key, version = update.key.encode(), update.version.raw
    body = bytes([1 if update.op is Op.PUT else 2]) + len(key).to_bytes(2, "little") + key
    if update.op is Op.PUT:
        body += len(update.value).to_bytes(4, "little") + update.value
    body += bytes([len(version)]) + version
    return crc32(body).to_bytes(4, "little") + body


def replay(data: bytes) -> Said:
    if data[:6] != b"PGSS\2\0":
        raise Refused
    entries: dict[str, bytes] = {}
    cursor, evicting, records, torn = b"", False, 0, False
    at, cursors = 6, 0
    while at < len(data):
        try:
            kind, key, record, at = _record(data, at)
        except Torn:
            if _holds_a_record(data, at + 1):
                raise Refused from None
            torn = True
            break
        if kind == 3:
            cursors += bool(cursor)
            cursor = record
            evicting = evicting or key == "evicting"
            continue
        records += 1
        entries.pop(key, None)
        if kind == 1:
            entries[key] = record
    empty = not entries and not cursor and len(data) > 6
    is_compact = not torn and not cursors and records == len(entries) and not empty
    return Said(entries, cursor, evicting, is_compact)


def _holds_a_record(data: bytes, start: int) -> bool:
    for at in range(start, len(data)):
        try:
            _record(data, at)
            return True
        except UnreadableKey:
            return True
        except (Torn, Refused):
            continue
    return False


def _record(data: bytes, start: int) -> tuple[int, str, bytes, int]:
    """Type, key, value record (or cursor), and where the record ends."""
    if len(data) - start < 5:
        raise Torn
    kind = data[start + 4]
    if kind == 0 and not any(data[start:]):
        raise Torn
    if kind not in (1, 2, 3):
        raise Refused
    at = start + 5
    key = value = b""
    if kind != 3:
        size, at = _number(data, at, 2)
        key, at = _bytes(data, at, size)
    if kind == 1:
        size, at = _number(data, at, 4)
        if size > VALUE_BYTES_MAX:
            raise Torn if len(data) - at < 6 else Refused
        value, at = _bytes(data, at, size)
    size, at = _number(data, at, 1)
    if size > TOKEN_BYTES_MAX and not (kind == 3 and size in (12, 20)):
        raise Refused
    token, at = _bytes(data, at, size)
    if crc32(data[start + 4 : at]) != int.from_bytes(data[start : start + 4], "little"):
        raise Torn if len(data) - at < 6 else Refused
    if kind == 3:
        return (3, *_memo(token), at)
    try:
        return kind, key.decode(), bytes([size]) + token + value, at
    except UnicodeDecodeError as error:
        raise UnreadableKey from error


def _memo(token: bytes) -> tuple[str, bytes]:
    if len(token) <= TOKEN_BYTES_MAX:
        return "", token
    size, flags = token[10], token[11]
    if size > TOKEN_BYTES_MAX or bool(flags & 2) != (len(token) == 20):
        raise Refused
    return ("evicting" if flags & 1 else ""), token[:size]


def _number(data: bytes, at: int, size: int) -> tuple[int, int]:
    raw, stop = _bytes(data, at, size)
    return int.from_bytes(raw, "little"), stop


def _bytes(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if at + size > len(data):
        raise Torn
    return data[at : at + size], at + size
