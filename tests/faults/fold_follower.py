"""A process that follows a bucket until it is killed: run as a program, it makes such processes.

Every line on standard input (a `Follow` in JSON) makes one victim, a fork of this process. It opens
the fold it finds and says `commit CURSOR` after each commit, `repaired` after each repair, and
`ready` or `stale` when it comes to rest; the reader kills it at any of these. `gone` says that the
victim is dead.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from penstock.fold import BatchConfig, Fold, FoldState, Observer, Repair
from support.folds import DURABLE
from support.followed_folds import until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.fold import SnapshotStore
    from penstock.kv.kv_types import KvUpdate, WatchCursor

#: Small steps: many moments to die in.
STEPS = BatchConfig(window=0.001, max=7, hydrate_window=0.005, hydrate_max=11)
#: A fold that refuses its bucket, which may have dropped values, is never ready.
AT_REST = (FoldState.LIVE, FoldState.STALE, FoldState.FAILED)


@dataclass(frozen=True)
class Follow:
    """One life: of which bucket, where, in which store; a mutant repairs nothing."""

    url: str
    path: str
    kind: str
    mutant: bool = False
    scope: str = ""

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    def fold(self) -> Fold:
        kind = DURABLE[self.kind]
        return Fold.open(
            self.url,
            self.path,
            scope=self.scope,
            backend=kind.store,
            options=kind.options,
            batch=STEPS,
            repair=Repair.none() if self.mutant else None,
            observers=[Teller()],
        )


class Teller(Observer):
    """Says what happened, in one write each."""

    def applied(
        self, store: SnapshotStore, updates: Sequence[KvUpdate], cursor: WatchCursor
    ) -> None:
        os.write(1, b"commit %d\n" % cursor.rank)

    def repaired(self, store: SnapshotStore, kind: str) -> None:
        os.write(1, b"repaired\n")


async def follow_until_killed(task: Follow) -> None:
    async with task.fold() as fold:
        await until(lambda: fold.state in AT_REST)
        os.write(1, b"ready\n" if fold.state is FoldState.LIVE else b"stale\n")
        await asyncio.Event().wait()


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.write(1, f"pid {os.getpid()}\n".encode())
            asyncio.run(follow_until_killed(Follow(**json.loads(line))))
            os._exit(1)
        os.waitpid(pid, 0)
        os.write(1, b"gone\n")


if __name__ == "__main__":
    main()
