"""The one list of fold backends: name, store class, reader, and how its files are recognised.

`Fold.open(backend=)`, detection of a store at a path, repair, artifacts and Spark use this list.
Another package adds a backend with an entry point of the group `penstock.fold_backends` that names
a `Backend`; the built-in ones come first, and a name that is taken is an error.
"""

from __future__ import annotations

import functools
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.fold.store import pgss
from penstock.fold.store.append_log import AppendLogSnapshot, read_store
from penstock.fold.store.lmdb_store import LmdbReader, LmdbSnapshot
from penstock.fold.store.memory_store import MemorySnapshot
from penstock.fold.store.rocks_store import RocksDbReader, RocksDbSnapshot
from penstock.fold.store.sqlite_store import SqliteReader, SqliteSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.fold.store.contract import SnapshotReader, SnapshotStore

GROUP: Final = "penstock.fold_backends"
"""Entry points of this group name further backends."""


class Backend(NamedTuple):
    """A kind of fold store."""

    names: tuple[str, ...]
    """Values of `backend=`; the first is the usual one."""
    store: type[SnapshotStore]
    open_reader: Callable[[Path | str], SnapshotReader] | None = None
    """Opens a read-only reader beside a writing process; None for a store without files."""
    magic: bytes = b""
    """The first bytes of its file, if it is one file."""
    file: str = ""
    """A file in its directory, if it is a directory."""


BUILT_IN: Final = (
    Backend(("append-log", "log"), AppendLogSnapshot, read_store, magic=pgss.MAGIC),
    Backend(("sqlite",), SqliteSnapshot, SqliteReader.open, magic=b"SQLite format 3\0"),
    Backend(("lmdb",), LmdbSnapshot, LmdbReader.open, file="data.mdb"),
    Backend(("rocksdb", "rocks"), RocksDbSnapshot, RocksDbReader.open, file="CURRENT"),
    Backend(("memory",), MemorySnapshot),
)


@functools.cache
def backends() -> tuple[Backend, ...]:
    """Return the built-in backends and those of other packages."""
    found = list(BUILT_IN)
    taken = {name for backend in found for name in backend.names}
    for point in entry_points(group=GROUP):
        backend = point.load()
        if not isinstance(backend, Backend):
            raise TypeError(f"entry point {point.name} of {GROUP} is not a Backend")
        if taken & set(backend.names):
            raise ValueError(f"entry point {point.name} of {GROUP}: its name is taken")
        taken.update(backend.names)
        found.append(backend)
    return tuple(found)


def store_named(name: str) -> type[SnapshotStore]:
    """Return the store class for a value of `backend=`; raise ValueError for an unknown name."""
    for backend in backends():
        if name in backend.names:
            return backend.store
    known = ", ".join(name for backend in backends() for name in backend.names)
    raise ValueError(f"backend {name!r} is none of {known}")


def store_of_artifact(kind: str) -> type[SnapshotStore] | None:
    """Return the store class that can open the payload of an artifact; None if there is none."""
    stores = (backend.store for backend in backends() if backend.file or backend.magic)
    return next((store for store in stores if store.backend == kind), None)


def stores_with_files() -> tuple[type[SnapshotStore], ...]:
    """Return every store that keeps a file or a directory."""
    return tuple(backend.store for backend in backends() if backend.file or backend.magic)


def backend_of_directory(path: Path) -> Backend | None:
    """Recognise a store that is a directory, by the files in it."""
    found = (each for each in backends() if each.file and (path / each.file).is_file())
    return next(found, None)


def backend_of_file(head: bytes) -> Backend | None:
    """Recognise a store that is one file, by its first bytes."""
    found = (each for each in backends() if each.magic and head.startswith(each.magic))
    return next(found, None)


def head_bytes() -> int:
    """Return how many first bytes of a file `backend_of_file` needs."""
    return max(len(backend.magic) for backend in backends())
