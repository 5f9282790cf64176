"""Reads fold artifacts: finds them, and returns their content as Arrow columns.

An artifact is fetched and verified as in an import, then read from the copy: an append log
directly, other backends through their store. Shards are named after the location of their artifact.
"""

from __future__ import annotations

import asyncio
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from penstock.fold.artifact.artifact_export import APPEND_LOG, APPEND_LOG_PAYLOAD
from penstock.fold.artifact.artifact_import import verified
from penstock.fold.artifact.manifest import MANIFEST_FILE
from penstock.fold.errors import ArtifactInvalid
from penstock.fold.ship.artifact_transport import transport_for
from penstock.fold.store import pgss
from penstock.fold.store.registry import store_of_artifact
from penstock.kv.kv_types import REVISION_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.fold.artifact.manifest import Manifest
    from penstock.fold.store.contract import SnapshotStore

BATCH_ROWS: Final = 50_000

Row = tuple[str, bytes, int | None]


@dataclass(frozen=True, slots=True)
class Artifact:
    """Location of one artifact: a directory, or a key at a place where it is published."""

    shard: str
    place: str
    key: str = ""


def find_artifacts(path: str, options: dict[str, Any]) -> list[Artifact]:
    """Return the artifacts a path names, sorted by name; empty if there are none."""
    local = _local(path)
    if local is not None:
        candidates = [local, *sorted(local.iterdir())] if local.is_dir() else []
        shown = [one for one in candidates if not one.name.startswith(".")]
        there = [one for one in shown if (one / MANIFEST_FILE).is_file()]
        if there:
            return [Artifact(one.name, str(one)) for one in there]
        path = str(local)
    return asyncio.run(_published(path, options))


def _local(path: str) -> Path | None:
    scheme, separator, _ = path.partition("://")
    if not separator:
        return Path(path).absolute()
    return Path(unquote(urlsplit(path).path)) if scheme == "file" else None


async def _published(path: str, options: dict[str, Any]) -> list[Artifact]:
    """Return the artifact of that name, or else all that are published directly below it."""
    place, _, key = path.rstrip("/").rpartition("/")
    is_whole_store = place.endswith(("/", ":"))
    if not is_whole_store and await transport_for(place, **options).manifest(key) is not None:
        return [Artifact(key, place, key)]
    keys = await transport_for(path, **options).keys()
    return [Artifact(name, path, name) for name in sorted(keys)]


def columns_of(
    artifact: Artifact, scratch: Path, options: dict[str, Any], prefix: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield all columns of an artifact, in batches; `scratch` is a directory for copies."""
    import pyarrow as pa

    directory = Path(artifact.place)
    if artifact.key:
        directory = scratch / "fetched"
        transport = transport_for(artifact.place, **options)
        asyncio.run(transport.download(artifact.key, directory))
    with verified(directory, scratch / "checked") as (manifest, _, payload):
        cursor = manifest.cursor.revision
        for rows in _batches(_rows(manifest, payload, prefix)):
            keys, values, revisions = zip(*rows, strict=True)
            yield {
                "key": pa.array(keys, pa.string()),
                "value": pa.array(values, pa.binary()),
                "revision": pa.array(revisions, pa.int64()),
                "shard": pa.array([artifact.shard] * len(rows), pa.string()),
                "cursor": pa.array([cursor] * len(rows), pa.int64()),
            }


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    waiting: list[Row] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) == BATCH_ROWS:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _rows(manifest: Manifest, payload: Path, prefix: str) -> Iterator[Row]:
    if manifest.backend == APPEND_LOG:
        return _log_rows(payload / APPEND_LOG_PAYLOAD, prefix)
    store = store_of_artifact(manifest.backend)
    if store is None:
        raise ArtifactInvalid(f"an artifact of a {manifest.backend} store cannot be read here")
    return _store_rows(store, payload / store.payload if store.payload else payload, prefix)


def _log_rows(log: Path, prefix: str) -> Iterator[Row]:
    with log.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        replay = pgss.replay(data, path=str(log))
    for key, record in replay.entries.items():
        if key.startswith(prefix):
            size = record[0]
            is_revision = size == REVISION_BYTES
            revision = int.from_bytes(record[1 : 1 + size], "big") if is_revision else None
            yield key, record[1 + size :], revision


def _store_rows(store: type[SnapshotStore], copy: Path, prefix: str) -> Iterator[Row]:
    with store.open_copy(copy) as opened:
        for entry in opened.range(prefix):
            yield entry.key, entry.value, entry.revision
