"""The header block of a message: `NATS/1.0`, lines of `Key: value`, an empty line.

Works on the bytes as they are: what nobody asks for is neither read nor changed, so a block comes
out as it came in. Keys are compared byte by byte (clients write them in the canonical spelling)
and the first line of a key is the one that counts. No function fails on a malformed block: it
finds nothing in it, or leaves it alone, as the reference does.
"""

from __future__ import annotations

from typing import Final

HEADER_LINE: Final = b"NATS/1.0"
EMPTY_BLOCK: Final = b"NATS/1.0\r\n\r\n"

_CRLF: Final = b"\r\n"


def get(header: bytes, key: bytes) -> bytes | None:
    """The value of a key, without the blanks in front of it; None if the key is not there."""
    at = header.find(b"\r\n" + key + b":")
    if at < 0:
        return None
    start = at + len(key) + 3
    stop = header.find(_CRLF, start)
    return (header[start:stop] if stop >= 0 else header[start:]).lstrip(b" ")


def parse(header: bytes) -> dict[bytes, bytes]:
    """All keys and the value that counts for each: one pass, for who asks for many of them."""
    found: dict[bytes, bytes] = {}
    for line in header.split(_CRLF)[1:]:
        key, colon, value = line.partition(b":")
        if colon and key not in found:
            found[key] = value.lstrip(b" ")
    return found


def without_status(header: bytes) -> bytes:
    """The block without the status and its text behind `NATS/1.0`; empty if nothing else was."""
    at = header.find(b"\r")
    if at <= len(HEADER_LINE) or not header.startswith(HEADER_LINE):
        return header
    stripped = HEADER_LINE + header[at:]
    return b"" if len(stripped) == len(EMPTY_BLOCK) else stripped


def added(header: bytes, key: bytes, value: bytes) -> bytes:
    """The block, or a new one, with one more line at its end. The value stays on its line."""
    start = header[:-2] if len(header) > len(_CRLF) else HEADER_LINE + _CRLF
    flat = value.replace(b"\n", b" ").replace(b"\r", b" ").strip(b" \t")
    return b"%b%b: %b\r\n\r\n" % (start, key, flat)


def replaced(header: bytes, key: bytes, value: bytes) -> bytes:
    """The block with another value for a key, in its place; or with the key added at its end."""
    at = header.find(b"\r\n" + key + b":")
    if at < 0:
        return added(header, key, value)
    start = at + len(key) + 3
    if header[start : start + 1] == b" ":
        start += 1
    stop = header.find(b"\r", start)
    return header if stop < 0 else header[:start] + value + header[stop:]


def without(header: bytes, key: bytes) -> bytes:
    """The block without any line of this key; empty if no line is left."""
    return _without_lines(header, b"\r\n" + key + b":")


def without_prefix(header: bytes, prefix: bytes) -> bytes:
    """The block without the lines whose keys start so; empty if no line is left."""
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
