"""The `Nats-TTL` header: the lifetime of a single message.

The value is a whole number of seconds, a duration of at least one second (fractions are truncated),
or `never`. `00`, which the reference reads as no TTL, means no TTL here too.
"""

from __future__ import annotations

from typing import Final

from penstock.base.durations import parse_duration
from penstock.base.units import SECOND_NS
from penstock.store.contract import TTL_NEVER

DEADLINE_NS_MAX: Final = 2**63 - 1
"""The last representable time, in the year 2262: a longer TTL ends there."""

_NUMBERS: Final = 2**64


def parse_ttl(value: bytes) -> int | None:
    """Parse a TTL: seconds, 0 for none, TTL_NEVER, or None if it is invalid."""
    if value.lower() == b"never":
        return TTL_NEVER
    text = value.decode("utf-8", "replace")
    try:
        duration_ns = parse_duration(text)
    except ValueError:
        return _plain_seconds(value)
    return duration_ns // SECOND_NS if duration_ns >= SECOND_NS else None


def _plain_seconds(value: bytes) -> int | None:
    if not value.isdigit() or len(value) > len(str(_NUMBERS)):
        return None
    # The reference counts in signed 64-bit integers and rejects values that wrap around to a
    # negative number.
    seconds = int(value) % _NUMBERS
    return seconds if seconds < _NUMBERS // 2 else None


def ttl_ns(seconds: int, ts_ns: int) -> int:
    """Return the TTL in the store's unit, limited so that the deadline does not overflow."""
    if seconds <= 0:
        return seconds
    return min(seconds * SECOND_NS, DEADLINE_NS_MAX - ts_ns)
