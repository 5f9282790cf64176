"""An event loop in a thread of its own, for code that has none: calls go in and block until done.

States: made -> running -> closed. A call before or after `running` is refused at once, and one that
is under way when the thread is closed ends with `Closed`: nobody waits for an answer of a loop that
has gone. Closing twice is allowed, also from several threads.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.bulk.errors import Closed

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads. A daemon: a program that forgets it can still end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        """There while calls are taken; it changes under the lock alone."""
        self._lock = threading.Lock()
        self._is_up = threading.Event()

    def start(self) -> None:
        self._thread.start()
        self._is_up.wait()

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    def call(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """What a coroutine returns or raises; `TimeoutError` after so many seconds."""
        with self._lock:
            if self._loop is None:
                coroutine.close()
                raise Closed(f"{self._name} is not open")
            # Under the lock: behind a stop nothing would carry it out.
            future = asyncio.run_coroutine_threadsafe(_within(coroutine, timeout), self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            coroutine.close()  # it may never have begun
            raise Closed(f"{self._name} was closed") from None

    def close(self) -> None:
        """End what is under way, and the thread with it."""
        with self._lock:
            loop, self._loop = self._loop, None
            if loop is not None:
                loop.call_soon_threadsafe(loop.stop)
        if self._thread.is_alive():
            self._thread.join()

    def _live(self) -> None:
        # Leaving the runner cancels what still waits and ends generators left in the middle.
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            self._loop = loop
            self._is_up.set()
            loop.run_forever()


async def _within(coroutine: Coroutine[Any, Any, T], seconds: float | None) -> T:
    async with asyncio.timeout(seconds):
        return await coroutine
