"""Where a fold's store is changed: one call after the other, in threads that all folds share.

`apply`, `clear`, `settle` and `export_to` of a store belong to one thread at a time. A `Worker`
runs the calls of one fold in the order they were made and never two at once, which keeps that
without a lock in the store; which thread runs them may differ from call to call. All workers of a
process share at most `THREADS_MAX` threads, so a process may have thousands of folds. The threads
end when the last worker is closed.

A caller that is cancelled while its call runs waits until it has ended, for `LEAVE_SECONDS`: the
next step never overlaps a half-done commit.
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
"""How long a cancelled caller waits for what the thread is doing."""
THREADS_MAX = 16
"""Threads of a process that change stores, however many folds it has."""
P = ParamSpec("P")
T = TypeVar("T")


class _SharedThreads:
    """The threads of a process, there while a worker is."""

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
        """The last one to leave lets the threads end when they have done what they were given."""
        with self._lock:
            self._users -= 1
            if not self._users and self._pool is not None:
                self._pool.shutdown(wait=False)
                self._pool = None


_threads = _SharedThreads()


def _forget_threads() -> None:
    """A forked child has none of its parent's threads."""
    global _threads
    _threads = _SharedThreads()


os.register_at_fork(after_in_child=_forget_threads)


class Worker:
    """Does one thing after the other."""

    def __init__(self) -> None:
        self._threads = _threads
        self._pool: ThreadPoolExecutor | None = None
        """There from the first call on: a worker that is never used holds no threads."""
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
                future.exception()  # retrieved, since the caller has left
            raise

    def close(self) -> None:
        """Take no more calls; those that were made are done. Closing twice is allowed."""
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
        """One call, and then to the end of the queue of all workers: none keeps a thread."""
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
        del future  # else the error keeps the future that keeps the error
    else:
        future.set_result(result)
