"""Folds: durable local copies of key-value buckets, each with the cursor it was read up to.

Stores on LMDB and RocksDB need their extras, and ask for the library when one is opened.
"""

from penstock.fold.append_log import AppendLogSnapshot, Snapshot, SnapshotWriter, load, read
from penstock.fold.contract import SnapshotReader, SnapshotStore
from penstock.fold.errors import (
    ArtifactInvalid,
    BackendMismatch,
    DestinationTaken,
    FoldCorruptedError,
    FoldError,
    FoldFormatError,
    StaleArtifact,
    StoreError,
    StoreIOError,
    StorePoisoned,
)
from penstock.fold.importing import read_manifest
from penstock.fold.lmdb_store import LmdbReader, LmdbSnapshot
from penstock.fold.manifest import ArtifactFile, Manifest
from penstock.fold.memory import MemorySnapshot
from penstock.fold.meta import SnapshotMeta
from penstock.fold.rocks_store import RocksDbReader, RocksDbSnapshot
from penstock.fold.sqlite_store import SqliteReader, SqliteSnapshot

__all__ = [
    "AppendLogSnapshot",
    "ArtifactFile",
    "ArtifactInvalid",
    "BackendMismatch",
    "DestinationTaken",
    "FoldCorruptedError",
    "FoldError",
    "FoldFormatError",
    "LmdbReader",
    "LmdbSnapshot",
    "Manifest",
    "MemorySnapshot",
    "RocksDbReader",
    "RocksDbSnapshot",
    "Snapshot",
    "SnapshotMeta",
    "SnapshotReader",
    "SnapshotStore",
    "SnapshotWriter",
    "SqliteReader",
    "SqliteSnapshot",
    "StaleArtifact",
    "StoreError",
    "StoreIOError",
    "StorePoisoned",
    "load",
    "read",
    "read_manifest",
]
