"""Format and parse X.509 names as the reference does.

A configured user may be named by the subject of its certificate. `format_subject` formats a name as
Go's certificate library does: attribute types in a fixed order, the most specific first.
`parse_name` parses the RFC 4514 text of a user name into parts and returns None for other text:
most user names, such as `alice`, are not X.509 names.
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
    """Format a certificate's subject as one line; only types in SUBJECT_ORDER are included."""
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
    """Parse `CN=a+OU=b,O=c` into its parts; return None if the text is not such a name."""
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
    """Remove blanks around a value, except an escaped one."""
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
