"""Durations, sizes and addresses as the configuration language writes them.

Durations are the Go notation (`1h30m`, `250ms`, `-1.5s`) turned into integer nanoseconds, exactly:
no float is involved. Sizes are integers with a decimal (`k`) or binary (`kb`, `ki`, `kib`) suffix.
Refusals are `ValueError`s whose text is fit for the person who wrote the file.
"""

from __future__ import annotations

import re

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

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

_DECIMAL = {letter: 10 ** (3 * power) for power, letter in enumerate("kmgtpe", 1)}
_BINARY = {letter: 1 << (10 * power) for power, letter in enumerate("kmgtpe", 1)}
_BINARY_ENDINGS = {"b", "i", "ib"}
_INTEGER = re.compile(r"(-?[0-9]+)([A-Za-z]*)")


def parse_duration(text: str) -> int:
    """Nanoseconds of a Go duration; raises ValueError saying which part is wrong."""
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
    if total > INT64_MAX:
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
    """The shortest Go notation of a duration: `2m0s`, `1.5s`, `250ms`, `0s`."""
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


def seconds_to_ns(seconds: float) -> int:
    """Timeouts in configuration files may be plain seconds, whole or not."""
    return round(seconds * 1_000_000_000)


def parse_integer(text: str) -> int | None:
    """An integer with its size suffix; None when `text` is no such number.

    Raises ValueError when it is one but does not fit 64 bits.
    """
    found = _INTEGER.fullmatch(text)
    if found is None:
        return None
    scale = _suffix_scale(found[2].lower())
    if scale is None:
        return None
    number = int(found[1]) * scale
    if not INT64_MIN <= number <= INT64_MAX:
        raise ValueError(f"integer '{text}' is out of the range")
    return number


def _suffix_scale(suffix: str) -> int | None:
    if not suffix:
        return 1
    if len(suffix) == 1:
        return _DECIMAL.get(suffix)
    return _BINARY.get(suffix[0]) if suffix[1:] in _BINARY_ENDINGS else None


def split_host_port(address: str) -> tuple[str, str]:
    """`host:port` or `[v6]:port`; raises ValueError when it is neither."""
    if address.startswith("["):
        host, bracket, port = address[1:].partition("]")
        if not bracket or not port.startswith(":") or "[" in host:
            raise ValueError(address)
        return host, port[1:]
    host, colon, port = address.rpartition(":")
    if not colon or ":" in host or "[" in host or "]" in host:
        raise ValueError(address)
    return host, port


def parse_port(text: str) -> int:
    """A port number as Go reads it: an optional sign and ASCII digits."""
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError(text)
    return int(text)
