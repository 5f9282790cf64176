"""The SQLite store: one transaction per batch; needs no package beyond Python.

The file uses write-ahead logging: a killed process loses nothing, and a power cut may lose the
latest batches as a whole; with `sync=True` it loses none. Readers use their own connections, so
they see only complete batches. Other processes may read with `SqliteReader.open` or any SQL tool.

    data(k, rev, v, t, ver)   key, revision, value, server time; `ver` only for other versions
    meta(k, v)                cursor, origin
    side(k, v)                rows of extensions; created when the first one is attached
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec

from penstock.fold.derive.sql_tables import OWN_TABLES, has_tables
from penstock.fold.errors import (
    FoldCorruptedError,
    FoldFormatError,
    FoldStoreError,
    StoreIOError,
)
from penstock.fold.store.contract import (
    PAGE_BYTES_MAX,
    PAGE_ENTRIES,
    ServedByReader,
    SnapshotReader,
)
from penstock.fold.store.fold_meta import (
    SnapshotMeta,
    check_stored,
    encode_cursor,
    encode_meta,
    read_cursor,
    read_meta,
)
from penstock.fold.store.sqlite_rows import rows_of
from penstock.fold.store.value_record import decode_key, prefix_end
from penstock.kv.kv_types import TOKEN_BYTES_MAX, KvEntry, KvUpdate, VersionToken, WatchCursor
from penstock.kv.resume_check import is_same_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from penstock.fold.derive.sql_tables import Tables
    from penstock.fold.store.extensions import SideRows

APPLICATION_ID = 0x50475351
FORMAT = 1
PAGE_SIZE = 8192
CACHE_BYTES = 64 * 1024 * 1024
WAL_PAGES = 8192
"""Size of the write-ahead log, in pages, at which SQLite checkpoints it."""
BUSY_SECONDS = 10.0
PARAMETERS_MAX = 500
TABLES = """
CREATE TABLE data (k BLOB PRIMARY KEY, rev INTEGER, v BLOB NOT NULL, t REAL, ver BLOB)
    WITHOUT ROWID;
CREATE TABLE meta (k TEXT PRIMARY KEY, v BLOB NOT NULL);
"""
SIDE_TABLE = "CREATE TABLE IF NOT EXISTS side (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID"
_Row = tuple[bytes, int | None, bytes, bytes | None]
_COLUMNS = "k, rev, v, ver"


class SqliteReader(SnapshotReader):
    """A read-only connection; any thread may use it, one statement at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        with sqlite_errors(path):
            self._db: sqlite3.Connection | None = connect(path)
            self._db.execute("PRAGMA query_only=1")

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open a reader of a fold that another process may be writing."""
        path = Path(path)
        if not path.exists():
            raise StoreIOError("there is no such fold", path=path)
        reader = cls(path)
        try:
            check_format(reader._connection(), path)
        except BaseException:
            reader.close()
            raise
        return reader

    @property
    def cursor(self) -> WatchCursor:
        return read_cursor(self._meta("cursor"), self._path)

    @property
    def meta(self) -> SnapshotMeta:
        return read_meta(self._meta("origin"), self._path)

    def get(self, key: str) -> KvEntry | None:
        rows = self._rows(f"SELECT {_COLUMNS} FROM data WHERE k = ?", (key.encode(),))
        return self._entry(rows[0]) if rows else None

    def get_many(self, keys: Sequence[str]) -> list[KvEntry | None]:
        found: dict[str, KvEntry] = {}
        raw = [key.encode() for key in set(keys)]
        for start in range(0, len(raw), PARAMETERS_MAX):
            part = raw[start : start + PARAMETERS_MAX]
            marks = ",".join("?" * len(part))
            for row in self._rows(f"SELECT {_COLUMNS} FROM data WHERE k IN ({marks})", part):
                entry = self._entry(row)
                found[entry.key] = entry
        return [found.get(key) for key in keys]

    def page(
        self, prefix: str = "", *, after: str | None = None, limit: int = PAGE_ENTRIES
    ) -> list[KvEntry]:
        where, bounds = _bounds(prefix.encode(), None if after is None else after.encode())
        found: list[KvEntry] = []
        size = 0
        with self._lock, sqlite_errors(self._path):
            rows = self._connection().execute(
                f"SELECT {_COLUMNS} FROM data {where} ORDER BY k LIMIT ?", (*bounds, limit)
            )
            for row in rows:
                found.append(self._entry(row))
                size += len(row[2])
                if size >= PAGE_BYTES_MAX:
                    break
            rows.close()
        return found

    def count(self, prefix: str = "") -> int:
        where, bounds = _bounds(prefix.encode(), None)
        with self._lock, sqlite_errors(self._path):
            (count,) = self._connection().execute(f"SELECT count(*) FROM data {where}", bounds)
        return cast("int", count[0])

    def side(self, prefix: bytes, *, after: bytes = b"") -> list[tuple[bytes, bytes]]:
        if not self._rows("SELECT 1 FROM sqlite_master WHERE name = 'side'", ()):
            return []
        where = "SELECT k, v FROM side WHERE k > ? AND k >= ? AND k < ? ORDER BY k LIMIT ?"
        bounds = (after, prefix, prefix_end(prefix), PAGE_ENTRIES)
        return cast("list[tuple[bytes, bytes]]", self._rows(where, bounds))

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise FoldStoreError("the store is closed", path=self._path)
        return self._db

    def _meta(self, name: str) -> bytes:
        with self._lock, sqlite_errors(self._path):
            db = self._connection()
            row = db.execute("SELECT v FROM meta WHERE k = ?", (name,)).fetchone()
        return cast("bytes", row[0]) if row else b""

    def _rows(self, statement: str, values: Sequence[object]) -> list[Any]:
        with self._lock, sqlite_errors(self._path):
            return self._connection().execute(statement, values).fetchall()

    def _entry(self, row: _Row) -> KvEntry:
        key, revision, value, version = row
        if not isinstance(key, bytes) or not isinstance(value, bytes):
            raise FoldCorruptedError("a row that no fold has written", path=self._path)
        if version is None:
            token = VersionToken.UNKNOWN if revision is None else VersionToken.of(revision)
        elif len(version) <= TOKEN_BYTES_MAX:
            token = VersionToken(version)
        else:
            raise FoldFormatError(f"a version of {len(version)} bytes", path=self._path)
        return KvEntry(decode_key(key), value, token)


class SqliteSnapshot(ServedByReader):
    """A fold in one SQLite file."""

    backend: ClassVar[str] = "sqlite"
    backend_version: ClassVar[str] = str(FORMAT)
    payload: ClassVar[str] = "fold.db"
    hydrate_batch: ClassVar[int] = 250_000
    """Page visits are half of the cost of a batch in random order; a large batch shares pages."""

    def __init__(self, path: Path, db: sqlite3.Connection, *, tables: Tables | None = None) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = db
        self._tables = tables
        self._has_others = tables is None and has_tables(db)
        """The file has application tables but was opened without them, so they would miss a
        change."""
        self._read = SqliteReader(path)

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        sync: bool = False,
        cache_bytes: int = CACHE_BYTES,
        tables: Tables | None = None,
    ) -> Self:
        """Open or create a fold. `sync` syncs every batch, so that it survives a power cut.
        `tables` are application tables that change in the transaction of each batch; a file that
        has such tables rejects batches if it is opened without them."""
        path = Path(path)
        with sqlite_errors(path):
            db = connect(path)
            try:
                _prepare(db, path, sync=sync, cache_bytes=cache_bytes)
                if tables is not None:
                    tables.prepare(db)
                return cls(path, db, tables=tables)
            except BaseException:
                db.close()
                raise

    def apply(
        self, batch: Sequence[KvUpdate], cursor: WatchCursor, *, meta: SnapshotMeta | None = None
    ) -> None:
        if batch:
            self._check_tables()
        rows = rows_of(batch)
        with self._extended(batch, cursor, meta) as side, self._transaction() as db:
            db.executemany("INSERT OR REPLACE INTO data VALUES (?,?,?,?,NULL)", rows.puts)
            db.executemany("UPDATE data SET ver = ?2 WHERE k = ?1", rows.tokens)
            db.executemany("DELETE FROM data WHERE k = ?", rows.deletes)
            if self._tables is not None:
                other_log = self._other_log(db, meta)
                self._tables.change(db, batch, cursor.rank, other_log=other_log)
            _write_side(db, side)
            if meta is not None:
                _set(db, "origin", encode_meta(meta))
            has_origin = meta is not None or _has_origin(db)
            _set(db, "cursor", encode_cursor(cursor, has_origin=has_origin))

    def write_side(self, rows: SideRows, *, cleared: bytes = b"") -> None:
        with self._transaction() as db:
            db.execute(SIDE_TABLE)
            if cleared:
                db.execute(
                    "DELETE FROM side WHERE k >= ? AND k < ?", (cleared, prefix_end(cleared))
                )
            _write_side(db, rows)

    def clear(self) -> None:
        self._check_tables()
        with self._transaction() as db:
            if self._tables is not None:
                self._tables.reset(db)
            db.execute(SIDE_TABLE)
            for table in ("data", "meta", "side"):
                db.execute(f"DELETE FROM {table}")
        self._emptied()

    def _check_tables(self) -> None:
        if self._has_others:
            raise FoldStoreError(
                "it has tables that would miss this: open it with them", path=self._path
            )

    def finish_load(self) -> None:
        super().finish_load()
        with sqlite_errors(self._path):
            db = self._connection()
            db.execute("PRAGMA optimize")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def compact(self) -> None:
        with sqlite_errors(self._path):
            self._connection().execute("VACUUM")
        self.finish_load()

    def reader(self) -> SqliteReader:
        self._connection()
        return SqliteReader(self._path)

    def copy_to(self, target: Path) -> None:
        with sqlite_errors(target):
            self._connection().execute("VACUUM INTO ?", (os.fspath(target),))

    @classmethod
    def check_payload(cls, path: Path) -> None:
        with sqlite_errors(path), closing(connect(path)) as db:
            check_format(db, path)
            owned = has_tables(db)
            for kind, name, table in db.execute("SELECT type, name, tbl_name FROM sqlite_master"):
                is_plain = kind in ("table", "index")
                if not is_plain or not (owned or table in OWN_TABLES):
                    raise FoldFormatError(f"{kind} {name} is not of a fold", path=path)

    def close(self) -> None:
        self._read.close()
        db, self._db = self._db, None
        if db is not None:
            with sqlite_errors(self._path):
                db.close()

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise FoldStoreError("the store is closed", path=self._path)
        return self._db

    def _other_log(self, db: sqlite3.Connection, meta: SnapshotMeta | None) -> bool:
        """Return whether the batch is of another log than the stored entries."""
        if meta is None or not meta.identity:
            return False
        row = db.execute("SELECT v FROM meta WHERE k = 'origin'").fetchone()
        known = msgspec.json.decode(row[0], type=SnapshotMeta).identity if row else ""
        return bool(known) and not is_same_log(known, meta.identity)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        db = self._connection()
        with sqlite_errors(self._path):
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise


def connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA trusted_schema=OFF")  # a file may come from an artifact
    return db


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Convert SQLite errors to fold errors."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_NOTADB:
            raise FoldFormatError("not an SQLite file", path=path) from error
        if code == sqlite3.SQLITE_CORRUPT:
            raise FoldCorruptedError(str(error), path=path) from error
        raise StoreIOError(str(error), path=path) from error


def check_format(db: sqlite3.Connection, path: Path) -> None:
    with sqlite_errors(path):
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise FoldFormatError("an SQLite file, but not a fold", path=path)
    if version != FORMAT:
        raise FoldFormatError(f"format {version} of the fold, not {FORMAT}", path=path)
    with sqlite_errors(path):
        rows = dict(db.execute("SELECT k, v FROM meta WHERE k IN ('cursor', 'origin')"))
        has_data = bool(db.execute("SELECT 1 FROM data LIMIT 1").fetchone())
    check_stored(rows.get("cursor"), rows.get("origin"), path, has_data=has_data)


def _prepare(db: sqlite3.Connection, path: Path, *, sync: bool, cache_bytes: int) -> None:
    """Configure the connection, and create the tables of a new file."""
    db.execute(f"PRAGMA page_size={PAGE_SIZE}")
    if db.execute("PRAGMA schema_version").fetchone() == (0,):
        db.execute("PRAGMA journal_mode=WAL")
        db.executescript(
            f"BEGIN IMMEDIATE; PRAGMA application_id={APPLICATION_ID};"
            f"PRAGMA user_version={FORMAT}; {TABLES} COMMIT;"
        )
    check_format(db, path)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute(f"PRAGMA synchronous={'FULL' if sync else 'NORMAL'}")
    db.execute(f"PRAGMA cache_size=-{cache_bytes // 1024}")
    db.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}")


def _has_origin(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM meta WHERE k = 'origin'").fetchone() is not None


def _set(db: sqlite3.Connection, name: str, value: bytes) -> None:
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))


def _write_side(db: sqlite3.Connection, rows: SideRows) -> None:
    if rows:
        deletes = [(key,) for key, value in rows.items() if value is None]
        db.executemany("DELETE FROM side WHERE k = ?", deletes)
        kept = sorted(row for row in rows.items() if row[1] is not None)
        db.executemany("INSERT OR REPLACE INTO side VALUES (?,?)", kept)


def _bounds(prefix: bytes, after: bytes | None) -> tuple[str, tuple[bytes, ...]]:
    """Return the SQL condition and values for keys with a prefix and above `after`."""
    conditions: list[str] = []
    values: list[bytes] = []
    if prefix:
        conditions += ["k >= ?", "k < ?"]
        values += [prefix, prefix_end(prefix)]
    if after is not None:
        conditions.append("k > ?")
        values.append(after)
    return ("WHERE " + " AND ".join(conditions) if conditions else ""), tuple(values)
