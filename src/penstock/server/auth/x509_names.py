"""X.509 names as text, the way the reference writes and reads them.

A user of the configuration may be called by the subject of its certificate. `format_subject`
writes a name as Go's certificate library does: a fixed order of attribute types, the most special
first. `parse_name` reads the RFC 4514 text of a user name back into parts, and gives None for
text that is no name; user names such as `alice` are the ordinary case, not an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.server.auth.login_values import Attribute, DistinguishedName

SHORT_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.5": "SERIALNUMBER",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.17": "POSTALCODE",
    "0.9.2342.19200300.100.1.25": "DC",
}
SUBJECT_ORDER: Final = ("SERIALNUMBER", "CN", "POSTALCODE", "STREET", "ST", "L", "OU", "O", "C")

_SINGLE_VALUED: Final = frozenset(("CN", "SERIALNUMBER"))
_ESCAPED: Final = frozenset(',+"\\<>;')
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")


def format_subject(attributes: Iterable[Attribute]) -> str:
    """The subject of a certificate as one line, without attribute types of no short name."""
    found: dict[str, list[str]] = {}
    for kind, value in attributes:
        values = found.setdefault(kind, [])
        if kind in _SINGLE_VALUED:
            values.clear()
        values.append(value)
    parts = (
        "+".join(f"{kind}={_escape(value)}" for value in found[kind])
        for kind in SUBJECT_ORDER
        if kind in found
    )
    return ",".join(parts)


def parse_name(text: str) -> DistinguishedName | None:
    """Read `CN=a+OU=b,O=c` into its parts, or give None when the text is no such name."""
    parts: list[frozenset[Attribute]] = []
    for part in _split(text, ","):
        attributes = [_attribute(piece) for piece in _split(part, "+")]
        known = frozenset(attribute for attribute in attributes if attribute is not None)
        if len(known) != len(attributes):
            return None
        parts.append(known)
    return tuple(parts)


def _attribute(text: str) -> Attribute | None:
    kind, equals, value = text.partition("=")
    kind = kind.strip().upper()
    if not equals or not kind:
        return None
    plain = _unescape(_strip(value))
    return None if plain is None else (SHORT_NAMES.get(kind, kind), plain)


def _split(text: str, separator: str) -> Iterator[str]:
    start = position = 0
    while position < len(text):
        if text[position] == "\\":
            position += 1
        elif text[position] == separator:
            yield text[start:position]
            start = position + 1
        position += 1
    yield text[start:]


def _strip(value: str) -> str:
    """Drop blanks around a value, but not one that is escaped."""
    stripped = value.strip(" ")
    backslashes = len(stripped) - len(stripped.rstrip("\\"))
    escapes_blank = backslashes % 2 == 1 and value.rstrip(" ") != value
    return f"{stripped} " if escapes_blank else stripped


def _unescape(value: str) -> str | None:
    out = bytearray()
    position = 0
    while position < len(value):
        char = value[position]
        position += 1
        if char != "\\":
            out += char.encode("utf-8", "surrogatepass")
            continue
        pair = value[position : position + 2]
        if len(pair) == 2 and _HEX_DIGITS.issuperset(pair):
            out.append(int(pair, 16))
            position += 2
        elif pair:
            out += pair[0].encode("utf-8", "surrogatepass")
            position += 1
        else:
            return None
    return out.decode("utf-8", "replace")


def _escape(value: str) -> str:
    out = "".join(f"\\{char}" if char in _ESCAPED else char for char in value)
    if out[:1] in ("#", " "):
        out = f"\\{out}"
    if len(value) > 1 and value.endswith(" "):
        out = f"{out[:-1]}\\ "
    return out
