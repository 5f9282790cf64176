"""File work of API requests and of upkeep, which waits so that syncs of messages need not.

The disk threads serve whatever comes first. A client that creates thousands of consumers at once
must not put their files before the messages of others, so at most `WORKS_AT_ONCE` such works are
with the threads at a time. The rest waits here, and accounts take turns.
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
"""Works of requests and of upkeep that disk threads have at a time; commits have the others."""


class DiskQueue:
    """The works that wait, by account."""

    def __init__(self, committer: GroupCommitter) -> None:
        self._committer = committer
        self._waiting: dict[str, deque[tuple[Work, Done]]] = {}
        self._running = 0

    def run(self, account: str, work: Work, done: Done) -> None:
        """Run the work on a disk thread when it is its turn, then `done` on the event loop."""
        self._waiting.setdefault(account, deque()).append((work, done))
        self._begin()

    def _begin(self) -> None:
        while self._waiting and self._running < WORKS_AT_ONCE:
            account = next(iter(self._waiting))
            line = self._waiting.pop(account)
            work, done = line.popleft()
            if line:
                self._waiting[account] = line  # behind the other accounts
            self._running += 1
            self._committer.run(work, partial(self._ended, done))

    def _ended(self, done: Done, failure: Exception | None) -> None:
        self._running -= 1
        self._begin()
        done(failure)
