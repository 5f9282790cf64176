"""As `fold_victim`, with things derived from the fold: a table of changes, a digest, an index.

The mutant counts in a file of its own, before the store has the batch: what a table would be that
is not in the fold's transaction.
"""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from faults.fold_victim import Task, main
from penstock.fold import SqliteSnapshot
from penstock.fold.artifact.digest import FoldDigest
from penstock.fold.derive.indexes import Index
from penstock.fold.derive.sql_tables import Tables, Transaction
from support.folds import DURABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.fold import SnapshotStore
    from penstock.kv.kv_types import KvEntry, KvUpdate


def create(tx: Transaction | sqlite3.Connection) -> None:
    tx.execute("CREATE TABLE IF NOT EXISTS changes (key TEXT PRIMARY KEY, n INTEGER NOT NULL)")


def count(tx: Transaction | sqlite3.Connection, updates: Sequence[KvUpdate]) -> None:
    tx.executemany(
        "INSERT INTO changes VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET n = n + 1",
        [(update.key,) for update in updates],
    )


def size_of(entry: KvEntry) -> str:
    return str(len(entry.value) % 5)


class CountsElsewhere(SqliteSnapshot):
    """The mutant."""

    def apply(self, batch: Sequence[KvUpdate], *args: Any, **options: Any) -> None:
        with sqlite3.connect(f"{self._path}.changes") as db:
            create(db)
            count(db, batch)
        os.write(1, b"0\n")
        super().apply(batch, *args, **options)


@dataclass(frozen=True)
class DerivedTask(Task):
    """A life of a store with extensions; of SQLite, with a table as well."""

    def open(self) -> SnapshotStore:
        if self.mutant:
            return CountsElsewhere.open(self.path)
        kind = DURABLE[self.kind]
        options = dict(kind.options)
        if kind.store is SqliteSnapshot:
            options["tables"] = Tables(count, create=create)
        store = kind.store.open(self.path, **options)
        store.attach(FoldDigest())
        store.attach(Index("size", size_of))
        return store


if __name__ == "__main__":
    main(DerivedTask)
