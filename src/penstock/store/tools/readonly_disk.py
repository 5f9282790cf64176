"""A disk overlay for read-only tools: reads come from the disk below, changes stay in memory.

Opening a store repairs what it finds, but an operator's query must not change anything, so tools
open stores on an overlay. The first write to a file copies it into memory; the cost is what
would have been written, not the size of the store. Nothing ever reaches the disk below: syncs do
nothing, and no lock is taken.
"""

from __future__ import annotations

import errno as codes
from typing import TYPE_CHECKING, Final

from penstock.store.errors import NotFound, failure
from penstock.store.io.disk import File, check_name

if TYPE_CHECKING:
    from penstock.store.io.disk import Bytes, Disk

_IN_MEMORY: Final = -2
"""The descriptor of a file that exists only in memory."""


class OverlayDisk:
    """A directory, with changes that only this object sees."""

    def __init__(self, below: Disk) -> None:
        self._below = below
        self._changed: dict[str, bytearray] = {}
        self._deleted: set[str] = set()
        self._open: dict[File, bytearray] = {}
        self._made: dict[str, OverlayDisk] = {}

    @property
    def path(self) -> str:
        return self._below.path

    @property
    def descriptors(self) -> None:
        return None

    # -- files

    def open(self, name: str, *, create: bool = False, writable: bool = True) -> File:
        check_name(self.path, "open", name)
        if name in self._changed:
            return self._handle(name)
        if name not in self._deleted:
            try:
                return self._below.open(name, writable=False)
            except NotFound:
                if not create:
                    raise
        elif not create:
            raise failure(f"{self.path}/{name}", "open", codes.ENOENT)
        self._changed[name] = bytearray()
        return self._handle(name)

    def create(self, name: str) -> File:
        check_name(self.path, "open", name)
        if name in self.files():
            raise failure(f"{self.path}/{name}", "open", codes.EEXIST)
        return self.open(name, create=True)

    def _handle(self, name: str) -> File:
        file = File(name, _IN_MEMORY, 0)
        self._open[file] = self._changed[name]
        return file

    def close_file(self, file: File) -> None:
        if self._open.pop(file, None) is None:
            self._below.close_file(file)
        else:
            file.detach()

    def pread(self, file: File, n: int, offset: int) -> bytes:
        data = self._data(file)
        if data is None:
            return self._below.pread(file, n, offset)
        return bytes(data[offset : offset + n])

    def size(self, file: File) -> int:
        data = self._data(file)
        return self._below.size(file) if data is None else len(data)

    def _data(self, file: File) -> bytearray | None:
        """Return the bytes of an open file if it was changed here, through any handle."""
        return self._open.get(file, self._changed.get(file.name))

    def _writable(self, file: File) -> bytearray:
        data = self._data(file)
        if data is None:
            whole = self._below.pread(file, self._below.size(file), 0)
            data = self._changed[file.name] = bytearray(whole)
        return data

    def pwrite(self, file: File, data: Bytes, offset: int) -> None:
        whole = self._writable(file)
        if len(whole) < offset:
            whole.extend(bytes(offset - len(whole)))
        whole[offset : offset + len(data)] = data

    def truncate(self, file: File, size: int) -> None:
        whole = self._writable(file)
        del whole[size:]
        whole.extend(bytes(size - len(whole)))

    def preallocate(self, file: File, size: int) -> None:
        whole = self._writable(file)
        whole.extend(bytes(max(0, size - len(whole))))

    def fdatasync(self, file: File) -> None:
        """Do nothing: no change is kept."""

    def read_small(self, name: str, bytes_max: int) -> bytes:
        file = self.open(name, writable=False)
        try:
            data = self.pread(file, bytes_max + 1, 0)
        finally:
            self.close_file(file)
        if len(data) > bytes_max:
            raise failure(f"{self.path}/{name}", "read", codes.EFBIG)
        return data

    # -- names

    def rename(self, old: str, new: str) -> None:
        check_name(self.path, "rename", new)
        file = self.open(old)
        data = self._writable(file)
        self.close_file(file)
        self.unlink(old)
        self._changed[new] = data

    def unlink(self, name: str) -> None:
        if name not in self.files():
            raise failure(f"{self.path}/{name}", "unlink", codes.ENOENT)
        self._changed.pop(name, None)
        self._deleted.add(name)

    def mkdir(self, name: str) -> None:
        raise failure(f"{self.path}/{name}", "mkdir", codes.EROFS)

    def rmdir(self, name: str) -> None:
        raise failure(f"{self.path}/{name}", "rmdir", codes.EROFS)

    def subdir(self, name: str) -> OverlayDisk:
        if name not in self._made:
            self._made[name] = OverlayDisk(self._below.subdir(name))
        return self._made[name]

    def sync_dir(self) -> None:
        """Do nothing: no change is kept."""

    def files(self) -> list[str]:
        return sorted((set(self._below.files()) - self._deleted) | self._changed.keys())

    def directories(self) -> list[str]:
        return self._below.directories()

    # -- the directory

    def free_bytes(self) -> int:
        return self._below.free_bytes()

    def lock(self) -> None:
        """Do nothing: read-only users share the directory."""

    def close(self) -> None:
        for made in self._made.values():
            made.close()
        self._below.close()


if TYPE_CHECKING:
    _conforms: type[Disk] = OverlayDisk
