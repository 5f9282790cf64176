"""Runs a fold: opens its store, runs its watch loop, and restarts the loop after errors.

Invariants: the state becomes `LIVE` only when everything the watch listed is in the store. The
fold ends by itself only if its store belongs to another bucket or scope (`FoldMismatch`). `Fold`
owns one supervisor and is its only caller: `open` once, then `resync`, `wait_for` and reads, then
`close`, which always releases the store. Use from one event loop; any thread may read the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.fold.artifact.export_requests import Exports
from penstock.fold.errors import (
    ArtifactInvalid,
    FoldMismatch,
    FoldStoreError,
    RepairRefused,
    StorePoisoned,
    VersionReset,
)
from penstock.fold.fold_status import FoldState
from penstock.fold.follow.batch_commit import BatchCommitter
from penstock.fold.follow.bucket_access import BucketAccess
from penstock.fold.follow.keep_rules import Keep, check_keep
from penstock.fold.follow.open_target import open_store
from penstock.fold.follow.outbox_file import OutboxFile
from penstock.fold.follow.resync import Aside, Resynced
from penstock.fold.follow.store_worker import Worker
from penstock.fold.follow.subscribers import Subscribers
from penstock.fold.follow.watch_loop import FoldLoop, LoopContext, WatchListener
from penstock.fold.follow.write_outbox import Outbox
from penstock.fold.store.atomic_files import check_writable
from penstock.fold.store.memory_store import MemorySnapshot
from penstock.kv.errors import BucketError, BucketNotFound, KvError
from penstock.kv.kv_types import Scope, WriteVersion
from penstock.kv.resume_check import is_same_log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.fold.follow.batch_buffer import BatchConfig
    from penstock.fold.follow.observer import Observer
    from penstock.fold.follow.open_target import FoldOrigin
    from penstock.fold.follow.repair import Repair
    from penstock.fold.follow.repair_policy import RepairPlan
    from penstock.fold.follow.resume import Anchor
    from penstock.fold.follow.watch_loop import Application
    from penstock.fold.ship.copy_sources import ArtifactSource
    from penstock.fold.store.contract import SnapshotStore
    from penstock.fold.store.extensions import Extension
    from penstock.kv.kv_types import KvUpdate, WatchCursor

PAUSE_SECONDS_FIRST = 0.5
PAUSE_SECONDS_MAX = 30.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Setup:
    """The arguments a fold was opened with."""

    origin: FoldOrigin
    scope: Scope
    path: Path | str
    kind: type[SnapshotStore]
    options: Mapping[str, object]
    bootstrap: ArtifactSource | None
    repair: Repair
    application: Application[Any]
    batch: BatchConfig
    observers: Sequence[Observer]
    extensions: Sequence[Extension]
    heartbeat: float
    remote_reads: bool = False
    keep: Keep | None = None
    outbox: Path | None = None
    """File of the queued writes; None for no outbox."""


@dataclass(slots=True)
class _Resync:
    """A requested resync; it has started once `aside` is set."""

    answer: asyncio.Future[Resynced]
    aside: Aside | None = None


class Supervisor:
    """Runs one fold after `open`, until `close`."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.store: SnapshotStore | None = None
        self.worker = Worker()
        self.subscribers = Subscribers()
        self.exports = Exports()
        self.access = BucketAccess(setup.origin)
        self.outbox: Outbox | None = None
        self.ready = asyncio.Event()
        self.around = LoopContext(
            exports=self.exports, listener=_Progress(self), heartbeat=setup.heartbeat
        )
        self.state = FoldState.OPENING
        self.error: Exception | None = None
        self.newest = 0
        self.repairs = 0
        self.restarts = 0
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self._resync: _Resync | None = None
        self._contact: float | None = None
        self._is_poisoned = False
        self._pause = PAUSE_SECONDS_FIRST

    async def open(self) -> None:
        setup = self.setup
        try:
            self.store = await open_store(
                setup.kind, setup.path, setup.options, setup.bootstrap, setup.scope, self.worker
            )
            await self.worker.run(check_keep, self.store, setup.keep)
            await self.worker.run(self._attach, self.store)
            await self._open_outbox()
        except BaseException:
            with contextlib.suppress(Exception):
                await self._close_store()
            self.worker.close()
            raise
        name = f"fold of {setup.origin.name}"
        self._task = asyncio.create_task(self._supervise(), name=name)

    async def _open_outbox(self) -> None:
        """Open the outbox and start sending its queued writes."""
        if self.setup.outbox is not None:
            name = self.setup.origin.name
            file = await asyncio.to_thread(OutboxFile, self.setup.outbox, name)
            self.outbox = Outbox(file, self.access.once_writer, self._held)
            self.outbox.open()

    def _held(self, key: str) -> int:
        """Return the revision of a key in the fold, 0 if it has none."""
        assert self.store is not None
        entry = self.store.get(key)
        return 0 if entry is None else entry.revision or 0

    async def close(self) -> None:
        """Flush, stop the watch and close the store; raises only `KvError`."""
        self._is_closing = True
        self.around.stop.set()
        if self._task is not None:
            await asyncio.wait({self._task})
        if self.state is FoldState.CLOSED:
            return
        self.state = FoldState.CLOSED
        self._end_resync(FoldStoreError("the fold is closed"))
        self._end(FoldStoreError("the fold is closed"))
        try:
            if self.outbox is not None:
                await self.outbox.close()
            await self._close_store()
        finally:
            self.worker.close()
            with contextlib.suppress(Exception):
                await self.access.close()

    async def resync(self) -> Resynced:
        """Stop the watch and start a new one that first makes the fold equal to the bucket."""
        if self._is_closing or self._task is None or self.state is FoldState.FAILED:
            raise FoldStoreError("the fold is not open, or has failed")
        if self._resync is None:
            self._resync = _Resync(asyncio.get_running_loop().create_future())
            self.around.stop.set()
        return await asyncio.shield(self._resync.answer)

    def has(self, revision: int, log: str) -> bool:
        """Return whether a revision is in the store; if `log` is given, a revision of that log."""
        assert self.store is not None
        is_followed = not log or is_same_log(self.store.meta.identity, log)
        return is_followed and self.store.cursor.rank >= revision

    async def wait_for(self, revision: int, log: str) -> None:
        """Wait for a revision of a log that the fold may not follow yet."""
        assert self.store is not None
        if log and not is_same_log(self.store.meta.identity, log):
            await self._turn_to(revision, log)
        if not self.has(revision, log):
            await self.subscribers.wait_for(revision, log)

    async def _turn_to(self, revision: int, log: str) -> None:
        """Check the bucket's log now instead of at the next heartbeat, and restart the watch if it
        is the wanted log. Does nothing if the server cannot be reached."""
        try:
            info = await self.setup.origin.watcher.log_info()
        except BucketError:
            return
        if not is_same_log(info.identity, log):
            reason = f"revision {revision} is of {log}, the bucket is {info.identity} now"
            raise VersionReset(reason, version=WriteVersion.in_log(revision, log))
        if self.state is FoldState.LIVE and not self._is_closing:
            self.around.stop.set()  # the next watch begins with the new log

    @property
    def contact_age(self) -> float | None:
        """Seconds since the last message or heartbeat of the server; None if there was none."""
        record_at = getattr(self.around.watch, "heard_at", None)
        times = [at for at in (record_at, self._contact) if at is not None]
        return max(0.0, time.monotonic() - max(times)) if times else None

    def record_contact(self) -> None:
        self._contact = time.monotonic()

    # -- restarts

    async def _supervise(self) -> None:
        while not self._is_closing:
            try:
                await self._run_once()
            except asyncio.CancelledError:
                raise
            except FoldMismatch as error:
                self.error, self.state = error, FoldState.FAILED
                log.error("the fold ends bucket=%s reason=%s", self.setup.origin.name, error)
                self._end_resync(error)
                self._end(error)
                return
            except Exception as error:
                self._failed(error)
            if not self.around.stop.is_set():
                await self._rest()

    async def _run_once(self) -> None:
        if not self._is_closing:
            self.around.stop.clear()
        if self._is_poisoned:
            await self._reopen()
        if self._resync is not None:
            is_on_disk = self.setup.kind is not MemorySnapshot
            self._resync.aside = Aside(Path(self.setup.path) if is_on_disk else None)
        self.enter(FoldState.CATCHING_UP)
        setup = self.setup
        loop = FoldLoop(
            setup.origin.watcher,
            setup.scope,
            committer=self._committer(),
            repair=setup.repair,
            application=setup.application,
            around=self.around,
            batch=setup.batch,
            aside=None if self._resync is None else self._resync.aside,
        )
        await loop.run()

    def _committer(self) -> BatchCommitter:
        assert self.store is not None
        return BatchCommitter(self.store, self.worker, self.setup.observers, self.setup.keep)

    def enter(self, state: FoldState) -> None:
        """Change the state, unless it is `STORE_FAILING`, which only a commit ends."""
        if self.state is not FoldState.STORE_FAILING:
            self.state = state

    def refused(self, error: Exception) -> None:
        """Record that the store rejected a batch, which the loop retries."""
        self.error, self.state = error, FoldState.STORE_FAILING

    def stored(self, *, is_live: bool) -> None:
        """Record a successful commit."""
        if self.state is FoldState.STORE_FAILING:
            self.state = FoldState.LIVE if is_live else FoldState.CATCHING_UP
            self.error = None

    def caught_up(self) -> None:
        self.state, self.error, self._pause = FoldState.LIVE, None, PAUSE_SECONDS_FIRST
        self.ready.set()
        if self._resync is not None and self._resync.aside is not None:
            resync, self._resync = self._resync, None
            assert resync.aside is not None
            resync.answer.set_result(resync.aside.close())

    def _end_resync(self, error: Exception) -> None:
        """Fail the requested resync, if any; it is not retried, because the caller decides."""
        resync, self._resync = self._resync, None
        if resync is None:
            return
        if resync.aside is not None:
            resync.aside.close()
        if not resync.answer.done():
            resync.answer.set_exception(error)
            resync.answer.exception()  # marks it as retrieved: the caller may have been cancelled

    def _failed(self, error: Exception) -> None:
        self._end_resync(error)
        self.error = error
        self.restarts += 1
        self._is_poisoned = self._is_poisoned or isinstance(error, StorePoisoned)
        self.state = _state_after(error)
        name = self.setup.origin.name
        if isinstance(error, KvError):
            log.warning("the watch ended bucket=%s reason=%s", name, error)
        else:
            log.error("the watch broke bucket=%s", name, exc_info=error)

    async def _rest(self) -> None:
        """Pause with exponential backoff and jitter; serve exports meanwhile."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._pause * random.uniform(0.5, 1.0)
        self._pause = min(2 * self._pause, PAUSE_SECONDS_MAX)
        committer = self._committer()
        while (left := until - loop.time()) > 0 and not self.around.stop.is_set():
            bells = {
                asyncio.create_task(self.around.stop.wait()),
                asyncio.create_task(self.exports.asked()),
            }
            await asyncio.wait(bells, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for bell in bells:
                bell.cancel()
            await self.exports.serve(committer.export_to)

    async def _reopen(self) -> None:
        """Reopen a poisoned store, whose state on disk is unknown.

        First check that the disk accepts writes: until then the old store can still be read.
        """
        setup = self.setup
        if setup.kind is not MemorySnapshot:
            await self.worker.run(check_writable, setup.path)
        with contextlib.suppress(Exception):
            await self._close_store()
        store = await self.worker.run(setup.kind.open, setup.path, **setup.options)
        await self.worker.run(self._attach, store)
        self.store, self._is_poisoned = store, False

    async def _close_store(self) -> None:
        if self.store is None:
            return
        try:
            await self.worker.run(self.store.close)
        except KvError:
            raise
        except Exception as error:
            raise FoldStoreError(f"closing failed: {error}", path=self.setup.path) from error

    def _attach(self, store: SnapshotStore) -> None:
        for extension in self.setup.extensions:
            store.attach(extension)

    def _end(self, reason: KvError) -> None:
        self.ready.set()
        self.subscribers.close(reason)
        self.exports.close()


def _state_after(error: Exception) -> FoldState:
    if isinstance(error, BucketNotFound | RepairRefused | ArtifactInvalid):
        return FoldState.STALE
    is_of_store = isinstance(error, FoldStoreError) or isinstance(error.__cause__, FoldStoreError)
    return FoldState.STORE_FAILING if is_of_store else FoldState.RETRYING


class _Progress(WatchListener):
    """Translates the reports of the watch loop to the state of the fold."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._of = supervisor

    def watching(self, anchor: Anchor) -> None:
        self._of.record_contact()
        self._of.enter(FoldState.CATCHING_UP)
        self._of.newest = max(anchor.last_seq, anchor.after)

    def received(self, newest: int) -> None:
        self._of.record_contact()
        self._of.newest = max(self._of.newest, newest)

    def committed(self, updates: Sequence[KvUpdate], cursor: WatchCursor, *, is_live: bool) -> None:
        self._of.stored(is_live=is_live)
        assert self._of.store is not None
        self._of.subscribers.committed(updates, cursor.rank, self._of.store.meta.identity)

    def refused(self, error: Exception) -> None:
        self._of.refused(error)

    def caught_up(self) -> None:
        of = self._of
        assert of.store is not None
        if of.setup.scope != Scope.all():
            # Records after the cursor belong to other prefixes, so they are not lag.
            of.newest = of.store.cursor.rank
        of.caught_up()

    def repairing(self, plan: RepairPlan) -> None:
        self._of.enter(FoldState.REPAIRING)
        self._of.repairs += 1
