"""Unsigned integers of up to 64 bits in as few bytes as they need.

Seven bits per byte, least significant first; the top bit means that another byte follows. Every
number has exactly one encoding: the reader refuses a longer one, or one above 64 bits. So equal
values have equal bytes, and a damaged length cannot grow without bound.
"""

from __future__ import annotations

from typing import Final

from penstock.records.varint_rows import unpack

U64_MAX: Final = 2**64 - 1
_MORE: Final = 0x80
_BITS: Final = 0x7F
_SHIFT_MAX: Final = 63


def put_uvarint(out: bytearray, value: int) -> None:
    """Append a non-negative number of at most 64 bits."""
    while value > _BITS:
        out.append(value & _BITS | _MORE)
        value >>= 7
    out.append(value)


def read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at an offset and the offset after it.

    Raises ValueError if it is cut off, too long or too big.
    """
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


def unzigzag(number: int) -> int:
    """Return the signed number that a zigzag-encoded one stands for."""
    return -(number >> 1) - 1 if number & 1 else number >> 1


def zigzag(number: int) -> int:
    """Return the zigzag encoding of a signed 64-bit number."""
    return number << 1 if number >= 0 else (-number << 1) - 1


class Varints:
    """Reads from an offset on; raises ValueError where the bytes end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    def unsigned(self) -> int:
        found = unpack(self._data, self._at, 1)
        if found is None:
            raise ValueError("the bytes end too early")
        [number], self._at = found
        return number

    def signed(self) -> int:
        return unzigzag(self.unsigned())

    def take(self, n: int) -> bytes:
        """Return the next `n` bytes."""
        stop = self._at + n
        if stop > len(self._data):
            raise ValueError("the bytes end too early")
        data, self._at = self._data[self._at : stop], stop
        return data
