"""Storage of archives: a directory, or an object store behind a URL, with a small interface.

Invariant: an object appears completely or not at all. `create` is the only conditional call: of
several callers that create the same name, one succeeds; every commit depends on it. Calls block;
they run in the driver and in tasks. A storage is a plain value until its first use, so Spark can
send it to the tasks.
"""

from __future__ import annotations

import io
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from penstock.fold.store.atomic_files import replace, sync_directory, temporary_beside, write_new
from penstock.spark.files.storage_options import nested

if TYPE_CHECKING:
    from collections.abc import Iterator


class StorageError(Exception):
    """A location cannot be used as requested; the text gives the reason."""


class ListedFile(NamedTuple):
    """One object; `modified` is in seconds since 1970."""

    path: str
    size: int
    modified: float


class ArchiveStorage(Protocol):
    """Objects under paths with `/`."""

    @property
    def root(self) -> str:
        """Base of the paths, in the form Spark and other tools accept."""
        ...

    def read(self, path: str) -> bytes:
        """Return the content; raises FileNotFoundError if there is no object."""
        ...

    def open(self, path: str) -> Any:
        """Return the object as a binary file that fetches ranges on demand; a context manager."""
        ...

    def write(self, path: str, data: bytes | memoryview) -> None:
        """Write an object, replacing an existing one."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Write an object if none exists; return False if one does."""
        ...

    def listed(self, directory: str) -> Iterator[ListedFile]:
        """Yield everything below a directory, in any order."""
        ...

    def delete(self, path: str) -> None:
        """Delete an object; no error if it does not exist."""
        ...


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """Plain files below a directory, durable when a call returns."""

    directory: str

    @property
    def root(self) -> str:
        return self.directory

    def read(self, path: str) -> bytes:
        return self._at(path).read_bytes()

    def open(self, path: str) -> Any:
        return self._at(path).open("rb")

    def write(self, path: str, data: bytes | memoryview) -> None:
        replace(self._made(path), [bytes(data)])

    def create(self, path: str, data: bytes) -> bool:
        target = self._made(path)
        beside = temporary_beside(target)
        write_new(beside, [data])
        try:
            os.link(beside, target)  # unlike a rename, fails if the file exists
        except FileExistsError:
            return False
        finally:
            beside.unlink()
        sync_directory(target.parent)
        return True

    def listed(self, directory: str) -> Iterator[ListedFile]:
        top = self._at(directory)
        for parent, _, names in os.walk(top):
            for name in names:
                path = Path(parent, name)
                if name.startswith("."):
                    continue  # being written, or left incomplete by a crash
                with suppress(FileNotFoundError):
                    status = path.stat()
                    name = path.relative_to(self.directory).as_posix()
                    yield ListedFile(name, status.st_size, status.st_mtime)

    def delete(self, path: str) -> None:
        self._at(path).unlink(missing_ok=True)

    def _at(self, path: str) -> Path:
        return Path(self.directory, path)

    def _made(self, path: str) -> Path:
        target = self._at(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


class ObjectFile(io.RawIOBase):
    """An object as a file: every read fetches its range."""

    def __init__(self, store: Any, path: str) -> None:
        self._store = store
        self._path = path
        self._size = int(store.head(path)["size"])
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self._size - self._position)
        if count <= 0:
            return 0
        data = self._store.get_range(self._path, start=self._position, length=count)
        buffer[:count] = bytes(data)
        self._position += count
        return count


@dataclass(frozen=True, slots=True)
class ObjectStorage:
    """An object store, accessed by obstore; credentials come from the environment or the
    options."""

    url: str
    options: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def root(self) -> str:
        return self.url

    def read(self, path: str) -> bytes:
        return bytes(self.store().get(path).bytes())

    def open(self, path: str) -> Any:
        return ObjectFile(self.store(), path)

    def write(self, path: str, data: bytes | memoryview) -> None:
        self.store().put(path, bytes(data))

    def create(self, path: str, data: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError

        try:
            self.store().put(path, data, mode="create")
        except AlreadyExistsError:
            return False
        return True

    def listed(self, directory: str) -> Iterator[ListedFile]:
        for page in self.store().list(directory):
            for one in page:
                yield ListedFile(one["path"], one["size"], one["last_modified"].timestamp())

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self.store().delete(path)

    def store(self) -> Any:
        """Return the obstore store."""
        from obstore.exceptions import BaseError
        from obstore.store import from_url

        try:
            return from_url(self.url, **self.options)
        except (BaseError, TypeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise StorageError(f"{self.url} cannot be used: {reason}") from error


def storage_for(url: str, options: dict[str, Any] | None = None) -> ArchiveStorage:
    """Return the storage of a directory, `file://`, or a URL obstore supports: `s3://`, `gs://`,
    `az://`."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        return LocalStorage(os.path.abspath(url))
    if scheme == "file":
        return LocalStorage(unquote(urlsplit(url).path))
    return ObjectStorage(url, nested(options or {}))
