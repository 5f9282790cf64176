"""What a watch brings, as the loop takes it: several events at a time, waited for by a task.

The task outlives the wait it was made in, so that a loop may serve something else meanwhile and no
event is lost. One is asked for ahead, no more: the watch is held back while nobody takes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from penstock.kv.kv_types import WatchEvent

    NextEvents = Callable[[], Coroutine[Any, Any, Sequence[WatchEvent]]]


class Arrivals:
    """The events of a watch: as many as it has at once, or one by one."""

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
        """What has come, nothing if the watch has ended; raises what it ended with."""
        assert self._task is not None
        task, self._task = self._task, None
        return task.result()

    def close(self) -> list[asyncio.Task[Any]]:
        """What still waits, to be cancelled."""
        if self._task is None:
            return []
        if self._task.done() and not self._task.cancelled():
            self._task.exception()  # told already, or of no interest after a stop
        return [self._task]


def _singly(watch: AsyncIterator[WatchEvent]) -> NextEvents:
    async def next_events() -> Sequence[WatchEvent]:
        try:
            return (await anext(watch),)
        except StopAsyncIteration:
            return ()

    return next_events
