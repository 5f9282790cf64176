"""Parse sizes, seconds and addresses of the configuration language.

Sizes are integers with a decimal (`k`) or binary (`kb`, `ki`, `kib`) suffix. Durations with units
are in `penstock.base.durations`. Invalid text raises `ValueError`, with a text for the author of
the file.
"""

from __future__ import annotations

import re

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

_DECIMAL = {letter: 10 ** (3 * power) for power, letter in enumerate("kmgtpe", 1)}
_BINARY = {letter: 1 << (10 * power) for power, letter in enumerate("kmgtpe", 1)}
_BINARY_ENDINGS = {"b", "i", "ib"}
_INTEGER = re.compile(r"(-?[0-9]+)([A-Za-z]*)")


def seconds_to_ns(seconds: float) -> int:
    """Convert seconds, possibly fractional, to nanoseconds; timeouts may be plain seconds."""
    return round(seconds * 1_000_000_000)


def parse_integer(text: str) -> int | None:
    """Return an integer with its size suffix applied; None if `text` is not such a number.

    Raises ValueError if it is one but does not fit 64 bits.
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
    """Split `host:port` or `[v6]:port`; raise ValueError if it is neither."""
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
    """Return a port number as Go parses it: an optional sign and ASCII digits."""
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError(text)
    return int(text)
