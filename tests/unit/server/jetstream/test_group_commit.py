"""Work that runs on threads: when the committer is closed, all of it has run and was reported."""

from __future__ import annotations

import asyncio

from penstock.server.jetstream.group_commit import GroupCommitter


class Step:
    """A piece of work that is followed by another one when it has ended."""

    def __init__(self, committer: GroupCommitter, left: int, ended: list[int]) -> None:
        self._committer = committer
        self._left = left
        self._ended = ended

    def run(self) -> None:
        pass

    def start(self) -> None:
        self._committer.run(self, self._done)

    def _done(self, failure: Exception | None) -> None:
        self._ended.append(self._left)
        if self._left:
            Step(self._committer, self._left - 1, self._ended).start()


async def test_closing_waits_for_work_that_other_work_starts() -> None:
    ended: list[int] = []
    committer = GroupCommitter(asyncio.get_running_loop())
    Step(committer, 3, ended).start()
    committer.close()
    assert ended == [3, 2, 1, 0]
    assert committer.pace.running == 0
