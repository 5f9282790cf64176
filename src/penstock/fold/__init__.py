"""Folds: durable local replicas of KV buckets, each with the cursor up to which it is complete.

The LMDB and RocksDB stores need their extras; each imports its library when a store is opened.
"""

from penstock.fold.artifact.artifact_import import read_manifest
from penstock.fold.artifact.digest import DigestReport, FoldDigest, digest_of
from penstock.fold.artifact.export_requests import Exports
from penstock.fold.artifact.manifest import ArtifactFile, Manifest
from penstock.fold.artifact.manifest import Manifest as ExportManifest
from penstock.fold.blocking_fold import BlockingFold, FoldThread
from penstock.fold.derive.indexes import Index
from penstock.fold.derive.quarantine import Quarantine, Rejected
from penstock.fold.derive.sql_tables import Tables, Transaction
from penstock.fold.derive.sql_view import FoldSql
from penstock.fold.derive.typed_fold import Typed, TypedEntry
from penstock.fold.derive.value_codecs import (
    Codec,
    Json,
    MessagePack,
    Pydantic,
    Raw,
    Undecodable,
    Zstd,
)
from penstock.fold.errors import (
    ApplyError,
    ArtifactInvalid,
    BackendMismatch,
    DestinationTaken,
    FoldCorruptedError,
    FoldError,
    FoldFormatError,
    FoldMismatch,
    FoldStoreError,
    RepairFailed,
    RepairRefused,
    StaleArtifact,
    StoreIOError,
    StorePoisoned,
    TransportError,
    VersionReset,
    WaitTimeout,
)
from penstock.fold.fold import Fold
from penstock.fold.fold_status import FoldState, FoldStatus
from penstock.fold.follow.batch_buffer import BatchConfig
from penstock.fold.follow.keep_rules import KEYS_ONLY, Keep
from penstock.fold.follow.observer import Observer
from penstock.fold.follow.outbox_file import OutboxFull, Outcome, QueuedWrite, WriteResult
from penstock.fold.follow.repair import Repair
from penstock.fold.follow.resync import Resynced
from penstock.fold.follow.subscribers import ChangesLost
from penstock.fold.follow.watch_applied import watch_applied
from penstock.fold.follow.write_outbox import Outbox
from penstock.fold.ship.artifact_transport import (
    ArtifactTransport,
    PublishedArtifact,
    artifact_at,
    transport_for,
)
from penstock.fold.ship.bootstrap import bootstrap
from penstock.fold.ship.copy_sources import ArtifactSource, LocalArtifacts
from penstock.fold.ship.export_round import ExportRound, export_round, repeat_rounds
from penstock.fold.ship.lease import ExportLease, LeaseGuard, LeaseRecord
from penstock.fold.ship.pointer import Published, PublishOutcome, Superseded
from penstock.fold.store.append_log import (
    AppendLogSnapshot,
    LogSnapshot,
    SnapshotWriter,
    load,
    read,
)
from penstock.fold.store.contract import SnapshotReader, SnapshotStore
from penstock.fold.store.extensions import Behind, Extension
from penstock.fold.store.fold_meta import SnapshotMeta
from penstock.fold.store.lmdb_store import LmdbReader, LmdbSnapshot
from penstock.fold.store.memory_store import MemorySnapshot
from penstock.fold.store.rocks_store import RocksDbReader, RocksDbSnapshot
from penstock.fold.store.sqlite_store import SqliteReader, SqliteSnapshot
from penstock.kv.contract import BucketConfig as StoreConfig
from penstock.kv.contract import Capabilities as ConnectionCapabilities
from penstock.kv.errors import BucketError, CursorExpired, KvError, LogReset, WatchError
from penstock.kv.kv_types import (
    Bookmark,
    CaughtUp,
    KvEntry,
    KvUpdate,
    LogInfo,
    Op,
    Recheck,
    Scope,
    VersionToken,
    WatchCursor,
)
from penstock.kv.kv_types import Scope as WatchScope

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
    "FoldStoreError",
    "FoldThread",
    "Index",
    "Json",
    "Keep",
    "KvEntry",
    "KvError",
    "KvUpdate",
    "LeaseGuard",
    "LeaseRecord",
    "LmdbReader",
    "LmdbSnapshot",
    "LocalArtifacts",
    "LogInfo",
    "LogReset",
    "LogSnapshot",
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
    "Recheck",
    "Rejected",
    "Repair",
    "RepairFailed",
    "RepairRefused",
    "Resynced",
    "RocksDbReader",
    "RocksDbSnapshot",
    "Scope",
    "SnapshotMeta",
    "SnapshotReader",
    "SnapshotStore",
    "SnapshotWriter",
    "SqliteReader",
    "SqliteSnapshot",
    "StaleArtifact",
    "StoreConfig",
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
