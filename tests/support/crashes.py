"""A fold that dies at chosen moments and comes back, beside a trivially right one.

`lives` runs the shipped loop over a bucket in memory and a real store. At each step that a crash
could separate from the next (`Steps`) it may die; then the store is closed and opened again, and
the fold goes on behind the cursor it finds. What must hold after every death is checked there.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from penstock.fold.follow.batch_commit import BatchCommitter
from penstock.fold.follow.repair import Repair
from penstock.fold.follow.store_worker import Worker
from penstock.fold.follow.watch_loop import Application, FoldLoop, LoopContext
from penstock.kv.kv_types import CaughtUp, KvUpdate, LogInfo, Scope, WatchCursor
from support.folds import contents, model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from penstock.fold import BatchConfig, SnapshotMeta
    from penstock.kv.kv_types import WatchEvent
    from support.folds import Kind

LIVES_MAX = 40


class Died(BaseException):
    """No handler catches it, as none catches a kill."""


class Steps:
    """Counts moments, and dies at some: after so many of them since it was born again."""

    def __init__(self, deaths: Sequence[int]) -> None:
        self._deaths = list(deaths)
        self._left = self._deaths.pop(0) if self._deaths else -1

    def here(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._left = self._deaths.pop(0) if self._deaths else -1
            raise Died


class LogBucket:
    """A `KvWatcher` over a list of updates; update n has revision n."""

    def __init__(self, log: Sequence[KvUpdate]) -> None:
        self.log = log

    @asynccontextmanager
    async def watch(
        self,
        scope: Scope,
        *,
        after: WatchCursor = WatchCursor.NONE,
        identity: str | None = None,
        heartbeat: float = 5.0,
        **_: object,
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        yield self._events(after.rank)

    async def _events(self, after: int) -> AsyncIterator[WatchEvent]:
        newest = {update.key: update for update in self.log}
        for update in self.log[after:]:
            if after or newest[update.key] is update:
                yield update
        yield CaughtUp()

    async def log_info(self) -> LogInfo:
        return LogInfo(identity="KV_b@1", first_seq=1, last_seq=len(self.log), evicts_current=False)

    async def keys(self, prefix: str = "") -> AsyncIterator[str]:
        for key in model(self.log):
            yield key


class DyingCommitter(BatchCommitter):
    """Dies before a commit, or after it."""

    steps: Steps

    def _commit(
        self, updates: Sequence[KvUpdate], cursor: WatchCursor, meta: SnapshotMeta | None
    ) -> None:
        self.steps.here()
        super()._commit(updates, cursor, meta)
        self.steps.here()


class CursorFirst(DyingCommitter):
    """A mutant: the cursor is stored before the data."""

    def _commit(
        self, updates: Sequence[KvUpdate], cursor: WatchCursor, meta: SnapshotMeta | None
    ) -> None:
        self.store.apply([], cursor, meta=meta)
        self.steps.here()
        self.store.apply(updates, cursor)


class AdvanceFirst(FoldLoop[KvUpdate]):
    """A mutant: the store moves on before the application has applied the batch."""

    async def _apply(self) -> None:
        committer, buffer = self._committer, self._buffer
        if committer is not None and buffer.high is not None:
            await committer.commit(buffer.raw, WatchCursor.of(buffer.high))
        await super()._apply()


def lives(
    kind: Kind,
    path: Path,
    log: Sequence[KvUpdate],
    deaths: Sequence[int],
    batch: BatchConfig,
    *,
    loop: type[FoldLoop[KvUpdate]] = FoldLoop,
    committer: type[DyingCommitter] = DyingCommitter,
) -> str:
    """What is wrong with a fold that died so often and came back; nothing may be."""
    steps = Steps(deaths)
    applied: set[int] = set()

    def apply(updates: list[KvUpdate]) -> None:
        steps.here()
        applied.update(update.revision for update in updates)
        steps.here()

    for _ in range(LIVES_MAX):
        with kind.open(path) as store:
            committing = committer(store, Worker())
            committing.steps = steps
            try:
                asyncio.run(_one_life(loop, committing, log, apply, batch))
            except Died:
                pass
            else:
                return _wrong_at_last(contents(store), store.cursor.rank, log, applied)
        with kind.open(path) as store:
            wrong = _wrong_in_between(store.cursor.rank, log, applied)
        if wrong:
            return wrong
    raise AssertionError("it died more often than it was told to")


async def _one_life(
    loop: type[FoldLoop[KvUpdate]],
    committer: DyingCommitter,
    log: Sequence[KvUpdate],
    apply: Callable[[list[KvUpdate]], None],
    batch: BatchConfig,
) -> None:
    bucket = LogBucket(log)
    try:
        await loop(
            bucket,
            Scope.all(),
            committer=committer,
            repair=Repair.relist(bucket),
            application=Application(apply=apply),
            around=LoopContext(),
            batch=batch,
        ).run()
    finally:
        committer.worker.close()


def _wrong_in_between(cursor: int, log: Sequence[KvUpdate], applied: set[int]) -> str:
    newest = {update.key: update.revision for update in log}
    for update in log[:cursor]:
        # A listing only has the newest of each key; what it left out never was to be applied.
        if newest[update.key] == update.revision and update.revision not in applied:
            return f"the cursor is {cursor}, but {update.revision} was not applied"
    return ""


def _wrong_at_last(found: object, cursor: int, log: Sequence[KvUpdate], applied: set[int]) -> str:
    if found != model(log):
        return "the fold is not what the bucket is"
    if log and cursor != len(log):
        return f"the cursor is {cursor}, the end {len(log)}"
    return _wrong_in_between(cursor, log, applied)
