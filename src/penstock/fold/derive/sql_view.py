"""SQL queries on an SQLite fold: a read-only connection with a view of the entries.

    entries(key, value, text, json, revision, created)

`text` is the value as UTF-8. `json` is the decoded value as JSON, null if the codec cannot decode
it; without a codec it is the text. Application tables and the fold's own tables (`data`, `meta`)
are available by name. Every statement sees only complete batches. Use from one thread at a time.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from penstock.fold.errors import FoldStoreError, StoreIOError
from penstock.fold.store.sqlite_store import check_format, connect, sqlite_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from penstock.fold.derive.value_codecs import Codec

ROWS_AT_ONCE = 1_000
VIEW = """
CREATE TEMP VIEW entries AS SELECT cast(k AS TEXT) AS key, v AS value, cast(v AS TEXT) AS text,
    {json} AS json, rev AS revision, t AS created FROM data
"""
_READING = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
    }
)
"""The only actions that a statement may perform."""
_OF_THE_QUESTION = frozenset(
    {0, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_INTERRUPT}
)


class FoldSql:
    """A read-only SQL connection to one fold."""

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = db

    @classmethod
    def open(cls, path: Path | str, *, codec: Codec[Any] | None = None) -> Self:
        """Open the fold at `path`, which this or another process may be writing."""
        path = Path(path)
        if not path.exists():
            raise StoreIOError("there is no such fold", path=path)
        with sqlite_errors(path):
            db = connect(path)
            try:
                check_format(db, path)
                if codec is not None:
                    db.create_function("penstock_json", 1, _as_json(codec), deterministic=True)
                shown = "cast(v AS TEXT)" if codec is None else "penstock_json(v)"
                db.execute(VIEW.format(json=shown))
                db.set_authorizer(_authorize)
                # The view casts values to text, but a value need not be valid UTF-8.
                db.text_factory = _as_text
            except BaseException:
                db.close()
                raise
        return cls(path, db)

    def query(
        self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()
    ) -> list[tuple[Any, ...]]:
        """Run a query and return all rows."""
        with _asking(self._path):
            return self._connection().execute(statement, values).fetchall()

    def rows(
        self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Run a query and yield its rows; the writer's WAL grows until the last row is read."""
        with _asking(self._path):
            cursor = self._connection().execute(statement, values)
        try:
            while page := self._next(cursor):
                yield from page
        finally:
            cursor.close()

    def columns(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[str]:
        """Return the column names of a query."""
        with _asking(self._path):
            cursor = self._connection().execute(statement, values)
            names = [str(one[0]) for one in cursor.description or ()]
            cursor.close()
        return names

    def interrupt(self) -> None:
        """Interrupt the running query; may be called from any thread."""
        self._connection().interrupt()

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def _next(self, cursor: sqlite3.Cursor) -> list[tuple[Any, ...]]:
        with _asking(self._path):
            return cursor.fetchmany(ROWS_AT_ONCE)

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise FoldStoreError("the reader is closed", path=self._path)
        return self._db


@contextmanager
def _asking(path: Path) -> Iterator[None]:
    """Convert errors of the query itself to FoldStoreError, not StoreIOError."""
    with sqlite_errors(path):
        try:
            yield
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_THE_QUESTION:
                raise FoldStoreError(str(error), path=path) from error
            raise


def _as_text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _authorize(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def _as_json(codec: Codec[Any]) -> Any:
    def as_json(value: bytes) -> str | None:
        try:
            return msgspec.json.encode(codec.decode(value)).decode()
        except Exception:  # an application codec may raise anything
            return None

    return as_json
