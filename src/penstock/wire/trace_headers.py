"""Headers that ask for a trace of a message, read as the reference reads them.

`read_trace` returns None for a block that asks for nothing. `Nats-Trace-Dest` asks by itself;
`traceparent` (W3C trace context, in any case) asks only where the account has a destination.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

DEST: Final = b"Nats-Trace-Dest"
ONLY: Final = "Nats-Trace-Only"
ORIGIN_ACCOUNT: Final = "Nats-Trace-Origin-Account"
DISABLED: Final = b"trace disabled"
"""The value of `Nats-Trace-Dest` that ends a trace; no subject, so nothing can be sent there."""
ACCEPT_ENCODING: Final = "Accept-Encoding"

_FIRST_LINE: Final = b"NATS/1.0\r\n"
_PARENT: Final = b"traceparent"
_PARENT_PARTS: Final = 4
_FLAGS: Final = re.compile(rb"[+-][0-9a-fA-F]|[0-7][0-9a-fA-F]")
"""Two characters that Go's ParseInt takes as eight bits with a sign."""
_YES: Final = ("1", "true", "on")


class TraceRequest(NamedTuple):
    """What a header block asks for."""

    headers: dict[str, list[str]]
    """Every line with a key and a value, keys as they are spelled."""
    is_external: bool
    """Asked for by `traceparent` alone: the account decides where the trace goes."""

    def first(self, key: str) -> str:
        return self.headers.get(key, [""])[0]

    @property
    def dest(self) -> str:
        return self.first(DEST.decode())

    @property
    def is_only(self) -> bool:
        """Whether the message is to be traced and not delivered."""
        return not self.is_external and self.first(ONLY).lower() in _YES


def read_trace(header: bytes) -> TraceRequest | None:
    """Return what the block asks for; None: no trace."""
    if not header.startswith(_FIRST_LINE):
        return None
    found: dict[str, list[str]] = {}
    has_dest = has_parent = False
    for key, value in _lines(header):
        if not has_parent and key.lower() == _PARENT:
            has_parent = _is_sampled(value)
        elif not has_dest and key == DEST:
            if value == DISABLED:
                return None
            has_dest = True
        found.setdefault(_text(key), []).append(_text(value))
    if not has_dest and not has_parent:
        return None
    return TraceRequest(found, is_external=not has_dest)


def _lines(header: bytes) -> list[tuple[bytes, bytes]]:
    """Return key and value of every line that has both."""
    found = []
    at = len(_FIRST_LINE)
    while at < len(header):
        colon = header.find(b":", at)
        stop = header.find(b"\r\n", colon + 1)
        if colon < 0 or stop < 0:
            break
        key, value = header[at:colon], header[colon + 1 : stop].strip(b" \t")
        if key and value:
            found.append((key, value))
        at = stop + 2
    return found


def _is_sampled(value: bytes) -> bool:
    parts = value.split(b"-")
    if len(parts) != _PARENT_PARTS or not _FLAGS.fullmatch(parts[-1]):
        return False
    return bool(int(parts[-1], 16) & 1)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
