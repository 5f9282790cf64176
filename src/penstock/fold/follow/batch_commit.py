"""The end of every batch: in the store, with the cursor that is true then, observers around it.

One committer owns a store for writing; all of it runs in the store's worker thread. What the store
refused is kept by the caller and tried again; this only counts how often in a row. A store that
says it is poisoned is not asked again.
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
    from penstock.kv.kv_types import KvUpdate, WatchCursor

FAILURES_MAX = 16
"""So many refusals of the store in a row end the watch."""

log = logging.getLogger(__name__)


class BatchCommitter:
    """A store, its thread, and who looks on."""

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
        """Why the store refused last; None once it has taken a batch again."""
        self._observers = tuple(observers)
        self._meta: SnapshotMeta | None = None
        """What is to be remembered with the next commit."""

    def remember(self, meta: SnapshotMeta) -> None:
        """Make `meta` durable no later than the next cursor."""
        meta = msgspec.structs.replace(meta, keep=self.kept)
        self._meta = None if meta == self.store.meta else meta

    @property
    def kept(self) -> str:
        """The name of what is kept of values; empty is all."""
        return "" if self._keep is None else self._keep.name

    @property
    def has_news(self) -> bool:
        return self._meta is not None

    async def try_commit(self, updates: Sequence[KvUpdate], cursor: WatchCursor) -> bool:
        """Commit; False if the store refused and may be asked again."""
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
        """All that the bucket had is in the store, so it reflects these losses."""
        meta = self.store.meta
        if losses is not None and meta.losses is None:
            self.remember(msgspec.structs.replace(meta, losses=losses))
            await self.try_commit([], self.store.cursor)

    async def settle(self) -> None:
        await self.worker.run(self.store.settle)

    async def repaired(self, kind: str) -> None:
        await self.worker.run(self._tell, lambda one: one.repaired(self.store, kind))

    async def export_to(self, dest: Path, form: str | None) -> Manifest:
        manifest = await self.worker.run(self.store.export_to, dest, form=form)
        await self.worker.run(self._tell, lambda one: one.exported(self.store, manifest))
        return manifest

    # -- in the worker

    def _commit(
        self, updates: Sequence[KvUpdate], cursor: WatchCursor, meta: SnapshotMeta | None
    ) -> None:
        store, meta = self.store, self._with_witnesses(updates, cursor, meta)
        if self._keep is not None:
            updates = self._keep.stored(updates)
        for observer in self._observers:
            observer.before_commit(store, updates, cursor)
        store.apply(updates, cursor, meta=meta)
        self._tell(lambda one: one.applied(store, updates, cursor))

    def _with_witnesses(
        self, updates: Sequence[KvUpdate], cursor: WatchCursor, meta: SnapshotMeta | None
    ) -> SnapshotMeta | None:
        if not self.store.keeps_witnesses:
            return meta
        known = self.store.meta if meta is None else meta
        seen = log_witnesses.after(known.witnesses, updates) if cursor else ()
        if meta is None and seen == known.witnesses:
            return None
        return msgspec.structs.replace(known, witnesses=seen)

    def _tell(self, say: Callable[[Observer], None]) -> None:
        for observer in self._observers:
            try:
                say(observer)
            except Exception:
                log.exception("an observer of the fold raised")
