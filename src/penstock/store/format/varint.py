"""Unsigned integers of up to 64 bits in as few bytes as they need.

Seven bits a byte, least significant first; the top bit says that another byte follows. Every
number has exactly one spelling: a longer one, or one above 64 bits, is refused, so that equal
values have equal bytes and a damaged length cannot run away.
"""

from __future__ import annotations

from typing import Final

U64_MAX: Final = 2**64 - 1
_MORE: Final = 0x80
_BITS: Final = 0x7F
_SHIFT_MAX: Final = 63


def put_uvarint(out: bytearray, value: int) -> None:
    """Appends a number that is not negative and has at most 64 bits."""
    while value > _BITS:
        out.append(value & _BITS | _MORE)
        value >>= 7
    out.append(value)


def read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    """The number at an offset and the offset behind it. ValueError: cut off, too long, too big."""
    value = shift = 0
    while at < len(data) and shift <= _SHIFT_MAX:
        byte = data[at]
        at += 1
        value |= (byte & _BITS) << shift
        if byte < _MORE:
            if value > U64_MAX or (byte == 0 and shift):
                raise ValueError(f"number before offset {at} is too big or not the short form")
            return value, at
        shift += 7
    raise ValueError(f"number before offset {at} does not end")
