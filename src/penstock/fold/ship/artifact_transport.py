"""Publishes artifacts in an object store, fetches them, and prunes old payloads.

Invariant: the pointer always names a complete artifact, even if a process is killed at any time. A
publisher uploads the payload under a unique name first. Then it swaps the pointer with a
conditional write, and only to a newer artifact. A download is verified before it is renamed to its
destination.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from penstock.fold.artifact.atomic_dir import check_free, put_in_place, staged_beside
from penstock.fold.artifact.manifest import MANIFEST_FILE, decode_manifest
from penstock.fold.artifact.tarball import pack, unpack
from penstock.fold.errors import ArtifactInvalid, ObjectMissing, TransportError
from penstock.fold.ship.local_objects import LocalObjects
from penstock.fold.ship.object_store import Bounds, unheard
from penstock.fold.ship.pointer import (
    POINTER_BYTES_MAX,
    Published,
    Superseded,
    newer_than,
    payload_path,
    payloads_directory,
    pointer_path,
    prunable,
)
from penstock.fold.store.atomic_files import os_errors

if TYPE_CHECKING:
    from penstock.fold.artifact.manifest import Manifest
    from penstock.fold.ship.object_store import Objects, Progress, Seen
    from penstock.fold.ship.pointer import PublishOutcome
    from penstock.kv.kv_types import WatchCursor

SWAP_ATTEMPTS_MAX = 8
FETCH_ATTEMPTS_MAX = 3
"""Attempts of a fetch, which starts again if a newer artifact replaces the one it reads."""


class ArtifactTransport:
    """Artifacts by key, a name that may contain `/`; each key has one newest artifact."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    async def manifest(self, key: str) -> Manifest | None:
        """Return the manifest of the newest artifact, or None; `ArtifactInvalid` if unreadable."""
        seen = await self._pointer(key)
        return None if seen is None else decode_manifest(seen.body)

    async def keys(self, under: str = "") -> list[str]:
        """Return the keys of artifacts directly below `under`, or at the top level."""
        suffix = pointer_path("x").removeprefix("x")
        prefix = f"{under}/" if under else ""
        found = [
            prefix + one.name.removesuffix(suffix)
            async for one in self._objects.listed(under)
            if one.name.endswith(suffix) and not one.name.startswith(".")
        ]
        return sorted(found)

    async def upload(
        self, key: str, artifact: Path | str, *, progress: Progress = unheard
    ) -> PublishOutcome:
        """Upload an artifact and publish it, unless a newer one is already published."""
        artifact = Path(artifact)
        pointer = await asyncio.to_thread(_read_manifest, artifact)
        manifest = decode_manifest(pointer)
        newer = await self._newer(key, manifest.cursor)
        if newer is not None:
            return Superseded(newer)
        with staged_beside(artifact) as stage:
            tar = stage / "payload.tar"
            await asyncio.to_thread(pack, artifact, manifest, tar)
            await self._objects.upload(payload_path(key, pointer), tar, progress)
        return await self._publish(key, pointer, manifest.cursor)

    async def download(
        self, key: str, dest: Path | str, *, progress: Progress = unheard
    ) -> Manifest:
        """Download the newest artifact, verify it, and rename it to `dest`."""
        dest = Path(dest)
        check_free(dest)
        with staged_beside(dest) as stage:
            pointer = await self._fetch(key, stage / "payload.tar", progress)
            await asyncio.to_thread(unpack, stage / "payload.tar", pointer, stage / "artifact")
            put_in_place(stage / "artifact", dest)
        return decode_manifest(pointer)

    async def prune(self, key: str, *, grace: float) -> int:
        """Delete payloads that can never be published again; return their number.

        `grace`, in seconds, is how long a reader may take to fetch a payload that is no longer the
        newest.
        """
        seen = await self._pointer(key)
        pointer = None if seen is None else seen.body
        directory, now = payloads_directory(key), time.time()
        pruned = 0
        async for one in self._objects.listed(directory):
            if prunable(one.name, pointer, age=now - one.modified, grace=grace):
                await self._objects.delete(f"{directory}/{one.name}")
                pruned += 1
        return pruned

    async def _pointer(self, key: str) -> Seen | None:
        return await self._objects.read(pointer_path(key), POINTER_BYTES_MAX)

    async def _newer(self, key: str, ours: WatchCursor) -> WatchCursor | None:
        seen = await self._pointer(key)
        return newer_than(None if seen is None else seen.body, ours)

    async def _publish(self, key: str, pointer: bytes, ours: WatchCursor) -> PublishOutcome:
        for _ in range(SWAP_ATTEMPTS_MAX):
            seen = await self._pointer(key)
            newer = newer_than(None if seen is None else seen.body, ours)
            if newer is not None:
                return Superseded(newer)
            if await self._objects.swap(pointer_path(key), pointer, seen):
                return Published()
        raise TransportError(f"lost {SWAP_ATTEMPTS_MAX} races for the pointer", path=key)

    async def _fetch(self, key: str, tar: Path, progress: Progress) -> bytes:
        """Fetch the payload of the newest artifact; return the pointer it belongs to."""
        before: bytes | None = None
        for _ in range(FETCH_ATTEMPTS_MAX):
            seen = await self._pointer(key)
            if seen is None:
                raise ArtifactInvalid("no artifact is published", path=key)
            if seen.body == before:
                break
            before = seen.body
            try:
                await self._objects.download(payload_path(key, before), tar, progress)
            except ObjectMissing:
                continue
            return before
        raise ArtifactInvalid("the payload that the pointer names is missing", path=key)


class PublishedArtifact:
    """The newest artifact of one key, as an `ArtifactSource` for bootstrap and repair."""

    def __init__(
        self, transport: ArtifactTransport, key: str, *, progress: Progress = unheard
    ) -> None:
        self.transport = transport
        self.key = key
        self._progress = progress

    async def latest(self) -> Manifest | None:
        return await self.transport.manifest(self.key)

    async def fetch(self, dest: Path | str) -> Manifest:
        return await self.transport.download(self.key, dest, progress=self._progress)


def transport_for(
    url: str,
    *,
    bounds: Bounds | None = None,
    allow_non_atomic_pointer: bool = False,
    **options: Any,
) -> ArtifactTransport:
    """Return the transport for a directory, `file://`, `s3://`, `gs://`, `az://` or `memory:///`.

    `options` are those of `obstore.store.from_url`: credentials, `endpoint`, `client_options`.
    ValueError for an unsupported URL or option.
    """
    scheme, _, path = url.partition("://")
    if not path and scheme == url:
        return ArtifactTransport(LocalObjects(Path(url), bounds=bounds))
    if scheme == "file":
        root = Path(unquote(urlsplit(url).path))
        return ArtifactTransport(LocalObjects(root, bounds=bounds))
    try:
        from penstock.fold.ship.remote_objects import RemoteObjects, store_at
    except ImportError as error:
        raise TransportError("object stores need obstore: install penstock[fold]") from error
    store = store_at(url, options)
    return ArtifactTransport(
        RemoteObjects(store, allow_non_atomic_pointer=allow_non_atomic_pointer, bounds=bounds)
    )


def artifact_at(url: str, *, progress: Progress = unheard, **options: Any) -> PublishedArtifact:
    """Return the artifact that a URL names: the last part is the key, the rest the transport."""
    place, slash, key = url.rstrip("/").rpartition("/")
    if not key or ("://" in url and (not place or place.endswith("/"))):
        raise ValueError(f"{url!r} names no artifact: a place, then '/', then its key")
    transport = transport_for(place or slash or ".", **options)
    return PublishedArtifact(transport, key, progress=progress)


def _read_manifest(artifact: Path) -> bytes:
    path = artifact / MANIFEST_FILE
    with os_errors(path):
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise ArtifactInvalid("there is no manifest", path=artifact) from error
    if len(data) > POINTER_BYTES_MAX:
        raise ArtifactInvalid(f"a manifest of more than {POINTER_BYTES_MAX} bytes", path=path)
    return data
