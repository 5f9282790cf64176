"""Reads a tar archive piece by piece: the files in it, and their bytes as they come.

Only what the reference writes is taken: regular files, and extended (PAX) headers for what does not
fit the plain ones. A file's bytes are not kept here; whoever reads takes them in the amounts it
wants. Names are names, nothing is opened.
"""

from __future__ import annotations

import tarfile
from typing import Final, NamedTuple

BLOCK_BYTES: Final = 512
EXTENDED_BYTES_MAX: Final = 1 << 20
"""Of one extended header."""

_EXTENDED: Final = b"x"


class TarMember(NamedTuple):
    """A file begins."""

    name: str
    size: int


class TarFeed:
    """Bytes in, files out. Errors are ValueErrors."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._left = 0
        """Of the present file."""
        self._padding = 0
        self.is_whole = False
        """Whether the end of the archive was read."""

    def feed(self, data: bytes) -> None:
        """More of the archive; behind its end there is only padding."""
        if not self.is_whole:
            self._buffer += data

    @property
    def left(self) -> int:
        """Bytes of the present file that have not been taken."""
        return self._left

    def take(self, n: int) -> bytes | None:
        """So many bytes of the present file, or None if they are not there yet."""
        if n > self._left:
            raise ValueError("a file ends before it should")
        if len(self._buffer) < n:
            return None
        data = bytes(self._buffer[:n])
        del self._buffer[:n]
        self._left -= n
        return data

    def member(self) -> TarMember | None:
        """The next file; None if its header is not all there, or there is none.

        What was not taken of the file before must have been.
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
    """`<length> <key>=<value>\\n`, again and again."""
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
