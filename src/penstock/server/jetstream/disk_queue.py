"""Queues the file work of API requests and maintenance, so that it does not delay message syncs.

The disk threads run work in arrival order. A client that creates thousands of consumers at once
must not put their files before the messages of others. Invariant: the threads have at most
`WORKS_AT_ONCE` pieces of such work at a time. The rest waits here, and accounts take turns.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.server.jetstream.group_commit import GroupCommitter
    from penstock.store.contract import Work

    Done: TypeAlias = Callable[[Exception | None], None]

WORKS_AT_ONCE: Final = 2
"""Pieces of work of requests and maintenance at a time; the other threads are for commits."""


class DiskQueue:
    """The waiting work, by account."""

    def __init__(self, committer: GroupCommitter) -> None:
        self._committer = committer
        self._waiting: dict[str, deque[tuple[Work, Done]]] = {}
        self._running = 0

    def run(self, account: str, work: Work, done: Done) -> None:
        """Run the work on a disk thread when its turn comes, then `done` on the event loop."""
        self._waiting.setdefault(account, deque()).append((work, done))
        self._begin()

    def _begin(self) -> None:
        while self._waiting and self._running < WORKS_AT_ONCE:
            account = next(iter(self._waiting))
            line = self._waiting.pop(account)
            work, done = line.popleft()
            if line:
                self._waiting[account] = line  # after the other accounts
            self._running += 1
            self._committer.run(work, partial(self._ended, done))

    def _ended(self, done: Done, failure: Exception | None) -> None:
        self._running -= 1
        self._begin()
        done(failure)
