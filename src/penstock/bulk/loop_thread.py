"""Event loop in its own thread, for code without one: calls block until done.

States: created -> running -> closed. A call outside `running` raises `Closed` at once; a call in
progress when the thread is closed ends with `Closed`. `close` may be called repeatedly and from
several threads.
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
    """Runs coroutines for other threads. A daemon thread, so it never keeps a program alive."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        """Set while calls are accepted; `call` and `close` access it under the lock."""
        self._lock = threading.Lock()
        self._is_up = threading.Event()

    def start(self) -> None:
        self._thread.start()
        self._is_up.wait()

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    def call(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine and return its result; raises `TimeoutError` after `timeout` seconds."""
        with self._lock:
            if self._loop is None:
                coroutine.close()
                raise Closed(f"{self._name} is not open")
            # Under the lock: the loop would never run a coroutine submitted after the stop.
            future = asyncio.run_coroutine_threadsafe(_within(coroutine, timeout), self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            coroutine.close()  # the loop may never have started it
            raise Closed(f"{self._name} was closed") from None

    def close(self) -> None:
        """Cancel the calls in progress and end the thread."""
        with self._lock:
            loop, self._loop = self._loop, None
            if loop is not None:
                loop.call_soon_threadsafe(loop.stop)
        if self._thread.is_alive():
            self._thread.join()

    def _live(self) -> None:
        # Leaving the runner cancels pending tasks and closes unfinished async generators.
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            self._loop = loop
            self._is_up.set()
            loop.run_forever()


async def _within(coroutine: Coroutine[Any, Any, T], seconds: float | None) -> T:
    async with asyncio.timeout(seconds):
        return await coroutine
