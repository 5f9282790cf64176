"""The one thread in which a fold's store is changed.

`apply`, `clear`, `settle` and `export_to` of a store belong to one thread at a time; running all of
them here, one behind the other, keeps that without a lock. Whoever is cancelled while something
runs waits until it has ended, for a while: nobody goes on beside a half-done commit.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

LEAVE_SECONDS = 10.0
"""How long one who was cancelled waits for what the thread is doing."""
P = ParamSpec("P")
T = TypeVar("T")


class Worker:
    """A thread that does one thing after the other."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="penstock fold")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        future = asyncio.wrap_future(self._pool.submit(work, *args, **kwargs))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait({future}, timeout=LEAVE_SECONDS)
            if future.done() and not future.cancelled():
                future.exception()  # told to nobody: who asked has left
            raise

    def close(self) -> None:
        """Let the thread end when it has done what it was given."""
        self._pool.shutdown(wait=False)
