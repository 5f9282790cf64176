"""Application tables in the file of an SQLite fold, updated exactly once per change of the bucket.

`apply(tx, updates)` runs in the transaction that commits a batch and its cursor, after the entries
are written. Both become durable together or not at all; a batch that failed or was interrupted by a
crash comes again. An update is never passed to the tables twice, even if a repair reads the bucket
again. Deletes that a repair generates have no revision; each is passed once, with the removal.

    meta['tables']   everything up to this revision was passed to the tables, 8 bytes

A recreated bucket starts its revisions again, so `reset(tx)` has to empty the tables; without a
`reset` the commit fails, so that the changes of two buckets are not mixed. If the fold already has
entries when tables are added, the tables first receive these as puts. A file with tables rejects
batches if it is opened without them.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.fold.errors import FoldStoreError
from penstock.fold.store.contract import PAGE_ENTRIES
from penstock.fold.store.fold_meta import read_cursor
from penstock.fold.store.value_record import decode_key
from penstock.kv.kv_types import (
    REVISION_BYTES,
    REVISION_UNKNOWN,
    KvUpdate,
    Op,
    VersionToken,
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
"""Actions that change a table, and the authorizer argument (1 or 2) that names the table."""


class Transaction:
    """The transaction of a batch, for the application.

    The application must not end it or change the fold's own tables. It is valid only until the
    function that received it returns.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db: sqlite3.Connection | None = db

    def execute(self, statement: str, values: Sequence[Any] | dict[str, Any] = ()) -> Any:
        """Run one statement and return the sqlite3 cursor."""
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
    """The application's functions that create, change and empty its tables."""

    def __init__(
        self,
        apply: Callable[[Transaction, Sequence[KvUpdate]], None],
        *,
        create: Callable[[Transaction], None] | None = None,
        reset: Callable[[Transaction], None] | None = None,
    ) -> None:
        """`create` runs at every open of the store, so it has to use CREATE TABLE IF NOT EXISTS."""
        self._apply = apply
        self._create = create
        self._reset = reset

    def prepare(self, db: sqlite3.Connection) -> None:
        """Create the tables and pass the existing entries to them, in one transaction."""
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
        """Pass a batch to `apply`, in the transaction that commits it and sets the cursor `rank`.

        A repair applies its updates in any order, with the cursor from before the repair. So the
        cursor, not the updates, determines which revisions were passed to the tables.
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
        """Empty the tables, because the store is cleared or the log was replaced."""
        if self._reset is None:
            raise FoldStoreError("the log is another one, and there is no reset for the tables")
        with _guarded(db) as tx:
            self._reset(tx)
        db.execute("DELETE FROM meta WHERE k = ?", (_SEEN,))

    def _hand_over_entries(self, db: sqlite3.Connection) -> None:
        """Pass the entries of an existing fold to new tables as puts, ordered by revision."""
        rows = db.execute("SELECT k, rev, v, t, ver FROM data ORDER BY rev, k")
        while page := rows.fetchmany(PAGE_ENTRIES):
            with _guarded(db) as tx:
                self._apply(tx, [_update(*row) for row in page])
        row = db.execute("SELECT v FROM meta WHERE k = 'cursor'").fetchone()
        _set_seen(db, read_cursor(row[0], Path()).rank if row else 0)


def has_tables(db: sqlite3.Connection) -> bool:
    """Return whether this file has application tables."""
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
    """Yield the transaction with an authorizer that rejects forbidden statements."""
    tx = Transaction(db)
    db.set_authorizer(_authorize)
    try:
        yield tx
    finally:
        tx._end()
        db.set_authorizer(None)
    if not db.in_transaction:
        raise FoldStoreError("the transaction was ended from within")


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    named = (first, second)[_CHANGES.get(action, 1) - 1]
    if action in _REFUSED or (action in _CHANGES and named in OWN_TABLES):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK
