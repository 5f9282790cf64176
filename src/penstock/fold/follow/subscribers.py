"""Tasks that wait for a fold: for a revision to be committed, or for its changes.

Everything runs on the fold's event loop. The fold never waits for a reader of changes: its queue is
bounded, and a reader that exceeds the bound gets `ChangesLost`. The supervisor calls `committed`
after each commit and `close` at the end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

from penstock.fold.errors import FoldError, VersionReset
from penstock.kv.kv_types import WriteVersion
from penstock.kv.resume_check import is_same_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.kv.errors import KvError
    from penstock.kv.kv_types import KvUpdate

CHANGES_WAITING_MAX = 100_000
"""Maximum number of queued updates per reader of changes."""


class ChangesLost(FoldError):
    """A reader of changes fell too far behind."""

    hint = "read the fold itself, then ask for changes again"


class Changes:
    """The committed batches for one reader, from the time of its subscription."""

    def __init__(self) -> None:
        self._waiting: deque[Sequence[KvUpdate]] = deque()
        self._count = 0
        self._bell = asyncio.Event()
        self._end: KvError | None = None
        self._is_closed = False

    def put(self, updates: Sequence[KvUpdate]) -> None:
        if self._end is not None or self._is_closed:
            return
        # An empty queue accepts a batch of any size: the fold has applied a batch of that size too.
        if self._waiting and self._count + len(updates) > CHANGES_WAITING_MAX:
            self._end = ChangesLost(f"{self._count} changes waited to be read")
            self._waiting.clear()
        else:
            self._waiting.append(updates)
            self._count += len(updates)
        self._bell.set()

    def close(self) -> None:
        self._is_closed = True
        self._bell.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[KvUpdate]:
        while not self._waiting:
            if self._end is not None:
                raise self._end
            if self._is_closed:
                raise StopAsyncIteration
            self._bell.clear()
            await self._bell.wait()
        updates = self._waiting.popleft()
        self._count -= len(updates)
        return updates


@dataclass(slots=True)
class _Wanted:
    """An awaited revision and its log; an empty `log` means any log."""

    revision: int
    log: str
    was_followed: bool = False
    """Whether the fold has followed that log since the wait began."""

    def is_followed(self, identity: str) -> bool:
        """Return whether a fold of `identity` follows the log; raise `VersionReset` if it did
        before and no longer does."""
        if not self.log or is_same_log(identity, self.log):
            self.was_followed = True
            return True
        if self.was_followed and identity:
            reason = f"revision {self.revision} is of {self.log}, the fold follows {identity} now"
            raise VersionReset(reason, version=WriteVersion.in_log(self.revision, self.log))
        return False


class Subscribers:
    """All waiting tasks and readers of one fold."""

    def __init__(self) -> None:
        self._revisions: dict[asyncio.Future[None], _Wanted] = {}
        #: Weak references, so that a dropped reader is no longer served.
        self._changes: WeakSet[Changes] = WeakSet()
        self._closed: KvError | None = None

    async def wait_for(self, revision: int, log: str = "") -> None:
        """Wait until a revision is committed; if `log` is given, a revision of that log."""
        if self._closed is not None:
            raise self._closed
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._revisions[waiter] = _Wanted(revision, log)
        try:
            await waiter
        finally:
            self._revisions.pop(waiter, None)

    def changes(self) -> Changes:
        mine = Changes()
        self._changes.add(mine)
        if self._closed is not None:
            mine.close()
        return mine

    def committed(self, updates: Sequence[KvUpdate], revision: int, identity: str = "") -> None:
        """Wake the waiting tasks and readers after a commit at `revision` of log `identity`."""
        for waiter, wanted in tuple(self._revisions.items()):
            if waiter.done():
                continue
            try:
                if wanted.is_followed(identity) and wanted.revision <= revision:
                    waiter.set_result(None)
            except VersionReset as error:
                waiter.set_exception(error)
        if updates:
            for reader in tuple(self._changes):
                reader.put(updates)

    def close(self, reason: KvError) -> None:
        """End all readers, and fail all waits for a revision with `reason`."""
        self._closed = reason
        for waiter in tuple(self._revisions):
            if not waiter.done():
                waiter.set_exception(reason)
        for reader in tuple(self._changes):
            reader.close()
