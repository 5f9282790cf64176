"""Task of the fold job: folds the rows of one shard into its published artifact.

The task fetches and verifies the published artifact, folds the rows into it in memory, exports the
result with the new cursor and publishes it, unless a newer one is published by then. A task that
dies leaves only a temporary directory, or a payload that no pointer references.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.fold.ship.artifact_transport import transport_for
from penstock.fold.ship.pointer import Published
from penstock.fold.store.append_log import AppendLogSnapshot
from penstock.fold.store.fold_meta import SnapshotMeta
from penstock.kv.kv_types import KvUpdate, Op, WatchCursor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.fold.artifact.shards import Shard

RESULT_SCHEMA: Final = (
    "shard string, cursor bigint, entries bigint, bytes bigint, changed bigint, published boolean"
)
BATCH_UPDATES: Final = 10_000


class BucketRecreated(Exception):
    """The published artifact belongs to an earlier bucket of the same name."""


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """Plan of a run, shared by all its tasks."""

    dest: str
    bucket: str
    shards: tuple[Shard, ...]
    cursor: int
    identity: str
    rebuilt: bool
    options: dict[str, Any] = field(default_factory=dict, repr=False)

    def key(self, shard: str) -> str:
        """Return the key under which an artifact is published."""
        return f"{self.bucket}/{shard}"

    def scope(self, shard: str) -> tuple[str, ...]:
        return next(one.scope for one in self.shards if one.name == shard)


def folder(plan: FoldPlan) -> Callable[[Any], Any]:
    """Return a function for `applyInArrow`: rows of one shard in, one row with the result out."""

    def run(rows: Any) -> Any:
        import pyarrow as pa

        shard = rows.column("shard")[0].as_py()
        report = asyncio.run(publish(plan, shard, list(updates_of(rows))))
        return pa.Table.from_pylist([report], schema=_result_schema())

    return run


def _result_schema() -> Any:
    import pyarrow as pa

    numbers = ("cursor", "entries", "bytes", "changed")
    fields = [("shard", pa.string()), *((name, pa.int64()) for name in numbers)]
    return pa.schema([*fields, ("published", pa.bool_())])


def updates_of(rows: Any) -> Iterator[KvUpdate]:
    """Yield one update for each row with a key."""
    for row in rows.select(("key", "value", "seq")).to_pylist():
        if row["key"] is None:
            continue
        if row["value"] is None:
            yield KvUpdate(Op.DELETE, row["key"], revision=row["seq"])
        else:
            yield KvUpdate(Op.PUT, row["key"], row["value"], row["seq"])


async def publish(plan: FoldPlan, shard: str, updates: list[KvUpdate]) -> dict[str, Any]:
    """Fold and publish; return the published state as a row of `RESULT_SCHEMA`."""
    transport = transport_for(plan.dest, **plan.options)
    key = plan.key(shard)
    with tempfile.TemporaryDirectory(prefix="penstock-fold-") as scratch:
        place = Path(scratch)
        if await transport.manifest(key) is None:
            store = AppendLogSnapshot.open(place / "store")
        else:
            await transport.download(key, place / "fetched")
            store = AppendLogSnapshot.import_from(place / "fetched", place / "store")
        with store:
            changed = apply(plan, shard, store, updates)
            report = {"shard": shard, "cursor": store.cursor.rank, "entries": store.count()}
            if changed is None:
                return {**report, "bytes": 0, "changed": 0, "published": False}
            manifest = store.export_to(place / "artifact")
        outcome = await transport.upload(key, place / "artifact")
    size = sum(file.size for file in manifest.files)
    return {
        **report,
        "bytes": size,
        "changed": changed,
        "published": isinstance(outcome, Published),
    }


def apply(
    plan: FoldPlan, shard: str, store: AppendLogSnapshot, updates: list[KvUpdate]
) -> int | None:
    """Apply updates newer than the store; return their number, None if the store is up to date."""
    held = store.cursor.rank
    if held and store.meta.identity not in ("", plan.identity):
        raise BucketRecreated(
            f"{plan.key(shard)} was made of {store.meta.identity}, and the bucket is "
            f"{plan.identity} now: publish to another place"
        )
    if held >= plan.cursor:
        return None
    if plan.rebuilt:
        store.clear()
        held = 0
    fresh = [update for update in updates if update.revision > held]
    meta = SnapshotMeta(plan.identity, plan.scope(shard), store.meta.seen_evicting)
    for start in range(0, len(fresh), BATCH_UPDATES):
        store.apply(fresh[start : start + BATCH_UPDATES], store.cursor)
    store.apply([], WatchCursor.of(plan.cursor), meta=meta)
    return len(fresh)
