"""The file of an outbox: queued writes, and the outcomes of those that were sent.

An SQLite file that is synced with every change: a write that `add` has returned survives a kill and
a power cut. A write either waits or has an outcome, and its outcome is written once. Only one
process may have the file open.

    box(k, v)     the bucket name, and an id that makes message ids unique
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
"""Maximum number of waiting writes; further ones are rejected."""
OUTCOMES_MAX = 10_000
"""Number of stored outcomes; the oldest are dropped."""
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
    """The maximum number of writes is waiting."""

    hint = "wait until the server is reached, or until some are done"


class WriteResult(enum.Enum):
    """The result of a queued write."""

    APPLIED = "applied"
    """The write is in the bucket, exactly once."""
    SUPERSEDED = "superseded"
    """The key did not have the expected version: another write came first. Nothing was written."""
    REJECTED = "rejected"
    """The server rejected the write: too large, not permitted. Nothing was written."""


class Outcome(Struct, frozen=True):
    """The outcome of a write. `version` is the version written; `reason` states why there is
    none."""

    result: WriteResult
    version: VersionToken = VersionToken.UNKNOWN
    reason: str = ""


class QueuedWrite(Struct, frozen=True):
    """A waiting write. `expected` is the version the key must have; 0 means no value.

    With `after`, the expected version is that of the earlier write with this id.
    """

    id: int
    key: str
    op: Op
    value: bytes
    expected: int
    after: int | None


class OutboxFile:
    """The queue on disk. Calls block and are serialized; any thread may call."""

    def __init__(self, path: Path, bucket: str) -> None:
        self._path = path
        self._lock = Lock()
        with self._sqlite_errors():
            self._db: sqlite3.Connection | None = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=0
            )
        try:
            with self._sqlite_errors():
                self._prepare(bucket)
        except BaseException:
            self.close()
            raise

    def add(self, key: str, op: Op, value: bytes, expected: int | None, held: int) -> int:
        """Queue a write and return its id. Without `expected`, it expects the result of the key's
        last write in the outbox, or the version `held` by the fold."""
        with self._transaction() as db:
            if db.execute(_COUNT_WAITING).fetchone()[0] >= WAITING_MAX:
                raise OutboxFull(f"{WAITING_MAX} writes wait already", path=self._path)
            after = None
            if expected is None:
                after, applied = _last_of(db, key)
                # The fold may not have received the outbox's latest write yet.
                expected = max(held, applied)
            row = (key, int(op), value, expected, after)
            sql = "INSERT INTO writes (key, op, value, expected, after) VALUES (?,?,?,?,?)"
            number = db.execute(sql, row).lastrowid
        assert number is not None
        return number

    def waiting(self, limit: int = WAITING_MAX) -> list[QueuedWrite]:
        """Return the writes without an outcome, in the order they were queued."""
        sql = f"SELECT {_COLUMNS} FROM writes WHERE outcome IS NULL ORDER BY id LIMIT ?"
        with self._transaction() as db:
            rows = db.execute(sql, (limit,)).fetchall()
        return [QueuedWrite(row[0], row[1], Op(row[2]), *row[3:]) for row in rows]

    def outcome(self, number: int) -> Outcome | None:
        """Return the outcome of a write; None while it waits, KeyError if unknown or dropped."""
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
        """Store the outcome of a write and drop its value, which is no longer needed."""
        values = (outcome.result.value, outcome.version.revision, outcome.reason, number)
        with self._transaction() as db:
            db.execute(
                "UPDATE writes SET outcome = ?, revision = ?, reason = ?, value = x'' "
                "WHERE id = ? AND outcome IS NULL",
                values,
            )
            db.execute(_DROP_OLDEST, (OUTCOMES_MAX,))

    def message_id(self, number: int) -> str:
        """Return the message id by which the server recognises a repeated write."""
        return f"{self._id}-{number}"

    def close(self) -> None:
        with self._lock:
            db, self._db = self._db, None
            if db is not None:
                with self._sqlite_errors():
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
        box = dict(db.execute("SELECT k, v FROM box").fetchall())
        db.execute("COMMIT")
        if box.get("bucket") != bucket:
            raise FoldMismatch(f"the outbox is of bucket {box.get('bucket')}", path=self._path)
        self._id = box["id"]

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise FoldStoreError("the outbox is closed", path=self._path)
        return self._db

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._sqlite_errors():
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
    def _sqlite_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreIOError(f"outbox: {error}", path=self._path) from error


def _last_of(db: sqlite3.Connection, key: str) -> tuple[int | None, int]:
    """Return the id of a key's last write if it waits, and its revision if applied, else 0."""
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
