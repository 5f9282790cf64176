"""The watch loop: receive updates, apply them, commit them, then report the cursor.

    watcher ──► buffer ──► apply (yours) ──► store, data and cursor ──► on_applied

Invariant: everything up to a stored or reported cursor has been applied; receiving updates does not
move the cursor. A batch that the store rejected is committed before or with later updates. If
several events are ready, the loop serves them in this order: stop, end of the batch window, export,
next watch event; so a flood of updates cannot delay a stop. Gaps are repaired between two watches
(`resume`). `Supervisor` and `watch_applied` create a loop and call `run` once.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from penstock.fold.errors import ApplyError, RepairRefused
from penstock.fold.follow.batch_buffer import HYDRATE_UPDATES, BatchBuffer, BatchConfig, Rejections
from penstock.fold.follow.event_stream import EventStream
from penstock.fold.follow.repair_policy import FoldStart, HeldEntry, Mode, how_to_start
from penstock.fold.follow.resume import Anchor, ResumePlanner
from penstock.fold.follow.store_worker import LEAVE_SECONDS
from penstock.kv.contract import HEARTBEAT_SECONDS
from penstock.kv.errors import CursorExpired, LogReset, ValuesLost
from penstock.kv.kv_types import Bookmark, CaughtUp, KvUpdate, Recheck, Scope, WatchCursor
from penstock.kv.update_batch import Updates

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
    from pathlib import Path

    from penstock.fold.artifact.export_requests import Exports
    from penstock.fold.artifact.manifest import Manifest
    from penstock.fold.follow.batch_commit import BatchCommitter
    from penstock.fold.follow.repair import Repair
    from penstock.fold.follow.repair_policy import RepairPlan
    from penstock.fold.follow.resync import Aside
    from penstock.kv.contract import KvWatcher
    from penstock.kv.kv_types import WatchEvent

RETRY_SECONDS_FIRST = 0.05
RETRY_SECONDS_MAX = 2.0
BULK_LOAD_UPDATES_MIN = 10_000
"""After catching up, `finish_load` runs only if the fold received at least this many updates."""

T = TypeVar("T")
R = TypeVar("R")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Application(Generic[T]):
    """The caller's functions for updates; without `parse`, `apply` receives the updates themselves.

    `apply` must be idempotent, because it may receive a batch again after a crash. An exception
    from it ends the watch; with `on_error="retry"` the loop calls it again until it succeeds or the
    loop is stopped.
    """

    parse: Callable[[KvUpdate], T | None] | None = None
    apply: Callable[[list[T]], Awaitable[None] | None] | None = None
    on_applied: Callable[[WatchCursor], None] | None = None
    on_error: Literal["stop", "retry"] = "stop"


class WatchListener:
    """Receives the progress of the loop, on the loop's thread; the base class does nothing."""

    def watching(self, anchor: Anchor) -> None:
        """A watch is about to start."""

    def received(self, newest: int) -> None:
        """The log has at least this revision."""

    def committed(self, updates: Sequence[KvUpdate], cursor: WatchCursor, *, is_live: bool) -> None:
        """The updates are applied and, if there is a store, committed with this cursor."""

    def refused(self, error: Exception) -> None:
        """The store rejected a batch, which the loop keeps and retries."""

    def caught_up(self) -> None:
        """Everything that existed when the watch started is applied."""

    def repairing(self, plan: RepairPlan) -> None:
        """A gap was found."""


@dataclass(slots=True)
class LoopContext:
    """The inputs of a loop (stop, exports, heartbeat) and its listener."""

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    exports: Exports | None = None
    listener: WatchListener = field(default_factory=WatchListener)
    heartbeat: float = HEARTBEAT_SECONDS
    """Heartbeat interval in seconds; after three missed heartbeats the watch is restarted."""
    rejections: Rejections = field(default_factory=Rejections)
    watch: object | None = None
    """The current watch, or the last one."""


class FoldLoop(Generic[T]):
    """One run of a fold, from its start until it is stopped or fails."""

    def __init__(
        self,
        watcher: KvWatcher,
        scope: Scope,
        *,
        committer: BatchCommitter | None,
        repair: Repair,
        application: Application[T],
        around: LoopContext,
        batch: BatchConfig,
        cursor: WatchCursor = WatchCursor.NONE,
        aside: Aside | None = None,
    ) -> None:
        """With `aside`, the run starts with a resync; see `ResumePlanner.mirror`."""
        self._aside = aside
        self._watcher = watcher
        self._scope = scope
        self._committer = committer
        self._repair = repair
        self._application = application
        self._around = around
        self._batch = batch
        self._applied = cursor if committer is None else committer.store.cursor
        self._reported = self._applied
        self._anchor: Anchor | None = None
        self._planner: ResumePlanner | None = None
        self._hydrated = 0
        self._is_listed = False
        """The watch has delivered everything that existed; the store may not have it yet."""
        self._buffer: BatchBuffer[T] = self._empty_buffer()

    async def run(self) -> WatchCursor:
        """Run until stopped or until the watch ends, repairing gaps; return the cursor reached."""
        while not self._around.stop.is_set():
            try:
                async with contextlib.AsyncExitStack() as stack:
                    events = await self._unless_stopped(self._watching(stack))
                    if events is not None:
                        await self._serve(EventStream(events))
                return self._reported
            except (CursorExpired, LogReset, ValuesLost) as gap:
                log.warning("the watch cannot go on reason=%s", gap)
        return self._reported

    async def _watching(self, stack: contextlib.AsyncExitStack) -> AsyncIterator[WatchEvent]:
        """Repair the fold if necessary, then start a watch and return it."""
        self._anchor = anchor = await self._begin()
        self._around.listener.watching(anchor)
        watch = await stack.enter_async_context(
            self._watcher.watch(
                self._scope,
                after=WatchCursor.of(anchor.after) if anchor.after else WatchCursor.NONE,
                identity=anchor.identity or None,
                heartbeat=self._around.heartbeat,
                **anchor.counts,
            )
        )
        self._around.watch = watch
        return watch

    async def _unless_stopped(self, work: Coroutine[Any, Any, R]) -> R | None:
        """Run `work`, which may be cancelled at any point; return None if a stop cancelled it."""
        working = asyncio.create_task(work)
        stopping = asyncio.create_task(self._around.stop.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not working.done():
                working.cancel()
                await asyncio.wait({working})
        return None if working.cancelled() else working.result()

    # -- start

    async def _begin(self) -> Anchor:
        self._buffer = self._empty_buffer()
        self._hydrated = 0
        self._is_listed = False
        if self._committer is None:
            return await self._begin_without_store()
        self._planner = planner = ResumePlanner(
            self._watcher,
            self._scope,
            self._repair,
            self._committer,
            self._fold_in,
            self._around.listener.repairing,
        )
        aside, self._aside = self._aside, None
        anchor = await (planner.find() if aside is None else planner.mirror(aside))
        self._applied = self._reported = self._committer.store.cursor
        return anchor

    async def _begin_without_store(self) -> Anchor:
        info = await self._watcher.log_info()
        start = how_to_start(HeldEntry(self._applied.rank), info)
        if start in (FoldStart.RELIST, FoldStart.DELTA):
            return Anchor(self._applied.rank, "", info.last_seq)
        if self._repair.mode is not Mode.NONE:
            reason = f"the cursor is {start.value}, and without a store nothing can be compared"
            raise RepairRefused(reason, cursor=self._applied)
        log.warning(
            "reading all values again; deletes during the gap are not reported kind=%s", start.value
        )
        self._applied = WatchCursor.NONE
        return Anchor(0, "", info.last_seq)

    def _empty_buffer(self) -> BatchBuffer[T]:
        store = None if self._committer is None else self._committer.store
        return BatchBuffer(
            self._batch,
            hydrate_max=getattr(store, "hydrate_batch", HYDRATE_UPDATES),
            parse=self._application.parse,
            keep_raw=store is not None,
            keep_parsed=self._application.apply is not None,
            rejections=self._around.rejections,
        )

    async def _fold_in(self, updates: Sequence[KvUpdate], cursor: WatchCursor) -> None:
        """Parse, apply and commit the updates of a repair with the given cursor."""
        assert self._committer is not None
        self._buffer.receive(updates, 0.0)
        await self._apply()
        self._buffer = self._empty_buffer()
        await self._committer.commit(updates, cursor)
        self._around.listener.committed(updates, cursor, is_live=False)

    # -- serving

    async def _serve(self, events: EventStream) -> None:
        bells: list[asyncio.Task[Any]] = [asyncio.create_task(self._around.stop.wait())]
        if self._around.exports is not None:
            bells.append(asyncio.create_task(self._around.exports.asked()))
        try:
            await self._serve_until_stopped(events, bells)
        except asyncio.CancelledError:
            # Flush received updates as for a stop, but with a time limit; then re-raise the cancel.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self._flush()
            raise
        finally:
            for task in (*bells, *events.close()):
                task.cancel()

    async def _serve_until_stopped(
        self, events: EventStream, bells: list[asyncio.Task[Any]]
    ) -> None:
        stop, exports = self._around.stop, self._around.exports
        clock = asyncio.get_running_loop().time
        while True:
            if exports is not None and bells[1].done():
                bells[1] = asyncio.create_task(exports.asked())
            await self._wait(events, bells)
            if stop.is_set():
                await self._flush()
                return
            if self._buffer.is_due(clock()):
                await self._flush()
            elif exports is not None and exports.is_asked:
                await exports.serve(self._export)
            elif events.is_ready and not self._is_held_back and not await self._take(events):
                return

    async def _wait(self, events: EventStream, bells: list[asyncio.Task[Any]]) -> None:
        """Wait until something is ready; request no events while held back by a failing store."""
        waited: set[asyncio.Future[Any]] = {*bells}
        if not self._is_held_back:
            waited.add(events.next())
        deadline = self._buffer.deadline
        seconds = None
        if deadline is not None:
            seconds = max(0.0, deadline - asyncio.get_running_loop().time())
        await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    @property
    def _is_held_back(self) -> bool:
        failing = self._committer is not None and self._committer.failures > 0
        return failing and self._buffer.is_full

    async def _take(self, events: EventStream) -> bool:
        """Process the received events; return False if the watch has ended."""
        try:
            arrived = events.take()
        except Exception:
            await self._flush()
            raise
        if not arrived:
            await self._flush()
            return False
        if isinstance(arrived, Updates):
            self._around.listener.received(arrived.last + arrived.pending)
            await self._receive(arrived)
            return True
        for event in arrived:
            await self._take_one(event)
        return True

    async def _take_one(self, event: WatchEvent) -> None:
        if isinstance(event, KvUpdate):
            self._around.listener.received(event.revision)
            await self._receive([event])
        elif isinstance(event, Bookmark):
            self._around.listener.received(event.cursor.rank)
            self._buffer.bookmark(event.cursor.rank, asyncio.get_running_loop().time())
        elif isinstance(event, CaughtUp):
            await self._caught_up()
        elif isinstance(event, Recheck) and self._planner is not None:
            await self._recheck(self._planner, is_resumed=event.is_resumed)

    async def _recheck(self, planner: ResumePlanner, *, is_resumed: bool) -> None:
        """Compare the log with what the fold remembers of everything received so far."""
        await self._flush()
        if self._committer is not None and self._committer.failures:
            if is_resumed:
                raise ValuesLost("what was received before the gap is not stored")
            return
        await planner.history.recheck(is_resumed=is_resumed)

    async def _receive(self, updates: Sequence[KvUpdate]) -> None:
        self._hydrated += len(updates)
        for portion in self._buffer.in_portions(updates):
            self._buffer.receive(portion, asyncio.get_running_loop().time())
            if self._buffer.is_full and not (self._committer and self._committer.failures):
                await self._flush()

    async def _caught_up(self) -> None:
        self._is_listed = True
        await self._flush()
        if self._committer is None or not self._committer.failures:
            await self._go_live()

    async def _go_live(self) -> None:
        """Report the catch-up, once, when the store has everything the watch listed."""
        if not self._is_listed or self._buffer.is_caught_up:
            return
        if self._committer is not None and self._hydrated >= BULK_LOAD_UPDATES_MIN:
            await self._committer.finish_load()
        if self._committer is not None and self._anchor is not None:
            await self._committer.listed(self._anchor.losses)
        self._buffer.is_caught_up = True
        self._around.listener.caught_up()

    # -- applying and committing

    async def _flush(self) -> None:
        buffer = self._buffer
        if buffer.is_empty and not (self._committer and self._committer.has_news):
            buffer.batch_ended()
            return
        await self._apply()
        if buffer.high is not None and buffer.high > self._applied.rank:
            self._applied = WatchCursor.of(buffer.high)
        updates = buffer.raw
        has_it = self._committer is None or await self._committer.try_commit(updates, self._applied)
        buffer.batch_ended()
        if not has_it:
            self._refused()
            return
        buffer.raw_is_stored()
        self._around.listener.committed(updates, self._applied, is_live=buffer.is_caught_up)
        if self._applied != self._reported:
            self._reported = self._applied
            if self._application.on_applied is not None:
                self._application.on_applied(self._applied)
        await self._go_live()

    def _refused(self) -> None:
        """Schedule a retry of a batch that the store rejected."""
        committer = self._committer
        assert committer is not None
        assert committer.error is not None
        self._buffer.deadline = asyncio.get_running_loop().time() + self._retry_seconds()
        self._around.listener.refused(committer.error)

    async def _apply(self) -> None:
        """Pass the batch to the application's `apply`, and clear it when `apply` returns."""
        apply, batch = self._application.apply, self._buffer.batch
        if apply is None or not batch:
            return
        pause = RETRY_SECONDS_FIRST
        while True:
            try:
                result = apply(batch)
                if inspect.isawaitable(result):
                    await result
                break
            except Exception as error:
                if self._application.on_error == "stop" or self._around.stop.is_set():
                    raise ApplyError(f"apply: {error}", cursor=self._reported) from error
                log.exception("apply raised; it is tried again")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._around.stop.wait(), pause)
            pause = min(2 * pause, RETRY_SECONDS_MAX)
        self._buffer.batch = []

    def _retry_seconds(self) -> float:
        assert self._committer is not None
        return float(min(RETRY_SECONDS_FIRST * 2**self._committer.failures, RETRY_SECONDS_MAX))

    async def _export(self, dest: Path, form: str | None) -> Manifest:
        await self._flush()
        assert self._committer is not None
        return await self._committer.export_to(dest, form)
