"""A new machine begins with the newest artifact, not with the whole history of a bucket.

The artifact is fetched beside the destination, checked, made a store, and gone again; the store
then follows the bucket from its cursor. Nothing that is there is overwritten.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from penstock.fold.artifact.atomic_dir import check_free, staged_beside

if TYPE_CHECKING:
    from penstock.fold.ship.copy_sources import ArtifactSource
    from penstock.fold.store.contract import SnapshotStore
    from penstock.kv.kv_types import Scope

_Store = TypeVar("_Store", bound="SnapshotStore")


async def bootstrap(
    source: ArtifactSource,
    dest: Path | str,
    kind: type[_Store],
    *,
    scope: Scope | None = None,
    **options: object,
) -> _Store:
    """Make a store of `kind` at `dest` out of the newest artifact, and open it with `options`.

    With a `scope` it has that part of the artifact alone.
    """
    dest = Path(dest)
    check_free(dest)
    with staged_beside(dest) as stage:
        await source.fetch(stage / "artifact")
        return await asyncio.to_thread(
            lambda: kind.import_from(stage / "artifact", dest, scope=scope, **options)
        )
