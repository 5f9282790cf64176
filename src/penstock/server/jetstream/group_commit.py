"""Group commit: one sync makes all waiting changes of a store durable.

Fast syncs run on the event loop: handing them to a thread costs more than the wait, and input that
arrives meanwhile waits in the kernel. Slow syncs run on a thread, and changes that arrive meanwhile
form the next commit. `CommitPace` measures sync times continuously to choose between the two.
Invariant: the callers release effects only after their sync has returned without an error.
"""

from __future__ import annotations

from collections import deque
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Final

from penstock.server.net.turn_listener import CommitPace

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from penstock.store.contract import Work

SYNC_THREADS_MAX: Final = 4


class GroupCommitter:
    """Runs blocking file work for the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads: list[Thread] = []
        self._waiting: SimpleQueue[tuple[Work, Callable[[Exception | None], None]] | None]
        self._waiting = SimpleQueue()  # None ends a thread
        self._finished: deque[tuple[Callable[[Exception | None], None], Exception | None]] = deque()
        self.pace = CommitPace()
        """Whether the event loop may wait for a sync itself."""
        self.write_pace = CommitPace()
        """The same for commits that only write, of stores that sync later."""

    def run(self, work: Work, done: Callable[[Exception | None], None]) -> None:
        """Run the work on a thread, then `done` on the loop."""
        self.pace.running += 1
        self._waiting.put((work, done))
        if len(self._threads) < min(self.pace.running, SYNC_THREADS_MAX):
            thread = Thread(target=self._serve, name="disk", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self) -> None:
        while (task := self._waiting.get()) is not None:
            work, done = task
            self._finished.append((done, run_here(work)))
            try:
                self._loop.call_soon_threadsafe(self._report_finished)
            except RuntimeError:
                continue  # the loop is closed, so there is no caller to notify

    def _report_finished(self) -> None:
        while self._finished:
            done, failure = self._finished.popleft()
            self.pace.running -= 1
            done(failure)

    def close(self) -> None:
        """Wait for all work, also for work that starts because other work has ended."""
        while self._threads:
            threads, self._threads = self._threads, []
            for _ in threads:
                self._waiting.put(None)
            for thread in threads:
                thread.join()
            self._report_finished()


def run_here(work: Work) -> Exception | None:
    """Run the work on this thread; return its failure."""
    try:
        work.run()
    except Exception as error:
        return error
    return None
