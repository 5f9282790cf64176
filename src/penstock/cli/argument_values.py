"""Convert command-line words to values; invalid words raise errors that `argparse` shows.

Durations are integer nanoseconds (`1h30m`, also days, weeks and years), sizes are bytes (`64KiB`,
`1GB`), times are RFC 3339 text or a duration before now. Each function is the `type=` of an
argument.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, Final

from penstock.base.durations import parse_duration
from penstock.base.units import SECOND_NS

DAY_NS: Final = 86_400 * SECOND_NS
LONG_UNITS_NS: Final = {"d": DAY_NS, "w": 7 * DAY_NS, "y": 365 * DAY_NS}
SIZE_UNITS: Final = {
    "": 1,
    "k": 1024,
    "m": 1024**2,
    "g": 1024**3,
    "t": 1024**4,
}
CONFIG_BYTES_MAX: Final = 16 * 1024**2

_LONG = re.compile(r"(\d+)([dwy])")
_SIZE = re.compile(r"(-?\d+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def duration(text: str) -> int:
    """Return the nanoseconds of `90s`, `1h30m` or `7d`."""
    total, rest = 0, text
    while found := _LONG.match(rest):
        total += int(found[1]) * LONG_UNITS_NS[found[2]]
        rest = rest[found.end() :]
    if not rest and total:
        return total
    try:
        return total + parse_duration(rest)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a duration: write it like 90s, 1h30m or 7d"
        ) from None


def positive_duration(text: str) -> int:
    """Return a duration above zero."""
    value = duration(text)
    if value <= 0:
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def size(text: str) -> int:
    """Return the bytes of `4096`, `64KiB` or `1GB`; a suffix counts in powers of 1024."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: write it like 4096 or 64KiB")
    return int(found[1]) * SIZE_UNITS[found[2].lower()]


def positive(text: str) -> int:
    """Return an integer above zero."""
    value = whole(text)
    if value <= 0:
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def whole(text: str) -> int:
    """Return an integer; its digits may be grouped."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def header(text: str) -> tuple[str, str]:
    """Split one header, `Name: value`."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or any(c.isspace() for c in name.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a header: write it like 'Name: value'")
    if "\r" in value or "\n" in value:
        raise argparse.ArgumentTypeError("a header is one line")
    return name.strip(), value.strip()


def pair(text: str) -> tuple[str, str]:
    """Split `key=value` of metadata."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not a pair: write it like key=value")
    return key, value


def moment(text: str) -> str:
    """Return the RFC 3339 text of a time, or of a duration before now."""
    from penstock.api.timestamps import format_time, parse_time

    try:
        return format_time(parse_time(text))
    except ValueError:
        pass
    try:
        ago = duration(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a time like 2026-01-31T12:00:00Z nor a duration like 1h"
        ) from None
    import time

    return format_time(time.time_ns() - ago)


def document(text: str) -> dict[str, Any]:
    """Read a JSON object from a file; `-` reads standard input."""
    try:
        raw = sys.stdin.read(CONFIG_BYTES_MAX) if text == "-" else Path(text).read_text("utf-8")
        value = json.loads(raw)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from None
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text}: not a JSON object")
    return value
