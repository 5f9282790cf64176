"""`watch_applied`: the watch loop as one call, for callers with their own store and application.

This is the low-level interface: the caller supplies every component, nothing is restarted, and
every error is raised. `Fold` runs the same loop with a connection, a store and restarts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeVar

from penstock.fold.follow.batch_buffer import BatchConfig
from penstock.fold.follow.batch_commit import BatchCommitter
from penstock.fold.follow.repair import Repair
from penstock.fold.follow.store_worker import Worker
from penstock.fold.follow.watch_loop import Application, FoldLoop, LoopContext
from penstock.kv.contract import HEARTBEAT_SECONDS
from penstock.kv.kv_types import WatchCursor

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Sequence

    from penstock.fold.artifact.export_requests import Exports
    from penstock.fold.follow.observer import Observer
    from penstock.fold.store.contract import SnapshotStore
    from penstock.kv.contract import KvWatcher
    from penstock.kv.kv_types import KvUpdate, Scope

T = TypeVar("T")


async def watch_applied(
    watcher: KvWatcher,
    scope: Scope,
    *,
    store: SnapshotStore | None = None,
    cursor: WatchCursor = WatchCursor.NONE,
    repair: Repair | None = None,
    parse: Callable[[KvUpdate], T | None] | None = None,
    apply: Callable[[list[T]], Awaitable[None] | None] | None = None,
    on_applied: Callable[[WatchCursor], None] | None = None,
    on_apply_error: Literal["stop", "retry"] = "stop",
    batch: BatchConfig | None = None,
    stop: asyncio.Event | None = None,
    exports: Exports | None = None,
    observers: Sequence[Observer] = (),
    heartbeat: float = HEARTBEAT_SECONDS,
) -> WatchCursor:
    """Watch, apply and store until `stop` is set or the watch ends; return the cursor reached.

    `cursor` is the start position if there is no store. Without a store a gap cannot be repaired:
    it raises an error, or with `Repair.none()` the loop reads all current values again. Errors that
    end a watch (`WatchError`, `BucketError`, `StorePoisoned`) are raised after received updates are
    flushed.
    """
    worker = Worker()
    around = LoopContext(exports=exports, heartbeat=heartbeat)
    if stop is not None:
        around.stop = stop
    try:
        loop = FoldLoop(
            watcher,
            scope,
            committer=None if store is None else BatchCommitter(store, worker, observers),
            repair=Repair.auto() if repair is None else repair,
            application=Application(parse, apply, on_applied, on_apply_error),
            around=around,
            batch=BatchConfig() if batch is None else batch,
            cursor=cursor,
        )
        return await loop.run()
    finally:
        worker.close()
