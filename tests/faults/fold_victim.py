"""A process that folds updates into a store until it is killed: run as a program, it makes such
processes.

Every line on standard input (a `Task` in JSON) makes one victim, a fork of this process, so that a
life costs no start of an interpreter. A victim goes on from the cursor it finds; what update has
which revision is decided by the revision alone, so the killer knows what must be there.
Standard output says `pid N`, then `CURSOR` after each batch, and `gone` when the victim is dead.

`MUTANTS` are stores that break the law on purpose: the cursor becomes durable before its data.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from random import Random
from typing import TYPE_CHECKING

from penstock.fold import AppendLogSnapshot, SqliteSnapshot
from penstock.kv.kv_types import KvUpdate, Op, WatchCursor
from support.folds import DURABLE, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.fold import SnapshotMeta, SnapshotStore

KEYS = 97
BATCH_MAX = 60
DELETED_EVERY = 7


class _CursorFirst:
    """Two steps in place of one, in the wrong order; the gap is wide enough to die in."""

    def apply(
        self, batch: Sequence[KvUpdate], cursor: WatchCursor, *, meta: SnapshotMeta | None = None
    ) -> None:
        fold = super().apply  # type: ignore[misc]
        fold([], cursor, meta=meta)
        os.write(1, b"%d\n" % cursor.rank)
        fold(batch, cursor)


class CursorFirstLog(_CursorFirst, AppendLogSnapshot):
    pass


class CursorFirstSqlite(_CursorFirst, SqliteSnapshot):
    pass


MUTANTS = {
    "append-log": Kind(CursorFirstLog, {}),
    "sqlite": Kind(CursorFirstSqlite, {}),
}


@dataclass(frozen=True)
class Task:
    """One life: where, in which store, and whether that one is a mutant."""

    path: str
    kind: str
    life: int
    mutant: bool = False

    def line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    def open(self) -> SnapshotStore:
        return (MUTANTS if self.mutant else DURABLE)[self.kind].open(self.path)


def update_of(revision: int) -> KvUpdate:
    """What the bucket says at a revision: some key is put, or now and then deleted."""
    chance = Random(revision)
    key = f"k.{chance.randrange(KEYS)}"
    if revision % DELETED_EVERY == 0:
        return KvUpdate(Op.DELETE, key, revision=revision)
    return KvUpdate(Op.PUT, key, b"%d " % revision * chance.choice((0, 1, 20, 200)), revision)


def fold_until_killed(task: Task) -> None:
    chance = Random(task.life)
    store = task.open()
    at = store.cursor.rank
    while True:
        size = chance.randrange(1, BATCH_MAX)
        batch = [update_of(revision) for revision in range(at + 1, at + 1 + size)]
        at += size
        store.apply(batch, WatchCursor.of(at))
        os.write(1, b"%d\n" % at)


def main(kind_of_task: type[Task] = Task) -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.write(1, f"pid {os.getpid()}\n".encode())
            fold_until_killed(kind_of_task(**json.loads(line)))
            os._exit(1)
        os.waitpid(pid, 0)
        os.write(1, b"gone\n")


if __name__ == "__main__":
    main()
