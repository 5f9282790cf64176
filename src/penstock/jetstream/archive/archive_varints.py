"""Reads varints and byte strings in sequence, in the encoding of the reference's files."""

from __future__ import annotations

from penstock.records.varint_rows import unpack


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
