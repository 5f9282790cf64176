"""Reads the events of a watch for the watch loop, in batches, with a task.

The task outlives the wait that started it, so the loop can serve other requests meanwhile without
losing events. At most one batch is requested ahead: the watch is held back until the loop takes it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from penstock.kv.kv_types import WatchEvent

    NextEvents = Callable[[], Coroutine[Any, Any, Sequence[WatchEvent]]]


class EventStream:
    """The events of a watch: in batches if the watch supports them, else one by one."""

    def __init__(self, watch: AsyncIterator[WatchEvent]) -> None:
        self._next_events: NextEvents = getattr(watch, "next_events", None) or _singly(watch)
        self._task: asyncio.Task[Sequence[WatchEvent]] | None = None

    def next(self) -> asyncio.Task[Sequence[WatchEvent]]:
        if self._task is None:
            self._task = asyncio.create_task(self._next_events())
        return self._task

    @property
    def is_ready(self) -> bool:
        return self._task is not None and self._task.done()

    def take(self) -> Sequence[WatchEvent]:
        """Return the received events, empty if the watch has ended; raise the watch's error."""
        assert self._task is not None
        task, self._task = self._task, None
        return task.result()

    def close(self) -> list[asyncio.Task[Any]]:
        """Return the pending task, for the caller to cancel."""
        if self._task is None:
            return []
        if self._task.done() and not self._task.cancelled():
            self._task.exception()  # marks it as retrieved; after a stop it does not matter
        return [self._task]


def _singly(watch: AsyncIterator[WatchEvent]) -> NextEvents:
    async def next_events() -> Sequence[WatchEvent]:
        try:
            return (await anext(watch),)
        except StopAsyncIteration:
            return ()

    return next_events
