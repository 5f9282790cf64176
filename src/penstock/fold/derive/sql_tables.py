"""Tables of yours in the file of an SQLite fold: changed once for every change of the bucket.

`apply(tx, updates)` runs in the transaction that folds a batch and moves the cursor, after the
entries were written: all of it becomes durable together, or nothing does, and a batch that failed
or was cut off by a crash comes again. An update the tables have had is not handed over a second
time, also where a repair reads the bucket anew. Removals that a repair found out about have no
revision; each comes once, when its entry goes.

    meta['tables']   everything up to this revision was handed over, 8 bytes

A bucket that was made anew counts from the start: `reset(tx)` empties the tables then. Without one
the fold stops rather than mix the changes of two buckets. Tables that come to a fold which has
entries already are given those first, as puts. A file that has tables takes no batch without them.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.fold.errors import FoldStoreError
from penstock.fold.store.contract import PAGE_ENTRIES
from penstock.fold.store.value_record import decode_key
from penstock.kv.kv_types import (
    REVISION_BYTES,
    REVISION_UNKNOWN,
    KvUpdate,
    Op,
    VersionToken,
    WatchCursor,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

OWN_TABLES = frozenset({"data", "meta", "side"})
_SEEN = "tables"
_REFUSED = frozenset(
    {
        sqlite3.SQLITE_TRANSACTION,
        sqlite3.SQLITE_SAVEPOINT,
        sqlite3.SQLITE_ATTACH,
        sqlite3.SQLITE_DETACH,
        sqlite3.SQLITE_PRAGMA,
    }
)
_CHANGES = {
    sqlite3.SQLITE_INSERT: 1,
    sqlite3.SQLITE_UPDATE: 1,
    sqlite3.SQLITE_DELETE: 1,
    sqlite3.SQLITE_DROP_TABLE: 1,
    sqlite3.SQLITE_ALTER_TABLE: 2,
}
"""What changes a table, and which argument of the authorizer names it."""


class Transaction:
    """The transaction of a batch. It is not yours to end; the fold's own tables are not to change.

    Good as long as the function it was given to runs.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db: sqlite3.Connection | None = db

    def execute(self, statement: str, values: Sequence[Any] | dict[str, Any] = ()) -> Any:
        """Run one statement; what comes back is a cursor of sqlite3."""
        return self._open().execute(statement, values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any] | dict[str, Any]]) -> Any:
        return self._open().executemany(statement, rows)

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            raise FoldStoreError("the transaction is over")
        return self._db

    def _end(self) -> None:
        self._db = None


class Tables:
    """Your tables: how they are made, changed and emptied."""

    def __init__(
        self,
        apply: Callable[[Transaction, Sequence[KvUpdate]], None],
        *,
        create: Callable[[Transaction], None] | None = None,
        reset: Callable[[Transaction], None] | None = None,
    ) -> None:
        """`create` runs whenever the store is opened: write CREATE TABLE IF NOT EXISTS in it."""
        self._apply = apply
        self._create = create
        self._reset = reset

    def prepare(self, db: sqlite3.Connection) -> None:
        """Make the tables, and give them the entries that are here, in a transaction of its own."""
        db.execute("BEGIN IMMEDIATE")
        try:
            if self._create is not None:
                with _guarded(db) as tx:
                    self._create(tx)
            if _seen(db) is None:
                self._hand_over_entries(db)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def change(
        self, db: sqlite3.Connection, batch: Sequence[KvUpdate], rank: int, *, other_log: bool
    ) -> None:
        """Hand a batch over, within the transaction that folds it and moves the cursor to `rank`.

        A repair applies what it found in no order, under the cursor from before it: so what was
        handed over is told by the cursor, not by the updates.
        """
        if other_log:
            self.reset(db)
        seen = _seen(db) or 0
        fresh = [update for update in batch if update.revision < 0 or update.revision > seen]
        if fresh:
            with _guarded(db) as tx:
                self._apply(tx, fresh)
        if rank > seen:
            _set_seen(db, rank)

    def reset(self, db: sqlite3.Connection) -> None:
        """The entries go, or are of another log from here on: so are the tables."""
        if self._reset is None:
            raise FoldStoreError("the log is another one, and there is no reset for the tables")
        with _guarded(db) as tx:
            self._reset(tx)
        db.execute("DELETE FROM meta WHERE k = ?", (_SEEN,))

    def _hand_over_entries(self, db: sqlite3.Connection) -> None:
        """A fold that was there before its tables is to them as if it was read just now."""
        rows = db.execute("SELECT k, rev, v, t, ver FROM data ORDER BY rev, k")
        while page := rows.fetchmany(PAGE_ENTRIES):
            with _guarded(db) as tx:
                self._apply(tx, [_update(*row) for row in page])
        row = db.execute("SELECT v FROM meta WHERE k = 'cursor'").fetchone()
        _set_seen(db, WatchCursor(row[0]).rank if row else 0)


def has_tables(db: sqlite3.Connection) -> bool:
    """Whether tables were handed anything in this file."""
    return _seen(db) is not None


def _update(
    key: bytes, revision: int | None, value: bytes, created: float | None, version: bytes | None
) -> KvUpdate:
    revision = VersionToken(version or b"").revision if revision is None else revision
    token = b"" if revision is not None else version or b""
    known = REVISION_UNKNOWN if revision is None else revision
    return KvUpdate(Op.PUT, decode_key(key), value, known, created, token=token)


def _seen(db: sqlite3.Connection) -> int | None:
    row = db.execute("SELECT v FROM meta WHERE k = ?", (_SEEN,)).fetchone()
    return int.from_bytes(row[0], "big") if row else None


def _set_seen(db: sqlite3.Connection, revision: int) -> None:
    value = revision.to_bytes(REVISION_BYTES, "big")
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_SEEN, value))


@contextmanager
def _guarded(db: sqlite3.Connection) -> Iterator[Transaction]:
    """The transaction as the application may use it."""
    tx = Transaction(db)
    db.set_authorizer(_judge)
    try:
        yield tx
    finally:
        tx._end()
        db.set_authorizer(None)
    if not db.in_transaction:
        raise FoldStoreError("the transaction was ended from within")


def _judge(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    named = (first, second)[_CHANGES.get(action, 1) - 1]
    if action in _REFUSED or (action in _CHANGES and named in OWN_TABLES):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK
