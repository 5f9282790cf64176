"""The file of an outbox: writes that wait for the server, and what became of those that were sent.

SQLite, synced with every change: what `add` returned survives a kill and a power cut. A write has
an outcome or waits; an outcome is written once. One process has the file open at a time.

    box(k, v)     the name of the bucket, and an id that makes message ids unique
    writes(id, key, op, value, expected, after, outcome, revision, reason)
"""

from __future__ import annotations

import enum
import sqlite3
import uuid
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from msgspec import Struct

from penstock.fold.errors import FoldFormatError, FoldMismatch, FoldStoreError, StoreIOError
from penstock.kv.kv_types import Op, VersionToken

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

APPLICATION_ID = 0x5047534F
WAITING_MAX = 10_000
"""Writes that may wait; more are refused."""
OUTCOMES_MAX = 10_000
"""Outcomes that are remembered; the oldest are dropped."""
TABLES = """
CREATE TABLE box (k TEXT PRIMARY KEY, v TEXT NOT NULL);
CREATE TABLE writes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, op INTEGER NOT NULL,
    value BLOB NOT NULL, expected INTEGER NOT NULL, after INTEGER,
    outcome TEXT, revision INTEGER, reason TEXT NOT NULL DEFAULT ''
);
CREATE INDEX waiting ON writes (id) WHERE outcome IS NULL;
CREATE INDEX keys ON writes (key);
"""
_COLUMNS = "id, key, op, value, expected, after"


class OutboxFull(FoldStoreError):
    """As many writes wait as may."""

    hint = "wait until the server is reached, or until some are done"


class WriteResult(enum.Enum):
    """What became of a queued write."""

    APPLIED = "applied"
    """It is in the bucket, once."""
    SUPERSEDED = "superseded"
    """The key had another version than expected: another write came before. Nothing was written."""
    REJECTED = "rejected"
    """The server refused it: too large, not allowed. Nothing was written."""


class Outcome(Struct, frozen=True):
    """`version` is that of the write; `reason` says why there is none."""

    result: WriteResult
    version: VersionToken = VersionToken.UNKNOWN
    reason: str = ""


class QueuedWrite(Struct, frozen=True):
    """A write that waits; `expected` 0 is a key without a value.

    With `after`, the version expected is that of an earlier write of the same outbox.
    """

    id: int
    key: str
    op: Op
    value: bytes
    expected: int
    after: int | None


class OutboxFile:
    """Calls block; from any thread, one at a time."""

    def __init__(self, path: Path, bucket: str) -> None:
        self._path = path
        self._lock = Lock()
        with self._told():
            self._db: sqlite3.Connection | None = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=0
            )
        try:
            with self._told():
                self._prepare(bucket)
        except BaseException:
            self.close()
            raise

    def add(self, key: str, op: Op, value: bytes, expected: int | None, held: int) -> int:
        """Queue a write; its id. Without `expected` it follows the last write of the key in the
        outbox, or the version the fold holds."""
        with self._transaction() as db:
            if db.execute(_COUNT_WAITING).fetchone()[0] >= WAITING_MAX:
                raise OutboxFull(f"{WAITING_MAX} writes wait already", path=self._path)
            after = None
            if expected is None:
                after, applied = _last_of(db, key)
                # The fold may not have what the outbox wrote a moment ago.
                expected = max(held, applied)
            row = (key, int(op), value, expected, after)
            sql = "INSERT INTO writes (key, op, value, expected, after) VALUES (?,?,?,?,?)"
            number = db.execute(sql, row).lastrowid
        assert number is not None
        return number

    def waiting(self, limit: int = WAITING_MAX) -> list[QueuedWrite]:
        """Writes without an outcome, in the order they were made."""
        sql = f"SELECT {_COLUMNS} FROM writes WHERE outcome IS NULL ORDER BY id LIMIT ?"
        with self._transaction() as db:
            rows = db.execute(sql, (limit,)).fetchall()
        return [QueuedWrite(row[0], row[1], Op(row[2]), *row[3:]) for row in rows]

    def outcome(self, number: int) -> Outcome | None:
        """None while it waits; KeyError for one that never was, or was dropped."""
        with self._transaction() as db:
            row = db.execute(
                "SELECT outcome, revision, reason FROM writes WHERE id = ?", (number,)
            ).fetchone()
        if row is None:
            raise KeyError(f"no write {number} in the outbox")
        if row[0] is None:
            return None
        version = VersionToken.UNKNOWN if row[1] is None else VersionToken.of(row[1])
        return Outcome(WriteResult(row[0]), version, row[2])

    def record(self, number: int, outcome: Outcome) -> None:
        """Write down what became of a write; the value is no longer needed."""
        values = (outcome.result.value, outcome.version.revision, outcome.reason, number)
        with self._transaction() as db:
            db.execute(
                "UPDATE writes SET outcome = ?, revision = ?, reason = ?, value = x'' "
                "WHERE id = ? AND outcome IS NULL",
                values,
            )
            db.execute(_DROP_OLDEST, (OUTCOMES_MAX,))

    def message_id(self, number: int) -> str:
        """What the server recognises the write by when it is sent again."""
        return f"{self._id}-{number}"

    def close(self) -> None:
        with self._lock:
            db, self._db = self._db, None
            if db is not None:
                with self._told():
                    db.close()

    def _prepare(self, bucket: str) -> None:
        db = self._connection()
        db.execute("PRAGMA locking_mode=EXCLUSIVE")
        db.execute("PRAGMA synchronous=FULL")
        if db.execute("PRAGMA schema_version").fetchone() == (0,):
            db.executescript(
                f"BEGIN EXCLUSIVE; PRAGMA application_id={APPLICATION_ID}; {TABLES} COMMIT;"
            )
            made = [("bucket", bucket), ("id", uuid.uuid4().hex)]
            db.executemany("INSERT INTO box VALUES (?, ?)", made)
        if db.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
            raise FoldFormatError("not an outbox", path=self._path)
        db.execute("BEGIN EXCLUSIVE")
        said = dict(db.execute("SELECT k, v FROM box").fetchall())
        db.execute("COMMIT")
        if said.get("bucket") != bucket:
            raise FoldMismatch(f"the outbox is of bucket {said.get('bucket')}", path=self._path)
        self._id = said["id"]

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise FoldStoreError("the outbox is closed", path=self._path)
        return self._db

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._told():
            db = self._connection()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreIOError(f"outbox: {error}", path=self._path) from error


def _last_of(db: sqlite3.Connection, key: str) -> tuple[int | None, int]:
    """The last write of a key if it waits, or the revision it was applied as; 0 for none."""
    sql = "SELECT id, outcome, revision FROM writes WHERE key = ? ORDER BY id DESC LIMIT 1"
    row = db.execute(sql, (key,)).fetchone()
    if row is None:
        return None, 0
    return (row[0], 0) if row[1] is None else (None, row[2] or 0)


_COUNT_WAITING = "SELECT count(*) FROM writes WHERE outcome IS NULL"
_DROP_OLDEST = """
DELETE FROM writes WHERE outcome IS NOT NULL AND id <= (
    SELECT id FROM writes WHERE outcome IS NOT NULL ORDER BY id DESC LIMIT 1 OFFSET ?
) AND id NOT IN (SELECT after FROM writes WHERE outcome IS NULL AND after IS NOT NULL)
"""
