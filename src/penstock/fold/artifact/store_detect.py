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
from penstock.fold.store.atomic_files import os_errors
from penstock.fold.store.registry import backend_of_directory, backend_of_file, head_bytes

if TYPE_CHECKING:
    from penstock.fold.store.contract import SnapshotReader, SnapshotStore
    from penstock.fold.store.registry import Backend


def kind_at(path: Path | str) -> type[SnapshotStore]:
    """Return the kind of store at a path; FoldStoreError if there is none."""
    return _backend_at(Path(path)).store


def is_artifact(path: Path | str) -> bool:
    return (Path(path) / MANIFEST_FILE).is_file()


def open_reader(path: Path | str) -> SnapshotReader:
    """Open a reader of the fold at a path."""
    backend = _backend_at(Path(path))
    if backend.open_reader is None:
        raise FoldStoreError(f"a {backend.names[0]} fold has no reader", path=path)
    return backend.open_reader(path)


def bytes_at(path: Path | str) -> int:
    """Return the bytes on disk of the fold at a path, including its sidecar files."""
    path = Path(path)
    if path.is_dir():
        return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
    beside = path.parent.glob(f"{path.name}*")
    ours = {path.name, *(f"{path.name}{end}" for end in ("-wal", "-shm", ".meta.json"))}
    return sum(one.stat().st_size for one in beside if one.name in ours)


def _backend_at(path: Path) -> Backend:
    if not path.exists():
        raise FoldStoreError("there is no such fold", path=path)
    backend = backend_of_directory(path) if path.is_dir() else backend_of_file(_head(path))
    if backend is None:
        what = "an artifact, to be imported first" if is_artifact(path) else "no fold"
        raise FoldStoreError(f"this is {what}", path=path)
    return backend


def _head(path: Path) -> bytes:
    with os_errors(path), open(path, "rb") as file:
        return file.read(head_bytes())
