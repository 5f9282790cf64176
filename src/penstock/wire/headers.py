"""The header block of a message: `NATS/1.0`, lines of `Key: value`, an empty line.

Works on the raw bytes: other lines are neither parsed nor changed, so they are preserved exactly.
Keys are compared byte by byte (clients write them in the canonical spelling), and the first line
of a key counts. No function fails on a malformed block: it finds nothing in it or leaves it
unchanged, as the reference does.
"""

from __future__ import annotations

from typing import Final

HEADER_LINE: Final = b"NATS/1.0"
EMPTY_BLOCK: Final = b"NATS/1.0\r\n\r\n"

_CRLF: Final = b"\r\n"


def get(header: bytes, key: bytes) -> bytes | None:
    """Return the value of a key without leading blanks; None if the key is missing."""
    at = header.find(b"\r\n" + key + b":")
    if at < 0:
        return None
    start = at + len(key) + 3
    stop = header.find(_CRLF, start)
    return (header[start:stop] if stop >= 0 else header[start:]).lstrip(b" ")


def parse(header: bytes) -> dict[bytes, bytes]:
    """Return all keys with the value that counts: one pass, for callers that need many."""
    found: dict[bytes, bytes] = {}
    for line in header.split(_CRLF)[1:]:
        key, colon, value = line.partition(b":")
        if colon and key not in found:
            found[key] = value.lstrip(b" ")
    return found


def without_status(header: bytes) -> bytes:
    """Return the block without the status and text after `NATS/1.0`; empty if no line is left."""
    at = header.find(b"\r")
    if at <= len(HEADER_LINE) or not header.startswith(HEADER_LINE):
        return header
    stripped = HEADER_LINE + header[at:]
    return b"" if len(stripped) == len(EMPTY_BLOCK) else stripped


def added(header: bytes, key: bytes, value: bytes) -> bytes:
    """Return the block, or a new one, with one more line at its end; newlines become blanks."""
    start = header[:-2] if len(header) > len(_CRLF) else HEADER_LINE + _CRLF
    flat = value.replace(b"\n", b" ").replace(b"\r", b" ").strip(b" \t")
    return b"%b%b: %b\r\n\r\n" % (start, key, flat)


def replaced(header: bytes, key: bytes, value: bytes) -> bytes:
    """Return the block with the key's value replaced in place, or with the key added."""
    at = header.find(b"\r\n" + key + b":")
    if at < 0:
        return added(header, key, value)
    start = at + len(key) + 3
    if header[start : start + 1] == b" ":
        start += 1
    stop = header.find(b"\r", start)
    return header if stop < 0 else header[:start] + value + header[stop:]


def without(header: bytes, key: bytes) -> bytes:
    """Return the block without the lines of this key; empty if no line is left."""
    return _without_lines(header, b"\r\n" + key + b":")


def without_prefix(header: bytes, prefix: bytes) -> bytes:
    """Return the block without the lines whose keys have this prefix; empty if none is left."""
    return _without_lines(header, b"\r\n" + prefix)


def _without_lines(header: bytes, start_of_line: bytes) -> bytes:
    at = header.find(start_of_line)
    while at >= 0:
        stop = header.find(_CRLF, at + 2)
        if stop < 0:
            return header
        header = header[:at] + header[stop:]
        if len(header) <= len(EMPTY_BLOCK):
            return b""
        at = header.find(start_of_line, at)
    return header
