"""Folds: durable local copies of key-value buckets, each with the cursor it was read up to.

Stores on LMDB and RocksDB need their extras, and ask for the library when one is opened.
"""

from penstock.fold.append_log import AppendLogSnapshot, Snapshot, SnapshotWriter, load, read
from penstock.fold.applied import watch_applied
from penstock.fold.batching import BatchConfig
from penstock.fold.blocking import BlockingFold, FoldThread
from penstock.fold.bootstrapping import bootstrap
from penstock.fold.codecs import Codec, Json, MessagePack, Pydantic, Raw, Undecodable, Zstd
from penstock.fold.contract import SnapshotReader, SnapshotStore
from penstock.fold.digest import DigestReport, FoldDigest, digest_of
from penstock.fold.errors import (
    ArtifactInvalid,
    BackendMismatch,
    DestinationTaken,
    FoldCorruptedError,
    FoldError,
    FoldFormatError,
    FoldMismatch,
    StaleArtifact,
    StoreError,
    StoreIOError,
    StorePoisoned,
    TransportError,
    VersionReset,
    WaitTimeout,
)
from penstock.fold.exports import Exports
from penstock.fold.extending import Behind, Extension
from penstock.fold.fold import Fold
from penstock.fold.fold_status import FoldState, FoldStatus
from penstock.fold.following import ChangesLost
from penstock.fold.importing import read_manifest
from penstock.fold.indexes import Index
from penstock.fold.keep import KEYS_ONLY, Keep
from penstock.fold.lease import ExportLease, LeaseGuard, LeaseRecord
from penstock.fold.lmdb_store import LmdbReader, LmdbSnapshot
from penstock.fold.manifest import ArtifactFile, Manifest
from penstock.fold.manifest import Manifest as ExportManifest
from penstock.fold.memory import MemorySnapshot
from penstock.fold.meta import SnapshotMeta
from penstock.fold.observing import Observer
from penstock.fold.outbox import Outbox
from penstock.fold.outbox_file import OutboxFull, Outcome, QueuedWrite, WriteResult
from penstock.fold.pointer import Published, PublishOutcome, Superseded
from penstock.fold.quarantine import Quarantine, Rejected
from penstock.fold.repairing import Repair
from penstock.fold.resync import Resynced
from penstock.fold.rocks_store import RocksDbReader, RocksDbSnapshot
from penstock.fold.rounds import ExportRound, export_round, repeat_rounds
from penstock.fold.sources import ArtifactSource, LocalArtifacts
from penstock.fold.sql import FoldSql
from penstock.fold.sqlite_store import SqliteReader, SqliteSnapshot
from penstock.fold.tables import Tables, Transaction
from penstock.fold.transport import (
    ArtifactTransport,
    PublishedArtifact,
    artifact_at,
    transport_for,
)
from penstock.fold.typed import Typed, TypedEntry
from penstock.kv.contract import BucketConfig as StoreConfig
from penstock.kv.contract import Capabilities as ConnectionCapabilities
from penstock.kv.errors import (
    ApplyError,
    BucketError,
    CursorExpired,
    LogReset,
    RepairFailed,
    RepairRefused,
    WatchError,
)
from penstock.kv.types import (
    Bookmark,
    CaughtUp,
    KvEntry,
    KvUpdate,
    LogInfo,
    Op,
    Scope,
    VersionToken,
    WatchCursor,
)
from penstock.kv.types import Scope as WatchScope

__all__ = [
    "KEYS_ONLY",
    "AppendLogSnapshot",
    "ApplyError",
    "ArtifactFile",
    "ArtifactInvalid",
    "ArtifactSource",
    "ArtifactTransport",
    "BackendMismatch",
    "BatchConfig",
    "Behind",
    "BlockingFold",
    "Bookmark",
    "BucketError",
    "CaughtUp",
    "ChangesLost",
    "Codec",
    "ConnectionCapabilities",
    "CursorExpired",
    "DestinationTaken",
    "DigestReport",
    "ExportLease",
    "ExportManifest",
    "ExportRound",
    "Exports",
    "Extension",
    "Fold",
    "FoldCorruptedError",
    "FoldDigest",
    "FoldError",
    "FoldFormatError",
    "FoldMismatch",
    "FoldSql",
    "FoldState",
    "FoldStatus",
    "FoldThread",
    "Index",
    "Json",
    "Keep",
    "KvEntry",
    "KvUpdate",
    "LeaseGuard",
    "LeaseRecord",
    "LmdbReader",
    "LmdbSnapshot",
    "LocalArtifacts",
    "LogInfo",
    "LogReset",
    "Manifest",
    "MemorySnapshot",
    "MessagePack",
    "Observer",
    "Op",
    "Outbox",
    "OutboxFull",
    "Outcome",
    "PublishOutcome",
    "Published",
    "PublishedArtifact",
    "Pydantic",
    "Quarantine",
    "QueuedWrite",
    "Raw",
    "Rejected",
    "Repair",
    "RepairFailed",
    "RepairRefused",
    "Resynced",
    "RocksDbReader",
    "RocksDbSnapshot",
    "Scope",
    "Snapshot",
    "SnapshotMeta",
    "SnapshotReader",
    "SnapshotStore",
    "SnapshotWriter",
    "SqliteReader",
    "SqliteSnapshot",
    "StaleArtifact",
    "StoreConfig",
    "StoreError",
    "StoreIOError",
    "StorePoisoned",
    "Superseded",
    "Tables",
    "Transaction",
    "TransportError",
    "Typed",
    "TypedEntry",
    "Undecodable",
    "VersionReset",
    "VersionToken",
    "WaitTimeout",
    "WatchCursor",
    "WatchError",
    "WatchScope",
    "WriteResult",
    "Zstd",
    "artifact_at",
    "bootstrap",
    "digest_of",
    "export_round",
    "load",
    "read",
    "read_manifest",
    "repeat_rounds",
    "transport_for",
    "watch_applied",
]
