"""Text formatting of the reference's error and log lines.

Bytes that are not UTF-8 arrive here as lone surrogates (`surrogateescape`), because subjects are
bytes on the wire and text in the layers above.
"""

from __future__ import annotations

from typing import Final

_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}
_BYTE_SURROGATES: Final = 0xDC00
"""`surrogateescape` writes the byte 0xNN as the code point 0xDCNN."""


def is_utf8(text: str) -> bool:
    """Return whether the text encodes to valid UTF-8, as JSON requires."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def go_quoted(text: str) -> str:
    """Return the text in double quotes with the escapes of Go's %q."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(letter: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    if letter.isprintable():
        return letter
    code = ord(letter)
    if _BYTE_SURROGATES <= code <= _BYTE_SURROGATES + 0xFF:
        return f"\\x{code - _BYTE_SURROGATES:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
