"""A bucket that does what a script says: a watcher, a lister and a log, without a server or time.

A script is a list of watches; each is a list of events, errors and `Pause`s in the order they come.
When the script of a watch is through it waits for ever, or ends if it says `END`.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.fold import BatchConfig, MemorySnapshot, watch_applied
from penstock.fold.errors import StoreIOError
from penstock.kv.kv_types import KvUpdate, LogInfo, Scope, WatchCursor, WatchEvent
from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from penstock.fold import SnapshotMeta

#: Nothing is applied because of time.
PATIENT: Final = BatchConfig(window=1000.0, max=3, hydrate_window=1000.0, hydrate_max=5)
IDENTITY: Final = "KV_b@1"


class Gate:
    """The script stands still here until it is opened."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self.reached = asyncio.Event()

    def open(self) -> None:
        self._open.set()

    async def passed(self) -> None:
        self.reached.set()
        await self._open.wait()


END: Final = object()
Step = WatchEvent | Exception | Gate | object


@dataclass
class Script:
    """A `KvWatcher` and `KvKeys`; `asked` is what it was asked for, in order."""

    watches: list[list[Step]] = field(default_factory=list)
    log: LogInfo = field(
        default_factory=lambda: LogInfo(
            identity=IDENTITY, first_seq=1, last_seq=1_000, evicts_current=False
        )
    )
    listed: list[str] = field(default_factory=list)
    list_error: Exception | None = None
    asked: list[str] = field(default_factory=list)
    through: asyncio.Event = field(default_factory=asyncio.Event)

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
        self.asked.append(f"watch {after.rank}")
        script = self.watches.pop(0) if self.watches else []
        yield self._events(script)
        self.asked.append("unwatch")

    async def _events(self, script: list[Step]) -> AsyncIterator[WatchEvent]:
        for step in script:
            if step is END:
                return
            if isinstance(step, Exception):
                raise step
            if isinstance(step, Gate):
                await step.passed()
            else:
                yield step  # type: ignore[misc]
        self.through.set()
        await asyncio.Event().wait()

    async def log_info(self) -> LogInfo:
        return self.log

    async def keys(self, prefix: str = "") -> AsyncIterator[str]:
        self.asked.append(f"list {prefix}")
        if self.list_error is not None:
            raise self.list_error
        for key in self.listed:
            if key.startswith(prefix):
                yield key


class ScriptedBucket:
    """A `KvStore` that can be watched and listed."""

    name = "b"

    def __init__(self, script: Script) -> None:
        self._script = script

    def watcher(self) -> Any:
        return self._script

    def reader(self) -> Any:
        return self._script


class WatchedStore(MemorySnapshot):
    """A store that records its commits, and refuses as often as configured."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[tuple[list[str], int]] = []
        self.refusals = 0
        self.error: Callable[[], Exception] = lambda: StoreIOError("no space")
        self.metas: list[SnapshotMeta | None] = []

    def apply(
        self,
        batch: Sequence[KvUpdate],
        cursor: WatchCursor,
        *,
        meta: SnapshotMeta | None = None,
        **more: Any,
    ) -> None:
        if self.refusals:
            self.refusals -= 1
            raise self.error()
        super().apply(batch, cursor, meta=meta, **more)
        self.commits.append(([update.key for update in batch], cursor.rank))
        self.metas.append(meta)


async def run(script: Script, **settings: Any) -> WatchCursor:
    """`watch_applied` over a script, for a while."""
    settings.setdefault("batch", PATIENT)
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await watch_applied(script, Scope.all(), **settings)
