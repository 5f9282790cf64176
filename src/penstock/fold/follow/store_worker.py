"""Runs the changes to a fold's store one at a time, in threads shared by all folds.

Only one thread at a time may call `apply`, `clear`, `finish_load` and `export_to` of a store. A
`Worker` runs the calls of one fold in order and never two at once, so the store needs no lock; the
thread may differ from call to call. All workers of a process share at most `THREADS_MAX` threads,
so a process may have thousands of folds. The threads end when the last worker is closed.

If a caller is cancelled while its call runs, `run` waits up to `LEAVE_SECONDS` for the call to end,
so that the next step does not overlap an unfinished commit.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

LEAVE_SECONDS = 10.0
"""How long a cancelled caller waits for its running call."""
THREADS_MAX = 16
"""Maximum number of threads that change stores in a process, for any number of folds."""
P = ParamSpec("P")
T = TypeVar("T")


class _SharedThreads:
    """The thread pool of a process; it exists while at least one worker uses it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._pool: ThreadPoolExecutor | None = None

    def join(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="penstock fold")
            self._users += 1
            return self._pool

    def leave(self) -> None:
        """Release the pool; the last user shuts it down, and its threads finish submitted calls."""
        with self._lock:
            self._users -= 1
            if not self._users and self._pool is not None:
                self._pool.shutdown(wait=False)
                self._pool = None


_threads = _SharedThreads()


def _forget_threads() -> None:
    """Reset the pool in a forked child, which does not inherit the parent's threads."""
    global _threads
    _threads = _SharedThreads()


os.register_at_fork(after_in_child=_forget_threads)


class Worker:
    """Runs calls one after the other."""

    def __init__(self) -> None:
        self._threads = _threads
        self._pool: ThreadPoolExecutor | None = None
        """Set by the first call, so that an unused worker holds no threads."""
        self._lock = Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_busy = False
        self._is_closed = False

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        future = asyncio.wrap_future(self._submit(work, *args, **kwargs))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait({future}, timeout=LEAVE_SECONDS)
            if future.done() and not future.cancelled():
                future.exception()  # marks it as retrieved; the caller was cancelled
            raise

    def close(self) -> None:
        """Reject new calls; calls already submitted still run. Closing twice is allowed."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            is_idle = self._pool is not None and not self._is_busy
        if is_idle:
            self._threads.leave()

    def _submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the worker is closed")
            self._waiting.append(lambda: _carry_out(future, work, *args, **kwargs))
            if self._is_busy:
                return future
            self._is_busy = True
            if self._pool is None:
                self._pool = self._threads.join()
        self._pool.submit(self._do_next)
        return future

    def _do_next(self) -> None:
        """Run one call, then requeue after all other workers, so that none occupies a thread."""
        self._waiting.popleft()()
        with self._lock:
            has_more = self._is_busy = bool(self._waiting)
            is_over = self._is_closed and not has_more
        if has_more:
            assert self._pool is not None
            self._pool.submit(self._do_next)
        elif is_over:
            self._threads.leave()


def _carry_out(future: Future[Any], work: Callable[..., object], *args: Any, **kwargs: Any) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work(*args, **kwargs)
    except BaseException as error:
        future.set_exception(error)
        del future  # breaks the reference cycle between the error and the future
    else:
        future.set_result(result)
