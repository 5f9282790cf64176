"""Commits batches: applies them to the store with their cursor, and calls the observers.

One committer owns a store for writing; all changes run in the store's worker thread. If the store
rejects a batch, the watch loop keeps the batch and retries; the committer counts consecutive
failures. `StorePoisoned` is raised at once: that store is not retried.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from penstock.fold.errors import StorePoisoned
from penstock.fold.store import log_witnesses
from penstock.kv.errors import WatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.fold.artifact.manifest import Manifest
    from penstock.fold.follow.keep_rules import Keep
    from penstock.fold.follow.observer import Observer
    from penstock.fold.follow.store_worker import Worker
    from penstock.fold.store.contract import SnapshotStore
    from penstock.fold.store.fold_meta import SnapshotMeta
    from penstock.fold.store.log_witnesses import Witness
    from penstock.kv.kv_types import KvUpdate, WatchCursor

FAILURES_MAX = 16
"""Number of consecutive failed commits that ends the watch."""

log = logging.getLogger(__name__)


class BatchCommitter:
    """Commits to one store through its worker, with observers."""

    def __init__(
        self,
        store: SnapshotStore,
        worker: Worker,
        observers: Sequence[Observer] = (),
        keep: Keep | None = None,
    ) -> None:
        self._keep = keep
        self.store = store
        self.worker = worker
        self.failures = 0
        self.error: Exception | None = None
        """Error of the last failed commit; None after a successful one."""
        self._observers = tuple(observers)
        self._meta: SnapshotMeta | None = None
        """Metadata to write with the next commit."""
        self.recent: tuple[Witness, ...] = store.meta.witnesses
        """The witnesses after the last commit, also if the store keeps none."""

    def remember(self, meta: SnapshotMeta) -> None:
        """Write `meta` with the next commit, so that it is durable no later than its cursor."""
        meta = msgspec.structs.replace(meta, keep=self.kept)
        self._meta = None if meta == self.store.meta else meta

    @property
    def kept(self) -> str:
        """The name of the `Keep` rule; empty if whole values are stored."""
        return "" if self._keep is None else self._keep.name

    @property
    def has_news(self) -> bool:
        return self._meta is not None

    async def try_commit(self, updates: Sequence[KvUpdate], cursor: WatchCursor) -> bool:
        """Commit; return False if the store rejected the batch and the caller may retry."""
        try:
            await self.commit(updates, cursor)
        except StorePoisoned:
            raise
        except Exception as error:
            self.failures += 1
            self.error = error
            log.warning("the store refused a batch times=%d reason=%s", self.failures, error)
            if self.failures >= FAILURES_MAX:
                reason = f"the store refused a batch {self.failures} times: {error}"
                raise WatchError(reason, cursor=self.store.cursor) from error
            return False
        self.failures = 0
        self.error = None
        return True

    async def commit(self, updates: Sequence[KvUpdate], cursor: WatchCursor) -> None:
        meta = self._meta
        await self.worker.run(self._commit, updates, cursor, meta)
        if self._meta is meta:
            self._meta = None

    async def listed(self, losses: int | None) -> None:
        """Record the loss count once the store contains everything the bucket listed."""
        meta = self.store.meta
        if losses is not None and meta.losses is None:
            self.remember(msgspec.structs.replace(meta, losses=losses))
            await self.try_commit([], self.store.cursor)

    async def finish_load(self) -> None:
        await self.worker.run(self.store.finish_load)

    async def repaired(self, kind: str) -> None:
        await self.worker.run(self._notify, lambda one: one.repaired(self.store, kind))

    async def export_to(self, dest: Path, form: str | None) -> Manifest:
        manifest = await self.worker.run(self.store.export_to, dest, form=form)
        await self.worker.run(self._notify, lambda one: one.exported(self.store, manifest))
        return manifest

    # -- in the worker

    def _commit(
        self, updates: Sequence[KvUpdate], cursor: WatchCursor, meta: SnapshotMeta | None
    ) -> None:
        store, recent = self.store, self._witnesses_after(updates, cursor, meta)
        if store.keeps_witnesses:
            known = store.meta if meta is None else meta
            if meta is not None or recent != known.witnesses:
                meta = msgspec.structs.replace(known, witnesses=recent)
        if self._keep is not None:
            updates = self._keep.stored(updates)
        for observer in self._observers:
            observer.before_commit(store, updates, cursor)
        store.apply(updates, cursor, meta=meta)
        self.recent = recent
        self._notify(lambda one: one.applied(store, updates, cursor))

    def _witnesses_after(
        self, updates: Sequence[KvUpdate], cursor: WatchCursor, meta: SnapshotMeta | None
    ) -> tuple[Witness, ...]:
        known = self.recent if meta is None or not self.store.keeps_witnesses else meta.witnesses
        return log_witnesses.after(known, updates) if cursor else ()

    def _notify(self, say: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            try:
                say(observer)
            except Exception:
                log.exception("an observer of the fold raised")
