"""Places that artifacts are published in: a directory, memory, and S3 over HTTP on loopback.

All that a test does to a place goes through `Objects`, so the same suite runs on each; and on one
more that `PENSTOCK_OBJECT_STORE` names, a bucket or container at Google, Azure or an emulator of
theirs, with the options of obstore as JSON in `PENSTOCK_OBJECT_STORE_OPTIONS`.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.fold.ship.artifact_transport import ArtifactTransport
from penstock.fold.ship.local_objects import LocalObjects
from penstock.fold.ship.object_store import unheard
from support.folds import KINDS, at, put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.fold import Manifest
    from penstock.fold.ship.object_store import Objects
    from support.s3 import S3

KEY = "edge/origins"


@dataclass(frozen=True)
class Place:
    """Where artifacts are: every call of `objects` is another client of the same place."""

    objects: Callable[[], Objects]

    def transport(self) -> ArtifactTransport:
        return ArtifactTransport(self.objects())

    async def pointer(self) -> bytes | None:
        seen = await self.objects().read(f"{KEY}.manifest.json", 1 << 20)
        return None if seen is None else seen.body

    async def set_pointer(self, body: bytes) -> None:
        """As a peer does that keeps to no rule."""
        objects = self.objects()
        seen = await objects.read(f"{KEY}.manifest.json", 1 << 30)
        assert await objects.swap(f"{KEY}.manifest.json", body, seen)

    async def payloads(self) -> set[str]:
        return {one.name async for one in self.objects().listed(f"{KEY}.payloads")}

    async def set_payload(self, name: str, file: Path) -> None:
        await self.objects().upload(f"{KEY}.payloads/{name}", file, unheard)


def in_directory(root: Path) -> Place:
    return Place(lambda: LocalObjects(root / "published"))


def in_memory() -> Place:
    from obstore.store import MemoryStore

    from penstock.fold.ship.remote_objects import RemoteObjects

    store = MemoryStore()
    return Place(lambda: RemoteObjects(store))


def in_s3(s3: S3) -> Place:
    bucket = s3.new_bucket()
    return Place(lambda: s3.objects(bucket))


def in_named_store() -> Place:
    """Below a prefix of its own, which stays there."""
    from penstock.fold.ship.remote_objects import RemoteObjects, store_at

    options = json.loads(os.environ.get("PENSTOCK_OBJECT_STORE_OPTIONS", "{}"))
    url = f"{os.environ[NAMED_STORE].rstrip('/')}/{secrets.token_hex(8)}"
    return Place(lambda: RemoteObjects(store_at(url, options)))


NAMED_STORE = "PENSTOCK_OBJECT_STORE"
PLACES = ("directory", "memory", "s3", *(["named"] if NAMED_STORE in os.environ else []))


def artifact(
    directory: Path, cursor: int, *, value: bytes = b"v", kind: str = "memory"
) -> Manifest:
    """An artifact at `directory` with a few entries, the newest at `cursor`."""
    with KINDS[kind].open("" if kind == "memory" else f"{directory}.fold") as store:
        store.apply([put(f"k.{n}", value, n) for n in range(1, cursor + 1)], at(cursor))
        return store.export_to(directory, created_at=1_700_000_000)
