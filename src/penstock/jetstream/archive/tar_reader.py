"""Reads a tar archive incrementally: its files, and their bytes as they arrive.

Accepts only what the reference writes: regular files, and extended (PAX) headers for values that do
not fit the plain ones. The caller takes a file's bytes in the amounts it wants. File names are
never used as paths; this module opens no file.
"""

from __future__ import annotations

import tarfile
from typing import Final, NamedTuple

BLOCK_BYTES: Final = 512
EXTENDED_BYTES_MAX: Final = 1 << 20
"""Largest extended header."""

_EXTENDED: Final = b"x"


class TarMember(NamedTuple):
    """The header of a file."""

    name: str
    size: int


class TarFeed:
    """Turns bytes into files. Raises ValueError on malformed input."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._left = 0
        """Bytes of the current file that are not taken yet."""
        self._padding = 0
        self.is_whole = False
        """Whether the end of the archive was read."""

    def feed(self, data: bytes) -> None:
        """Append bytes of the archive; after its end there is only padding, which is ignored."""
        if not self.is_whole:
            self._buffer += data

    @property
    def left(self) -> int:
        """Return how many bytes of the current file are not taken yet."""
        return self._left

    def take(self, n: int) -> bytes | None:
        """Return `n` bytes of the current file; None if they have not arrived yet."""
        if n > self._left:
            raise ValueError("a file ends before it should")
        if len(self._buffer) < n:
            return None
        data = bytes(self._buffer[:n])
        del self._buffer[:n]
        self._left -= n
        return data

    def member(self) -> TarMember | None:
        """Return the next file; None if its header is incomplete or there is none.

        The caller must have taken all bytes of the previous file.
        """
        if self._left:
            raise ValueError("the file before has not been read")
        names: dict[str, str] = {}
        at = self._padding
        while len(self._buffer) >= at + BLOCK_BYTES:
            block = bytes(self._buffer[at : at + BLOCK_BYTES])
            if not any(block):
                self.is_whole = True
                self._buffer.clear()
                return None
            info = _header(block)
            at += BLOCK_BYTES
            if info.type == tarfile.REGTYPE:
                return self._begin(at, names, info)
            if info.type != _EXTENDED or info.size > EXTENDED_BYTES_MAX:
                raise ValueError("unexpected content")
            stop = at + info.size
            if len(self._buffer) < stop:
                return None
            names = _extended(bytes(self._buffer[at:stop]))
            at = stop + -info.size % BLOCK_BYTES
        return None

    def _begin(self, at: int, names: dict[str, str], info: tarfile.TarInfo) -> TarMember:
        del self._buffer[:at]
        size = int(names.get("size", info.size))
        if size < 0:
            raise ValueError("a file of less than nothing")
        self._left = size
        self._padding = -size % BLOCK_BYTES
        return TarMember(names.get("path", info.name), size)


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.TarError as error:
        raise ValueError(str(error)) from error


def _extended(data: bytes) -> dict[str, str]:
    """Parse the records of an extended header: `<length> <key>=<value>\\n`, repeated."""
    found: dict[str, str] = {}
    at = 0
    while at < len(data):
        digits, blank, _ = data[at : at + 12].partition(b" ")
        length = int(digits) if blank and digits.isdigit() else 0
        record = data[at + len(digits) + 1 : at + length]
        key, equals, value = record.partition(b"=")
        if not equals or not record.endswith(b"\n") or length <= 0:
            raise ValueError("an extended header says nothing")
        found[key.decode()] = value[:-1].decode("utf-8", "surrogateescape")
        at += length
    return found
