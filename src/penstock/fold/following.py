"""Those who wait for a fold: for a revision to be in it, or for what changes in it.

All of it lives on the fold's event loop. A reader of changes that does not keep up is told so and
ended, since a fold waits for nobody; what waits for it is bounded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self
from weakref import WeakSet

from penstock.kv.errors import FoldError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.kv.types import KvUpdate

CHANGES_WAITING_MAX = 100_000
"""Updates a reader of changes may be behind."""


class ChangesLost(FoldError):
    """A reader of changes fell too far behind."""

    hint = "read the fold itself, then ask for changes again"


class Changes:
    """One reader's view: batches that are in the store, from the moment it asked."""

    def __init__(self) -> None:
        self._waiting: deque[Sequence[KvUpdate]] = deque()
        self._count = 0
        self._bell = asyncio.Event()
        self._end: FoldError | None = None
        self._is_closed = False

    def put(self, updates: Sequence[KvUpdate]) -> None:
        if self._end is not None or self._is_closed:
            return
        # One batch is always taken, however long: the fold itself was hydrated by it.
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


class Followers:
    """Everybody who waits for one fold."""

    def __init__(self) -> None:
        self._revisions: dict[asyncio.Future[None], int] = {}
        #: A reader that nobody holds any more reads nothing.
        self._changes: WeakSet[Changes] = WeakSet()
        self._closed: FoldError | None = None

    async def wait_for(self, revision: int) -> None:
        if self._closed is not None:
            raise self._closed
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._revisions[waiter] = revision
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

    def committed(self, updates: Sequence[KvUpdate], revision: int) -> None:
        for waiter, wanted in tuple(self._revisions.items()):
            if wanted <= revision and not waiter.done():
                waiter.set_result(None)
        if updates:
            for reader in tuple(self._changes):
                reader.put(updates)

    def close(self, reason: FoldError) -> None:
        """Nothing more will come: who waits for a revision is told why."""
        self._closed = reason
        for waiter in tuple(self._revisions):
            if not waiter.done():
                waiter.set_exception(reason)
        for reader in tuple(self._changes):
            reader.close()
