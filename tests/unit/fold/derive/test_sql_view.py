"""A fold asked in SQL: everything can be read, nothing changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.fold import FoldFormatError, FoldStoreError, SqliteSnapshot, StoreIOError
from penstock.fold.derive.sql_tables import Tables
from penstock.fold.derive.sql_view import FoldSql
from penstock.fold.derive.value_codecs import Json, MessagePack, Zstd
from penstock.kv.kv_types import KvUpdate, Op
from support.folds import at, contents, put

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fold.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteSnapshot]:
    mine = Tables(
        lambda tx, updates: tx.execute("INSERT INTO batches VALUES (?)", (len(updates),)),
        create=lambda tx: tx.execute("CREATE TABLE IF NOT EXISTS batches (size)"),
    )
    with SqliteSnapshot.open(path, tables=mine) as opened:
        opened.apply(
            [
                KvUpdate(Op.PUT, "n.a", b'{"region":"eu","cores":4}', 1, created=1.5),
                put("n.b", b'{"region":"us","cores":8}', 2),
            ],
            at(2),
        )
        yield opened


def test_entries_are_view(store: SqliteSnapshot, path: Path) -> None:
    with FoldSql.open(path) as sql:
        assert sql.query("SELECT key, text, revision, created FROM entries ORDER BY key") == [
            ("n.a", '{"region":"eu","cores":4}', 1, 1.5),
            ("n.b", '{"region":"us","cores":8}', 2, None),
        ]
        assert sql.query("SELECT key FROM entries WHERE json ->> 'cores' > :n", {"n": 4}) == [
            ("n.b",)
        ]
        assert sql.columns("SELECT key AS k, 1 AS one FROM entries") == ["k", "one"]


def test_open_reader_sees_what_is_applied(store: SqliteSnapshot, path: Path) -> None:
    with FoldSql.open(path) as sql:
        store.apply([put("n.c", b"", 3)], at(3))
        assert sql.query("SELECT count(*) FROM entries") == [(3,)]
        assert sql.query("SELECT size FROM batches ORDER BY rowid") == [(2,), (1,)]


def test_codec_makes_json_of_what_is_none(path: Path) -> None:
    codec = Zstd(MessagePack())
    with SqliteSnapshot.open(path) as store:
        store.apply([put("a", codec.encode({"n": 7}), 1), put("b", b"bad", 2)], at(2))
        with FoldSql.open(path, codec=codec) as sql:
            assert sql.query("SELECT key, json ->> 'n' FROM entries ORDER BY key") == [
                ("a", 7),
                ("b", None),
            ]


def test_rows_come_as_they_are_read(path: Path) -> None:
    with SqliteSnapshot.open(path) as store:
        store.apply([put(f"k.{number}", b"", number) for number in range(1, 2_501)], at(2_500))
        with FoldSql.open(path, codec=Json()) as sql:
            rows = sql.rows("SELECT revision FROM entries ORDER BY revision")
            assert next(rows) == (1,)
            assert sum(1 for _ in rows) == 2_499


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM data",
        "INSERT INTO meta VALUES ('x', x'')",
        "DROP TABLE batches",
        "CREATE TABLE mine (x)",
        "ATTACH 'other.db' AS other",
        "PRAGMA query_only = 0",
        "PRAGMA journal_mode = DELETE",
        "BEGIN IMMEDIATE",
        "VACUUM",
    ],
)
def test_nothing_can_be_changed(store: SqliteSnapshot, path: Path, statement: str) -> None:
    before = contents(store)
    with FoldSql.open(path) as sql:
        with pytest.raises(FoldStoreError):
            sql.query(statement)
        assert sql.query("SELECT count(*) FROM entries") == [(2,)]
    assert contents(store) == before


def test_invalid_fold_is_refused(path: Path) -> None:
    with pytest.raises(StoreIOError, match="no such fold"):
        FoldSql.open(path)
    path.write_bytes(b"")
    with pytest.raises(FoldFormatError):
        FoldSql.open(path)


def test_closed_reader_reports_it(store: SqliteSnapshot, path: Path) -> None:
    sql = FoldSql.open(path)
    sql.close()
    sql.close()
    with pytest.raises(FoldStoreError, match="closed"):
        sql.query("SELECT 1")


def test_text_of_what_is_no_text_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    with SqliteSnapshot.open(tmp_path / "fold") as store:
        store.apply([put("a", b"\xffx", 1)], at(1))
    with FoldSql.open(tmp_path / "fold") as sql:
        assert sql.query("SELECT text, value FROM entries") == [("\ufffdx", b"\xffx")]
