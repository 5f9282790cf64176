"""Explain why a text is not valid JSON, in the reference's words.

The codec calls this only after the parser has refused the text, so it need not be fast and keeps no
values. It scans the bytes once, with a stack of open brackets, up to the first invalid byte.
Offsets count bytes and point after that byte. A text that ends too early has no offset.
"""

import re
from typing import Final

ENDS_EARLY: Final = "unexpected EOF"
EXPLAINED_BYTES_MAX: Final = 32_768
"""Longer text is not scanned, because a scan takes 0.4 µs per byte; the error is UNEXPLAINED."""
UNEXPLAINED: Final = "invalid JSON"

_BLANK: Final = re.compile(rb"[ \t\r\n]*")
_PLAIN: Final = re.compile(rb'[^"\\\x00-\x1f]*')
_ESCAPE: Final = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_DIGITS: Final = re.compile(rb"[0-9]*")
_OFFSET: Final = re.compile(r" at offset [0-9]+$")
_LITERALS: Final = {b"t": b"true", b"f": b"false", b"n": b"null"}
_UNICODE_ESCAPE_BYTES: Final = 6
_HEX: Final = re.compile(rb"[0-9a-fA-F]*")
_NAMED: Final = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 92: "\\"}
#: Bytes that are not valid UTF-8 decode to code points from here on.
_NO_CHARACTER: Final = 0xDC00


class _JsonFault(Exception):
    """The first fault, as text; raised to end the scan."""


def explain(raw: bytes, at: int = 0) -> str:
    """Return the first fault of the values that start at `at`, or "" if there is none."""
    if len(raw) > EXPLAINED_BYTES_MAX:
        return UNEXPLAINED
    try:
        at = _blank(raw, at)
        while at < len(raw):
            at = _blank(raw, _value(raw, at))
    except _JsonFault as fault:
        return str(fault)
    return ""


def explain_one(raw: bytes) -> str:
    """Return the first fault of a text that must be one value; these faults have no offset."""
    if len(raw) > EXPLAINED_BYTES_MAX:
        return UNEXPLAINED
    try:
        at = _blank(raw, _value(raw, _blank(raw, 0)))
        if at < len(raw):
            raise _unexpected(raw, at, "after top-level value")
    except _JsonFault as fault:
        text = str(fault)
        return "unexpected end of JSON input" if text == ENDS_EARLY else _OFFSET.sub("", text)
    return ""


def _value(raw: bytes, at: int) -> int:
    """Return the end of the value that starts at `at`."""
    closers: list[bytes] = []
    while True:
        at = _blank(raw, at)
        opener = raw[at : at + 1]
        if opener in (b"{", b"["):
            closer = b"}" if opener == b"{" else b"]"
            inner = _blank(raw, at + 1)
            if raw[inner : inner + 1] != closer:
                closers.append(closer)
                at = _key(raw, inner) if closer == b"}" else inner
                continue
            at = inner + 1
        else:
            at = _scalar(raw, at)
        at, more = _after_value(raw, at, closers)
        if not more:
            return at


def _after_value(raw: bytes, at: int, closers: list[bytes]) -> tuple[int, bool]:
    """Close brackets that end here; return the next position, and whether a value must follow."""
    while closers:
        at = _blank(raw, at)
        found = raw[at : at + 1]
        if found == closers[-1]:
            closers.pop()
            at += 1
        elif found == b",":
            at = _blank(raw, at + 1)
            return (_key(raw, at) if closers[-1] == b"}" else at), True
        else:
            inside = "object key:value pair" if closers[-1] == b"}" else "array element"
            raise _unexpected(raw, at, f"after {inside}")
    return at, False


def _key(raw: bytes, at: int) -> int:
    """Return the start of the value after a key."""
    if raw[at : at + 1] != b'"':
        raise _unexpected(raw, at, "looking for beginning of object key string")
    at = _blank(raw, _string(raw, at))
    if raw[at : at + 1] != b":":
        raise _unexpected(raw, at, "after object key")
    return at + 1


def _scalar(raw: bytes, at: int) -> int:
    first = raw[at : at + 1]
    if first == b'"':
        return _string(raw, at)
    if first in _LITERALS:
        return _literal(raw, at, _LITERALS[first])
    if first and first in b"-0123456789":
        return _number(raw, at)
    raise _unexpected(raw, at, "looking for beginning of value")


def _string(raw: bytes, at: int) -> int:
    at += 1
    while True:
        at = _end(_PLAIN, raw, at)
        found = raw[at : at + 1]
        if found == b'"':
            return at + 1
        if found != b"\\":
            raise _unexpected(raw, at, "in string")
        escape = _ESCAPE.match(raw, at)
        if escape is None:
            raise _bad_escape(raw, at)
        at = escape.end()


def _bad_escape(raw: bytes, at: int) -> _JsonFault:
    is_unicode = raw[at + 1 : at + 2] == b"u"
    length = _UNICODE_ESCAPE_BYTES if is_unicode else 2
    shown = raw[at : at + length]
    if len(shown) < length and _HEX.fullmatch(shown, 2):
        return _JsonFault(ENDS_EARLY)
    return _JsonFault(
        f"invalid escape sequence {_quoted(shown)} in string at offset {at + len(shown)}"
    )


def _quoted(raw: bytes) -> str:
    """Quote with backquotes if all is printable and contains no backquote, else escape."""
    text = raw.decode("utf-8", "surrogateescape")
    if text.isprintable() and "`" not in text:
        return f"`{text}`"
    escaped = "".join(map(_shown, text)).replace('"', '\\"')
    return f'"{escaped}"'


def _shown(character: str) -> str:
    """Format a character, or a byte that is not part of one, for a message."""
    code = ord(character)
    if code in _NAMED:
        return f"\\{_NAMED[code]}"
    if character.isprintable():
        return character
    if _NO_CHARACTER <= code < _NO_CHARACTER + 0x100:
        return f"\\x{code - _NO_CHARACTER:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _literal(raw: bytes, at: int, literal: bytes) -> int:
    for index, want in enumerate(literal):
        if raw[at + index : at + index + 1] != bytes((want,)):
            expecting = f"in literal {literal.decode()} (expecting '{chr(want)}')"
            raise _unexpected(raw, at + index, expecting)
    return at + len(literal)


def _number(raw: bytes, at: int) -> int:
    if raw[at : at + 1] == b"-":
        at += 1
    at = at + 1 if raw[at : at + 1] == b"0" else _digits(raw, at)
    if raw[at : at + 1] == b".":
        at = _digits(raw, at + 1)
    if raw[at : at + 1] in (b"e", b"E"):
        at += 2 if raw[at + 1 : at + 2] in (b"+", b"-") else 1
        at = _digits(raw, at)
    return at


def _digits(raw: bytes, at: int) -> int:
    end = _end(_DIGITS, raw, at)
    if end == at:
        raise _unexpected(raw, at, "in numeric literal")
    return end


def _blank(raw: bytes, at: int) -> int:
    return _end(_BLANK, raw, at)


def _end(pattern: re.Pattern[bytes], raw: bytes, at: int) -> int:
    found = pattern.match(raw, at)
    assert found is not None, "the pattern matches nothing, too"
    return found.end()


def _unexpected(raw: bytes, at: int, where: str) -> _JsonFault:
    if at >= len(raw):
        return _JsonFault(ENDS_EARLY)
    character = raw[at : at + 4].decode("utf-8", "surrogateescape")[0]
    shown = "\\'" if character == "'" else _shown(character)
    end = at + len(character.encode("utf-8", "surrogateescape"))
    return _JsonFault(f"invalid character '{shown}' {where} at offset {end}")
