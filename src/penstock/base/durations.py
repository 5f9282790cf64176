"""Durations in Go notation (`1h30m`, `250ms`, `-1.5s`), parsed and formatted, in nanoseconds.

Configuration files, message headers and status lines use this notation. No floats are involved: a
formatted duration parses to the same value. Errors are `ValueError`s with Go's texts.
"""

from __future__ import annotations

import re
from typing import Final

DURATION_NS_MAX: Final = 2**63 - 1

_UNIT_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, micro sign
    "μs": 1_000,  # U+03BC, Greek mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_DURATION_PART = re.compile(r"([0-9]*)(\.([0-9]*))?([^0-9.]*)")


def parse_duration(text: str) -> int:
    """Return the nanoseconds of a Go duration; raises ValueError that names the wrong part."""
    rest, sign = text, 1
    if rest[:1] in ("+", "-"):
        sign = -1 if rest[0] == "-" else 1
        rest = rest[1:]
    if rest == "0":
        return 0
    if not rest:
        raise ValueError(f'time: invalid duration "{text}"')
    total = 0
    while rest:
        part_ns, rest = _duration_part(rest, text)
        total += part_ns
    if total > DURATION_NS_MAX:
        raise ValueError(f'time: invalid duration "{text}"')
    return sign * total


def _duration_part(rest: str, text: str) -> tuple[int, str]:
    found = _DURATION_PART.match(rest)
    assert found is not None  # every group may be empty
    whole, dot, fraction, unit = found.groups()
    if not whole and not fraction:
        raise ValueError(f'time: invalid duration "{text}"')
    if not unit:
        raise ValueError(f'time: missing unit in duration "{text}"')
    scale = _UNIT_NS.get(unit)
    if scale is None:
        raise ValueError(f'time: unknown unit "{unit}" in duration "{text}"')
    part_ns = int(whole or "0") * scale
    if dot and fraction:
        part_ns += int(fraction) * scale // 10 ** len(fraction)
    return part_ns, rest[found.end() :]


def format_duration(nanos: int) -> str:
    """Return the shortest Go notation of a duration: `2m0s`, `1.5s`, `250ms`, `0s`."""
    sign, rest = ("-", -nanos) if nanos < 0 else ("", nanos)
    if rest == 0:
        return "0s"
    for unit, scale in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
        if rest < scale * 1_000:
            return f"{sign}{_decimal(rest, scale)}{unit}"
    minutes, seconds_ns = divmod(rest, _UNIT_NS["m"])
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_decimal(seconds_ns, _UNIT_NS['s'])}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def _decimal(value: int, scale: int) -> str:
    whole, part = divmod(value, scale)
    if not part:
        return str(whole)
    digits = len(str(scale)) - 1
    return f"{whole}.{part:0{digits}d}".rstrip("0")
