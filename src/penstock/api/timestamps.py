"""Convert times to and from RFC 3339 text with up to nine fractional digits.

Internally a time is nanoseconds since 1970. `datetime` stops at microseconds, so this module
handles the fraction. 0 means no time and is written as the first instant of the year 1, the
reference's zero time. The accepted formats and the error texts are the reference's.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from penstock.base.units import SECOND_NS

ZERO_TIME: Final = "0001-01-01T00:00:00Z"
SECONDS_KEPT: Final = 256
"""Number of seconds whose text is cached."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: The years 1 to 9999. Earlier times become 0 and later ones the last second, so that every time
#: that was read can be written.
_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799
_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"
_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FEBRUARY: Final = 2

#: Parts of the layout in order: the name in error texts, and the pattern.
_PARTS: Final = (
    ("2006", re.compile(r"(\d{4})")),
    ("-", re.compile("-")),
    ("01", re.compile(r"(\d{2})")),
    ("-", re.compile("-")),
    ("02", re.compile(r"(\d{2})")),
    ("T", re.compile("T")),
    ("15", re.compile(r"(\d{1,2})")),
    (":", re.compile(":")),
    ("04", re.compile(r"(\d{2})")),
    (":", re.compile(":")),
    ("05", re.compile(r"(\d{2})(?:[.,](\d+))?")),
    ("Z07:00", re.compile(r"(Z|[+-]\d{2}:\d{2})")),
)


class TimeFault(ValueError):
    """Text that is not a time; the message is the reference's text."""


def format_time(ns: int) -> str:
    """Format a time as RFC 3339 in UTC, without trailing zeros in the fraction."""
    if ns == 0:
        return ZERO_TIME
    seconds, fraction = divmod(ns, SECOND_NS)
    return f"{_whole(seconds)}{f'.{fraction:09}'.rstrip('0') if fraction else ''}Z"


@lru_cache(SECONDS_KEPT)
def _whole(seconds: int) -> str:
    """Format a second; cached, because many messages share the same second."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()[: len("2006-01-02T15:04:05")]


def parse_time(text: str) -> int:
    """Return nanoseconds since 1970; raise `TimeFault` if the text is not a time."""
    values: list[str] = []
    fault = ""
    at = 0
    for name, pattern in _PARTS:
        found = pattern.match(text, at)
        if found is None:
            rest = _quoted(text[at:])
            raise TimeFault(
                f'parsing time {_quoted(text)} as "{_LAYOUT}": cannot parse {rest} as "{name}"'
            )
        values += [group or "" for group in found.groups()]
        at = found.end()
        fault = fault or _range_fault(name, values)
    if at < len(text) and not fault:
        fault = f"extra text: {_quoted(text[at:])}"
    if fault:
        raise TimeFault(f"parsing time {_quoted(text)}: {fault}")
    return _assemble(values)


def _range_fault(part: str, values: list[str]) -> str:
    """Return what is out of range in the last part read, in the reference's words, or ""."""
    faults = {
        "01": ("month", 1, 12),
        "02": ("day", 1, _days_of_month(values)),
        "15": ("hour", 0, 23),
        "04": ("minute", 0, 59),
    }
    if part in faults:
        name, least, most = faults[part]
        return "" if least <= int(values[-1]) <= most else f"{name} out of range"
    if part == "05":
        return "" if int(values[5]) < 60 else "second out of range"
    if part == "Z07:00" and values[-1] != "Z":
        return _zone_fault(values[-1])
    return ""


def _zone_fault(zone: str) -> str:
    if int(zone[1:3]) > 24:
        return "time zone offset hour out of range"
    return "time zone offset minute out of range" if int(zone[4:6]) > 60 else ""


def _days_of_month(values: list[str]) -> int:
    if len(values) < _FEBRUARY:
        return 0
    year, month = int(values[0]), int(values[1])
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if month == _FEBRUARY and not is_leap:
        return 28
    return _DAYS[(month - 1) % 12]


def _assemble(values: list[str]) -> int:
    year, month, day, hour, minute, second = map(int, values[:6])
    fraction, zone = values[6], values[7]
    if year == 0:
        return 0
    since = datetime(year, month, day, hour, minute, second, tzinfo=UTC) - _EPOCH
    seconds = since.days * 86_400 + since.seconds
    if zone != "Z":
        offset = int(zone[1:3]) * 3_600 + int(zone[4:6]) * 60
        seconds += offset if zone[0] == "-" else -offset
    if seconds <= _FIRST_SECOND:
        return 0
    return min(seconds, _LAST_SECOND) * SECOND_NS + int(fraction[:9].ljust(9, "0"))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
