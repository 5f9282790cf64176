"""Creates a store from the newest artifact, so that a new machine need not read the whole bucket.

The artifact is fetched into a temporary directory beside the destination, verified, imported as a
store, and deleted. The store can then follow the bucket from its cursor. An existing destination is
never overwritten.
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
    """Create a store of `kind` at `dest` from the newest artifact, and open it with `options`.

    With a `scope`, the store contains only the keys in scope.
    """
    dest = Path(dest)
    check_free(dest)
    with staged_beside(dest) as stage:
        await source.fetch(stage / "artifact")
        return await asyncio.to_thread(
            lambda: kind.import_from(stage / "artifact", dest, scope=scope, **options)
        )
