"""Detects the kind of store or artifact at a path, and opens a read-only reader for it.

Detection uses the first bytes of a file or the files in a directory, never the name of the path. A
reader changes nothing and may be used while another process writes the fold. Readers of append logs
and RocksDB show the state at the time they were opened.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.fold.artifact.manifest import MANIFEST_FILE
from penstock.fold.errors import FoldStoreError
from penstock.fold.store import pgss
from penstock.fold.store.append_log import AppendLogSnapshot, read_store
from penstock.fold.store.atomic_files import told_as_store_error
from penstock.fold.store.lmdb_store import LmdbReader, LmdbSnapshot
from penstock.fold.store.rocks_store import RocksDbReader, RocksDbSnapshot
from penstock.fold.store.sqlite_store import SqliteReader, SqliteSnapshot

if TYPE_CHECKING:
    from penstock.fold.store.contract import SnapshotReader, SnapshotStore

SQLITE_MAGIC = b"SQLite format 3\0"
LMDB_FILE = "data.mdb"
ROCKSDB_FILE = "CURRENT"


def kind_at(path: Path | str) -> type[SnapshotStore]:
    """Return the kind of store at a path; FoldStoreError if there is none."""
    path = Path(path)
    kind = _kind_of_directory(path) if path.is_dir() else _kind_of_file(path)
    if kind is None:
        what = "an artifact, to be imported first" if is_artifact(path) else "no fold"
        raise FoldStoreError(f"this is {what}", path=path)
    return kind


def is_artifact(path: Path | str) -> bool:
    return (Path(path) / MANIFEST_FILE).is_file()


def open_reader(path: Path | str) -> SnapshotReader:
    """Open a reader of the fold at a path."""
    kind = kind_at(path)
    if kind is SqliteSnapshot:
        return SqliteReader.open(path)
    if kind is LmdbSnapshot:
        return LmdbReader.open(path)
    if kind is RocksDbSnapshot:
        return RocksDbReader.open(path)
    return read_store(path)


def bytes_at(path: Path | str) -> int:
    """Return the bytes on disk of the fold at a path, including its sidecar files."""
    path = Path(path)
    if path.is_dir():
        return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
    beside = path.parent.glob(f"{path.name}*")
    ours = {path.name, *(f"{path.name}{end}" for end in ("-wal", "-shm", ".meta.json"))}
    return sum(one.stat().st_size for one in beside if one.name in ours)


def _kind_of_directory(path: Path) -> type[SnapshotStore] | None:
    if (path / LMDB_FILE).is_file():
        return LmdbSnapshot
    return RocksDbSnapshot if (path / ROCKSDB_FILE).is_file() else None


def _kind_of_file(path: Path) -> type[SnapshotStore] | None:
    if not path.exists():
        raise FoldStoreError("there is no such fold", path=path)
    with told_as_store_error(path), open(path, "rb") as file:
        head = file.read(len(SQLITE_MAGIC))
    if head == SQLITE_MAGIC:
        return SqliteSnapshot
    return AppendLogSnapshot if head.startswith(pgss.MAGIC) else None
