"""Headers that request a trace of a message, parsed as the reference does.

`read_trace` returns None for a block without such a request. `Nats-Trace-Dest` is a request by
itself; `traceparent` (W3C trace context, in any case) only if the account has a trace destination.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

DEST: Final = b"Nats-Trace-Dest"
ONLY: Final = "Nats-Trace-Only"
ORIGIN_ACCOUNT: Final = "Nats-Trace-Origin-Account"
DISABLED: Final = b"trace disabled"
"""The value of `Nats-Trace-Dest` that ends a trace; not a subject, so nothing can be sent to it."""
ACCEPT_ENCODING: Final = "Accept-Encoding"

_FIRST_LINE: Final = b"NATS/1.0\r\n"
_PARENT: Final = b"traceparent"
_PARENT_PARTS: Final = 4
_FLAGS: Final = re.compile(rb"[+-][0-9a-fA-F]|[0-7][0-9a-fA-F]")
"""Two characters that Go's ParseInt accepts as a signed 8-bit number."""
_YES: Final = ("1", "true", "on")


class TraceRequest(NamedTuple):
    """The trace request of a header block."""

    headers: dict[str, list[str]]
    """Every line with a key and a value, keys spelled as received."""
    is_external: bool
    """Requested only by `traceparent`: the account sets the trace destination."""

    def first(self, key: str) -> str:
        return self.headers.get(key, [""])[0]

    @property
    def dest(self) -> str:
        return self.first(DEST.decode())

    @property
    def is_only(self) -> bool:
        """Return whether the message is to be traced and not delivered."""
        return not self.is_external and self.first(ONLY).lower() in _YES


def read_trace(header: bytes) -> TraceRequest | None:
    """Return the trace request of the block, or None."""
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
