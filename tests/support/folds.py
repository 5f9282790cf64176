"""The fold stores that follow the contract, and short words for what is applied to them.

`KINDS` has a line for every store; that line is all it takes to join the contract suite, the
property test and the kill tests. `model` is the trivially right fold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.fold import (
    AppendLogSnapshot,
    LmdbSnapshot,
    MemorySnapshot,
    RocksDbSnapshot,
    SqliteSnapshot,
)
from penstock.kv.kv_types import KvEntry, KvUpdate, Op, VersionToken, WatchCursor

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penstock.fold import SnapshotReader, SnapshotStore
    from penstock.kv.kv_types import Scope

#: Small, so that a test which opens many stores stays fast.
SMALL_ROCKS = {"cache_bytes": 1 << 20, "write_buffer_bytes": 1 << 20}


@dataclass(frozen=True)
class Kind:
    """A store under test: its class, how it is opened, and whether it outlives its process."""

    store: type[SnapshotStore]
    options: dict[str, Any]
    durable: bool = True

    def open(self, path: Path | str) -> SnapshotStore:
        return self.store.open(path, **self.options)

    def imported(self, artifact: Path, dest: Path, *, scope: Scope | None = None) -> SnapshotStore:
        return self.store.import_from(artifact, dest, scope=scope, **self.options)


KINDS = {
    "memory": Kind(MemorySnapshot, {}, durable=False),
    "append-log": Kind(AppendLogSnapshot, {}),
    "append-log, compacting": Kind(AppendLogSnapshot, {"compact_threshold": 64}),
    "append-log, synced": Kind(AppendLogSnapshot, {"sync": True}),
    "sqlite": Kind(SqliteSnapshot, {}),
    "lmdb": Kind(LmdbSnapshot, {}),
    "rocksdb": Kind(RocksDbSnapshot, SMALL_ROCKS),
}
DURABLE = {name: kind for name, kind in KINDS.items() if kind.durable}


def put(key: str, value: bytes, revision: int = -1, token: bytes = b"") -> KvUpdate:
    return KvUpdate(Op.PUT, key, value, revision, token=token)


def delete(key: str, revision: int = -1) -> KvUpdate:
    return KvUpdate(Op.DELETE, key, revision=revision)


def purge(key: str, revision: int = -1) -> KvUpdate:
    return KvUpdate(Op.PURGE, key, revision=revision)


def at(revision: int) -> WatchCursor:
    return WatchCursor.of(revision)


def entry(key: str, value: bytes, revision: int) -> KvEntry:
    return KvEntry(key, value, VersionToken.of(revision))


def model(updates: Iterable[KvUpdate]) -> dict[str, KvEntry]:
    """The fold of some updates: the last one per key."""
    entries: dict[str, KvEntry] = {}
    for update in updates:
        entries.pop(update.key, None)
        if update.op is Op.PUT:
            entries[update.key] = KvEntry(update.key, update.value, update.version)
    return entries


def contents(store: SnapshotReader) -> dict[str, KvEntry]:
    return {one.key: one for one in store.range()}
