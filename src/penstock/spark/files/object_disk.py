"""Read-only disk over the objects below a prefix of an object store.

A prefix takes the place of a directory: its objects are the files. Reads fetch ranges. Nothing is
ever written, and locks do not exist, so the caller compares stamps of the objects before and after.
"""

from __future__ import annotations

import errno as codes
from typing import TYPE_CHECKING, Any, Final, NoReturn

from penstock.store.errors import failure
from penstock.store.io.disk import File, check_name

if TYPE_CHECKING:
    from penstock.store.io.disk import Bytes

_REMOTE: Final = -3
"""Descriptor of a file that is an object."""


class ObjectDisk:
    """The objects directly below a prefix of an obstore store."""

    def __init__(self, store: Any, prefix: str, url: str) -> None:
        self._store = store
        self._prefix = prefix
        self._url = url
        listed = store.list_with_delimiter(prefix or None)
        start = len(prefix) + 1 if prefix else 0
        self._objects = {one["path"][start:]: one for one in listed["objects"]}
        self._directories = sorted(path[start:].rstrip("/") for path in listed["common_prefixes"])

    @property
    def path(self) -> str:
        return f"{self._url.rstrip('/')}/{self._prefix}".rstrip("/")

    @property
    def descriptors(self) -> None:
        return None

    def stamp(self, name: str) -> tuple[str, int]:
        """Return tag and size of an object; the tag changes with every write."""
        one = self._object("stat", name)
        return str(one.get("e_tag") or one["last_modified"].isoformat()), int(one["size"])

    def open(self, name: str, *, create: bool = False, writable: bool = True) -> File:
        check_name(self.path, "open", name)
        self._object("open", name)
        return File(name, _REMOTE, 0)

    def close_file(self, file: File) -> None:
        file.detach()

    def pread(self, file: File, n: int, offset: int) -> bytes:
        count = min(n, self.size(file) - offset)
        if count <= 0:
            return b""
        path = f"{self._prefix}/{file.name}" if self._prefix else file.name
        return bytes(self._store.get_range(path, start=offset, length=count))

    def size(self, file: File) -> int:
        return int(self._object("stat", file.name)["size"])

    def files(self) -> list[str]:
        return sorted(self._objects)

    def directories(self) -> list[str]:
        return list(self._directories)

    def subdir(self, name: str) -> ObjectDisk:
        check_name(self.path, "open", name)
        if name not in self._directories:
            raise failure(f"{self.path}/{name}", "open", codes.ENOENT)
        below = f"{self._prefix}/{name}" if self._prefix else name
        return ObjectDisk(self._store, below, self._url)

    def read_small(self, name: str, bytes_max: int) -> bytes:
        file = self.open(name)
        size = self.size(file)
        if size > bytes_max:
            raise failure(f"{self.path}/{name}", "read", codes.EFBIG)
        return self.pread(file, size, 0)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    def _object(self, call: str, name: str) -> Any:
        if name not in self._objects:
            raise failure(f"{self.path}/{name}", call, codes.ENOENT)
        return self._objects[name]

    # -- writes: all refused

    def _refuse(self, call: str) -> NoReturn:
        raise failure(self.path, call, codes.EROFS)

    def create(self, name: str) -> File:
        self._refuse("open")

    def pwrite(self, file: File, data: Bytes, offset: int) -> None:
        self._refuse("write")

    def fdatasync(self, file: File) -> None:
        self._refuse("sync")

    def preallocate(self, file: File, size: int) -> None:
        self._refuse("write")

    def truncate(self, file: File, size: int) -> None:
        self._refuse("truncate")

    def rename(self, old: str, new: str) -> None:
        self._refuse("rename")

    def unlink(self, name: str) -> None:
        self._refuse("unlink")

    def mkdir(self, name: str) -> None:
        self._refuse("mkdir")

    def rmdir(self, name: str) -> None:
        self._refuse("rmdir")

    def sync_dir(self) -> None:
        self._refuse("sync")

    def free_bytes(self) -> int:
        return 0

    def lock(self) -> None:
        self._refuse("lock")
