"""Formats of monitoring values: times, durations, numbers and text, as in the reference.

Scrapers and test suites parse these formats, so they are exact: RFC 3339 with trailing zeros cut,
uptimes as `1d2h3m4s`, durations as Go prints them, whole floats without a point. All functions are
pure and read no clock.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from penstock.base.units import SECOND_NS

MILLISECOND_NS: Final = 1_000_000
MICROSECOND_NS: Final = 1_000
INDENT: Final = 2
#: Characters that Go's encoder always escapes, because browsers may take JSON for HTML.
_HTML_ESCAPES: Final = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
)
_DURATION_UNITS: Final = ((1_000, "ns"), (1_000_000, "µs"), (SECOND_NS, "ms"))


def timestamp(ns: int) -> str:
    """Format nanoseconds since the epoch as RFC 3339, in UTC."""
    seconds, fraction = divmod(ns, SECOND_NS)
    moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}{_fraction(fraction, 9)}Z"


def uptime(ns: int) -> str:
    """Format a time span in whole seconds, with days and years: `1y2d3h4m5s`."""
    seconds = max(ns, 0) // SECOND_NS
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    years = days // 365
    parts = (
        (years, f"{years}y"),
        (days, f"{days % 365}d"),
        (hours, f"{hours % 24}h"),
        (minutes, f"{minutes % 60}m"),
    )
    return "".join(text for total, text in parts if total) + f"{seconds % 60}s"


def duration(ns: int) -> str:
    """Format a duration as Go does: `752µs`, `1.5ms`, `2m3.5s`, `0s`."""
    if ns == 0:
        return "0s"
    below = 1
    for above, unit in _DURATION_UNITS:
        if ns < above:
            whole, rest = divmod(ns, below)
            return f"{whole}{_fraction(rest, len(str(below)) - 1)}{unit}"
        below = above
    seconds, fraction = divmod(ns, SECOND_NS)
    minutes, hours = seconds // 60, seconds // 3600
    text = f"{seconds % 60}{_fraction(fraction, 9)}s"
    if minutes:
        text = f"{minutes % 60}m{text}"
    return f"{hours}h{text}" if hours else text


def round_trip(ns: int) -> str:
    return duration(round_trip_ns(ns))


def round_trip_ns(ns: int) -> int:
    """Round a measured time for display: below a millisecond, to whole microseconds."""
    if MICROSECOND_NS < ns < MILLISECOND_NS:
        return ns - ns % MICROSECOND_NS
    return max(ns, 0)


def number(value: float) -> float:
    """Return an int for a whole float, so that JSON shows it without a point."""
    return int(value) if value == int(value) else value


def clean(text: str) -> str:
    """Replace bytes from clients that are not UTF-8, because JSON must be."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def compact(value: object) -> bytes:
    """Encode as JSON on one line, safe to show in a browser."""
    encoded = msgspec.json.encode(value)
    for plain, escaped in _HTML_ESCAPES:
        encoded = encoded.replace(plain, escaped)
    return encoded


def pretty(value: object) -> bytes:
    """Encode as indented JSON."""
    return msgspec.json.format(compact(value), indent=INDENT)


def _fraction(part: int, digits: int) -> str:
    text = f"{part:0{digits}d}".rstrip("0") if part else ""
    return f".{text}" if text else ""
