"""Group commit: everything that waits for a store's disk waits for one sync.

Where syncs are quick, they run in place: waking a thread and being woken by it costs more than the
wait, and what comes meanwhile waits in the kernel. Where they are slow, they run on a thread, and
what comes meanwhile makes up the next one. Which it is, is measured all the time. Nothing is
released before its sync has returned without an error.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from penstock.store.contract import Work

SYNC_THREADS_MAX: Final = 4
QUICK_NS: Final = 1_000_000
"""A sync that takes longer, on average, is not waited for in place."""
SMOOTHING: Final = 8
"""How many syncs the average follows; one that is far too slow counts for all of them."""


class Committer:
    """Runs blocking file work for the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads: ThreadPoolExecutor | None = None
        self._finished: deque[tuple[Callable[[Exception | None], None], Exception | None]] = deque()
        self.running = 0
        """Pieces of work that are out."""
        self._usual_ns = 0

    def run(self, work: Work, done: Callable[[Exception | None], None]) -> None:
        """Runs the work on a thread, then `done` on the loop."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(SYNC_THREADS_MAX, thread_name_prefix="disk")
        self.running += 1
        self._threads.submit(self._run, work, done)

    @property
    def is_quick(self) -> bool:
        """Whether a sync may be waited for in place."""
        return self._usual_ns <= QUICK_NS and not self.running

    def run_in_place(self, work: Work) -> Exception | None:
        """Runs the work here; answers what went wrong."""
        began_ns = time.monotonic_ns()
        failure = run_here(work)
        self.took(time.monotonic_ns() - began_ns)
        return failure

    def took(self, span_ns: int) -> None:
        """So long a sync has taken."""
        if span_ns > SMOOTHING * QUICK_NS:
            self._usual_ns = span_ns // SMOOTHING
        else:
            self._usual_ns += (span_ns - self._usual_ns) // SMOOTHING

    def _run(self, work: Work, done: Callable[[Exception | None], None]) -> None:
        self._finished.append((done, run_here(work)))
        try:
            self._loop.call_soon_threadsafe(self._tell)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    def _tell(self) -> None:
        while self._finished:
            done, failure = self._finished.popleft()
            self.running -= 1
            done(failure)

    def close(self) -> None:
        """Waits for what is running, and tells whose it was."""
        if self._threads is not None:
            self._threads.shutdown(wait=True)
            self._threads = None
        self._tell()


def run_here(work: Work) -> Exception | None:
    """Runs the work on this thread; answers what went wrong."""
    try:
        work.run()
    except Exception as error:
        return error
    return None
