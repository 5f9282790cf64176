"""SQLite: what is particular to it, beyond the contract of all stores."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from penstock.fold import FoldFormatError, SqliteReader, SqliteSnapshot, StoreIOError
from penstock.kv.kv_types import KvUpdate, Op
from support.folds import at, contents, put

if TYPE_CHECKING:
    from pathlib import Path

READ_ELSEWHERE = """
import sys
from penstock.fold import SqliteReader
with SqliteReader.open(sys.argv[1]) as reader:
    print(reader.cursor.rank, *(entry.key for entry in reader.range()))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fold.db"


def test_fold_can_be_asked_in_sql(path: Path) -> None:
    with SqliteSnapshot.open(path) as store:
        store.apply([KvUpdate(Op.PUT, "a", b"1", 7, created=1.5), put("b", b"2", 2**63)], at(8))
        with sqlite3.connect(path) as db:
            rows = db.execute("SELECT cast(k AS TEXT), rev, v, t, ver FROM data ORDER BY k")
            assert rows.fetchall() == [
                ("a", 7, b"1", 1.5, None),
                ("b", None, b"2", None, (2**63).to_bytes(8, "big")),
            ]
            assert db.execute("PRAGMA application_id").fetchone() == (0x50475351,)
            assert db.execute("PRAGMA page_size").fetchone() == (8192,)
        db.close()


@pytest.mark.sockets
def test_another_process_reads_while_this_one_writes(path: Path) -> None:
    with SqliteSnapshot.open(path) as store:
        store.apply([put("a", b"1", 1)], at(1))
        store.apply([put("b", b"2", 2)], at(2))
        done = subprocess.run(
            [sys.executable, "-c", READ_ELSEWHERE, str(path)], capture_output=True, text=True
        )
        assert done.stdout.split() == ["2", "a", "b"], done.stderr
        store.apply([put("c", b"3", 3)], at(3))


def test_reader_needs_fold(path: Path) -> None:
    with pytest.raises(StoreIOError, match="no such fold"):
        SqliteReader.open(path)
    sqlite3.connect(path).close()
    with pytest.raises(FoldFormatError):
        SqliteReader.open(path)


def test_foreign_database_is_refused_and_unchanged(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(FoldFormatError, match="not a fold"):
        SqliteSnapshot.open(path)
    assert path.read_bytes() == before


def test_another_format_is_refused(path: Path) -> None:
    SqliteSnapshot.open(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=2")
    db.close()
    with pytest.raises(FoldFormatError, match="format 2"):
        SqliteSnapshot.open(path)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE data SET ver = zeroblob(11)", "a version of 11 bytes"),
        ("UPDATE data SET k = x'ff'", "UTF-8"),
    ],
)
def test_impossible_rows_are_refused(path: Path, statement: str, reason: str) -> None:
    with SqliteSnapshot.open(path) as store:
        store.apply([put("a", b"1", 1)], at(1))
        with sqlite3.connect(path) as db:
            db.execute(statement)
        db.close()
        with pytest.raises(FoldFormatError, match=reason):
            contents(store)


def test_impossible_cursor_is_refused(path: Path) -> None:
    with SqliteSnapshot.open(path) as store:
        store.apply([], at(1))
        with sqlite3.connect(path) as db:
            db.execute("UPDATE meta SET v = zeroblob(11)")
        db.close()
        with pytest.raises(FoldFormatError, match="a cursor of 11 bytes"):
            _ = store.cursor


@pytest.mark.parametrize(("sync", "level"), [(False, 1), (True, 2)])
def test_syncing_every_batch_is_asked_for(path: Path, sync: bool, level: int) -> None:
    with SqliteSnapshot.open(path, sync=sync) as store:
        assert store._connection().execute("PRAGMA synchronous").fetchone() == (level,)
        assert store._connection().execute("PRAGMA journal_mode").fetchone() == ("wal",)
