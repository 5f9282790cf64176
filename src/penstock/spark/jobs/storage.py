"""Where archives lie: a directory, or a store of objects behind a URL, through a few plain calls.

An object appears whole or not at all. `create` is the one conditional call: of several that make
the same name, one succeeds; every commit rests on it. Calls block; they run in the driver and in
tasks. A storage is a plain value until it is used, so that it can travel to the tasks.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from penstock.fold.files import replace, sync_directory, temporary_beside, write_new

if TYPE_CHECKING:
    from collections.abc import Iterator


class Listed(NamedTuple):
    """One object; `modified` in seconds since 1970."""

    path: str
    size: int
    modified: float


class Storage(Protocol):
    """Objects under paths with `/`."""

    @property
    def root(self) -> str:
        """What the paths are relative to, as Spark and others would name it."""
        ...

    def read(self, path: str) -> bytes:
        """FileNotFoundError if there is none."""
        ...

    def write(self, path: str, data: bytes | memoryview) -> None:
        """Put an object there, in place of what is there."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Put an object there if nothing is; False if something is."""
        ...

    def listed(self, directory: str) -> Iterator[Listed]:
        """Everything below a directory, in no order."""
        ...

    def delete(self, path: str) -> None:
        """One that is gone already is no failure."""
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

    def write(self, path: str, data: bytes | memoryview) -> None:
        replace(self._made(path), [bytes(data)])

    def create(self, path: str, data: bytes) -> bool:
        target = self._made(path)
        beside = temporary_beside(target)
        write_new(beside, [data])
        try:
            os.link(beside, target)  # unlike a rename, fails if there is a file
        except FileExistsError:
            return False
        finally:
            beside.unlink()
        sync_directory(target.parent)
        return True

    def listed(self, directory: str) -> Iterator[Listed]:
        top = self._at(directory)
        for parent, _, names in os.walk(top):
            for name in names:
                path = Path(parent, name)
                if name.startswith("."):
                    continue  # being written, or left behind half written
                with suppress(FileNotFoundError):
                    status = path.stat()
                    told = path.relative_to(self.directory).as_posix()
                    yield Listed(told, status.st_size, status.st_mtime)

    def delete(self, path: str) -> None:
        self._at(path).unlink(missing_ok=True)

    def _at(self, path: str) -> Path:
        return Path(self.directory, path)

    def _made(self, path: str) -> Path:
        target = self._at(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


@dataclass(frozen=True, slots=True)
class ObjectStorage:
    """A store of objects, by obstore; credentials come from the environment or the options."""

    url: str
    options: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def root(self) -> str:
        return self.url

    def read(self, path: str) -> bytes:
        return bytes(self._store().get(path).bytes())

    def write(self, path: str, data: bytes | memoryview) -> None:
        self._store().put(path, bytes(data))

    def create(self, path: str, data: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError

        try:
            self._store().put(path, data, mode="create")
        except AlreadyExistsError:
            return False
        return True

    def listed(self, directory: str) -> Iterator[Listed]:
        for page in self._store().list(directory):
            for one in page:
                yield Listed(one["path"], one["size"], one["last_modified"].timestamp())

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._store().delete(path)

    def _store(self) -> Any:
        from obstore.store import from_url

        return from_url(self.url, **self.options)


def storage_for(url: str, options: dict[str, Any] | None = None) -> Storage:
    """A directory, `file://`, or whatever obstore knows: `s3://`, `gs://`, `az://`."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        return LocalStorage(os.path.abspath(url))
    if scheme == "file":
        return LocalStorage(unquote(urlsplit(url).path))
    return ObjectStorage(url, options or {})
