"""Defines how a fold is split into several artifacts (shards), and imports them into one store.

Shards are split by hash, for equal sizes, or by prefix, so that a node that needs only some keys
fetches only those and then watches with the same scope. Each shard is an ordinary artifact with its
own cursor. A store imported from several shards resumes from their lowest cursor; applying the same
updates again changes nothing.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from penstock.fold.artifact.artifact_export import APPEND_LOG, APPEND_LOG_PAYLOAD
from penstock.fold.artifact.artifact_import import fold_log, verified
from penstock.fold.artifact.atomic_dir import check_free, put_in_place, staged_beside, sync_tree
from penstock.fold.errors import ArtifactInvalid
from penstock.fold.store.fold_meta import SnapshotMeta
from penstock.kv.kv_types import Scope, WatchCursor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.fold.store.contract import SnapshotStore

SHARDS_MAX = 4096
HASHED = "#"
"""First character of the scope of a hash shard; no key begins with it."""
_Store = TypeVar("_Store", bound="SnapshotStore")
_OTHER = re.compile(r"[^A-Za-z0-9_-]+")


class Shard(Struct, frozen=True):
    """One part of a fold. The scope of a hash shard is a prefix that no key has, so that the shard
    is never taken for a complete fold."""

    name: str
    scope: tuple[str, ...]


def by_hash(count: int) -> tuple[Shard, ...]:
    """Return `count` shards; shard n has the keys whose CRC-32 modulo `count` is n."""
    if not 1 <= count <= SHARDS_MAX:
        raise ValueError(f"there are 1 to {SHARDS_MAX} shards, not {count}")
    names = (f"{n:04d}-of-{count:04d}" for n in range(count))
    return tuple(Shard(name, (f"{HASHED}{name}.",)) for name in names)


def by_prefix(prefixes: Sequence[str]) -> tuple[Shard, ...]:
    """Return a shard for each prefix; keys outside all prefixes are in no shard."""
    if Scope.of(prefixes).prefixes != tuple(sorted(prefixes)):
        raise ValueError("prefixes of shards must not lie within each other")
    shards = tuple(Shard(_OTHER.sub("-", prefix).strip("-"), (prefix,)) for prefix in prefixes)
    if len({shard.name for shard in shards}) != len(shards) or not all(s.name for s in shards):
        raise ValueError("prefixes of shards must differ in more than punctuation")
    return shards


def hash_of(key: str) -> int:
    """Return the hash that assigns a key to a shard."""
    return zlib.crc32(key.encode())


def import_shards(
    kind: type[_Store], artifacts: Sequence[Path | str], dest: Path | str, **options: object
) -> _Store:
    """Verify artifacts that are shards of one fold, and import them into one store at `dest`."""
    dest = Path(dest)
    check_free(dest)
    with staged_beside(dest) as stage:
        made = stage / "made"
        with kind.open(made) as store:
            cursor, meta = _fold_all(store, artifacts, stage)
            store.apply([], cursor, meta=meta)
            store.finish_load()
        sync_tree(stage)
        put_in_place(made, dest)
    store = kind.open(dest, **options)
    if store.meta != meta:  # a metadata file beside the store is not moved by the rename
        store.apply([], store.cursor, meta=meta)
    return store


def _fold_all(
    store: SnapshotStore, artifacts: Sequence[Path | str], stage: Path
) -> tuple[WatchCursor, SnapshotMeta]:
    cursors: list[WatchCursor] = []
    metas: list[SnapshotMeta] = []
    for artifact in artifacts:
        with verified(artifact, stage / "shard") as (manifest, extra, payload):
            if manifest.backend != APPEND_LOG:
                raise ArtifactInvalid("a shard that is no append log", path=artifact)
            fold_log(store, payload / APPEND_LOG_PAYLOAD)
        cursors.append(manifest.cursor)
        metas.append(SnapshotMeta(extra.identity, extra.scope, extra.seen_evicting))
    if len({meta.identity for meta in metas}) != 1:
        raise ArtifactInvalid("the shards are not of one bucket")
    evicting = any(meta.seen_evicting for meta in metas)
    scope = _joined([prefix for meta in metas for prefix in meta.scope])
    cursor = min(cursors, key=lambda cursor: cursor.rank)
    return cursor, SnapshotMeta(metas[0].identity, scope, evicting)


def _joined(scopes: list[str]) -> tuple[str, ...]:
    """Return the scope of all shards together; hash shards must be complete."""
    hashed = [scope for scope in scopes if scope.startswith(HASHED)]
    if not hashed:
        return Scope.of(scopes).prefixes
    count = int(hashed[0].rstrip(".").rpartition("-")[2])
    whole = {scope for shard in by_hash(count) for scope in shard.scope}
    if set(scopes) != whole:
        missing = sorted(whole - set(scopes)) or sorted(set(scopes) - whole)
        raise ArtifactInvalid(f"not all shards, or not of one fold: {missing[0]}")
    return Scope.all().prefixes
