"""Resolves the arguments of `Fold.open`: a bucket by name or URL, a store by name or class.

A bucket given by name needs only the bulk reader, which connects on demand. So its fold opens and
serves reads from its store while the server is down.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from penstock.fold.artifact.atomic_dir import staged, sweep_stages
from penstock.fold.store.memory_store import MemorySnapshot
from penstock.fold.store.registry import store_named
from penstock.kv.kv_types import Scope

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.fold.follow.store_worker import Worker
    from penstock.fold.ship.copy_sources import ArtifactSource
    from penstock.fold.store.contract import SnapshotStore
    from penstock.kv.contract import KvKeys, KvStore, KvWatcher
    from penstock.kv.kv_connection import NatsConfig


class FoldOrigin(NamedTuple):
    """The bucket a fold follows: its name, and how to watch and list it."""

    name: str
    watcher: KvWatcher
    reader: KvKeys
    bucket: KvStore | None = None
    """The open bucket, if the caller passed one."""
    config: NatsConfig | None = None
    """The server, if the caller passed a name or URL."""


def origin_of(bucket: KvStore | str, config: NatsConfig | None) -> FoldOrigin:
    """Return the origin for an open bucket, a name, or a URL that ends in the name."""
    if not isinstance(bucket, str):
        watcher = bucket.watcher()
        if watcher is None:
            raise ValueError(f"bucket {bucket.name} cannot be watched over this connection")
        return FoldOrigin(bucket.name, watcher, bucket.reader(), bucket)
    from penstock.kv.bucket_reader import NatsLister
    from penstock.kv.bucket_watcher import NatsWatcher
    from penstock.kv.kv_connection import NatsConfig

    if "://" in bucket:
        if config is not None:
            raise ValueError("a URL and a configuration both say where the server is")
        server, bucket = split_bucket_url(bucket)
        config = NatsConfig.of(server)
    config = config or NatsConfig.of()
    bulk = config.bulk_reader()
    lister = NatsLister(bucket, bulk, empty_is_delete=False)
    return FoldOrigin(bucket, NatsWatcher(bucket, bulk), lister, config=config)


def split_bucket_url(url: str) -> tuple[str, str]:
    """Split `nats://host:4222/bucket` into the server's URL and the bucket name."""
    parts = urlsplit(url)
    name = parts.path.strip("/")
    if not name or "/" in name:
        raise ValueError("the URL of a bucket ends in its name: nats://host:4222/name")
    return urlunsplit(parts._replace(path="")), name


def scope_of(scope: Scope | str | Sequence[str]) -> Scope:
    if isinstance(scope, Scope):
        return scope
    return Scope.prefix(scope) if isinstance(scope, str) else Scope.of(scope)


def backend_of(backend: str | type[SnapshotStore]) -> type[SnapshotStore]:
    return store_named(backend) if isinstance(backend, str) else backend


async def open_store(
    kind: type[SnapshotStore],
    path: Path | str,
    options: Mapping[str, object],
    bootstrap: ArtifactSource | None,
    scope: Scope,
    worker: Worker,
) -> SnapshotStore:
    """Open the store at a path; create a missing one from the newest artifact, if there is one.

    If the artifact covers more than `scope`, the store gets only the keys in scope.
    """
    beside = None if kind is MemorySnapshot else Path(path).parent
    if beside is not None:
        await worker.run(sweep_stages, beside)
    if bootstrap is not None and not is_there(kind, path) and await bootstrap.latest() is not None:
        with staged(beside) as stage:
            await bootstrap.fetch(stage / "artifact")
            artifact = stage / "artifact"
            return await worker.run(kind.import_from, artifact, path, scope=scope, **options)
    return await worker.run(kind.open, path, **options)


def is_there(kind: type[SnapshotStore], path: Path | str) -> bool:
    """Return whether a file or a non-empty directory exists at the path."""
    if kind is MemorySnapshot:
        return False
    path = Path(path)
    return any(path.iterdir()) if path.is_dir() else path.exists()
