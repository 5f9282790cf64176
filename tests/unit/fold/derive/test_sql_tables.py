"""Tables of the application's in a fold's file: every change once, with its entry or not at all."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from penstock.fold import FoldStoreError, SnapshotMeta, SqliteSnapshot, StoreIOError
from penstock.fold.derive.sql_tables import Tables, Transaction
from penstock.kv.kv_types import Scope, WatchCursor
from support.folds import at, contents, delete, put

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penstock.kv.kv_types import KvUpdate


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fold.db"


def create(tx: Transaction) -> None:
    tx.execute("CREATE TABLE IF NOT EXISTS log (key TEXT, op INTEGER, revision INTEGER)")


def note(tx: Transaction, updates: Sequence[KvUpdate]) -> None:
    rows = [(update.key, int(update.op), update.revision) for update in updates]
    tx.executemany("INSERT INTO log VALUES (?,?,?)", rows)


def forget(tx: Transaction) -> None:
    tx.execute("DELETE FROM log")


NOTED = Tables(note, create=create, reset=forget)


def noted(path: Path) -> list[tuple[str, int, int]]:
    db = sqlite3.connect(path)
    try:
        return db.execute("SELECT * FROM log ORDER BY rowid").fetchall()
    finally:
        db.close()


def test_every_change_is_delivered_also_one_that_is_overwritten_in_its_batch(path: Path) -> None:
    with SqliteSnapshot.open(path, tables=NOTED) as store:
        store.apply([put("a", b"1", 1), put("a", b"2", 2), delete("b", 3)], at(3))
    assert noted(path) == [("a", 1, 1), ("a", 1, 2), ("b", 2, 3)]


def test_delivered_updates_are_not_repeated_when_bucket_is_read_again(path: Path) -> None:
    for _ in range(2):
        with SqliteSnapshot.open(path, tables=NOTED) as store:
            store.apply([put("a", b"1", 1), put("b", b"2", 2)], at(2))
    with SqliteSnapshot.open(path, tables=NOTED) as store:
        store.apply([put("b", b"2", 2), put("c", b"3", 3)], at(3))
        store.apply([delete("a")], at(3))  # found out by a repair
    assert noted(path) == [("a", 1, 1), ("b", 1, 2), ("c", 1, 3), ("a", 2, -1)]


def test_unordered_findings_of_repair_are_delivered_once(path: Path) -> None:
    with SqliteSnapshot.open(path, tables=NOTED) as store:
        store.apply([put("a", b"", 1), put("b", b"", 2)], at(2))
        store.apply([put("a", b"", 9)], at(2))  # in order of keys, under the old cursor
        store.apply([put("b", b"", 5)], at(2))
        store.apply([put("c", b"", 7)], at(9))
        store.apply([put("c", b"", 7), put("d", b"", 10)], at(10))
    assert [row[2] for row in noted(path)] == [1, 2, 9, 5, 7, 10]


@pytest.mark.parametrize(
    "fail",
    [
        lambda tx: 1 / 0,
        lambda tx: tx.execute("INSERT INTO nowhere VALUES (1)"),
        lambda tx: tx.execute("COMMIT"),
        lambda tx: tx.execute("SAVEPOINT mine"),
        lambda tx: tx.execute("PRAGMA user_version = 9"),
        lambda tx: tx.execute("DELETE FROM data"),
        lambda tx: tx.execute("UPDATE meta SET v = x''"),
        lambda tx: tx.execute("DROP TABLE data"),
        lambda tx: tx.execute("ALTER TABLE data ADD COLUMN mine"),
    ],
)
def test_failure_takes_everything_back(path: Path, fail: Callable[[Transaction], object]) -> None:
    failing = True

    def apply(tx: Transaction, updates: Sequence[KvUpdate]) -> None:
        note(tx, updates)
        if failing:
            fail(tx)

    with SqliteSnapshot.open(path, tables=Tables(apply, create=create)) as store:
        with pytest.raises((ZeroDivisionError, StoreIOError)):
            store.apply([put("a", b"1", 1)], at(1))
        assert (contents(store), store.cursor, noted(path)) == ({}, WatchCursor.NONE, [])
        failing = False
        store.apply([put("a", b"1", 1)], at(1))
        assert (list(contents(store)), store.cursor) == (["a"], at(1))
    assert noted(path) == [("a", 1, 1)]


def test_entries_of_batch_are_there_to_be_read(path: Path) -> None:
    seen: list[object] = []

    def look(tx: Transaction, updates: Sequence[KvUpdate]) -> None:
        seen.extend(tx.execute("SELECT cast(k AS TEXT), v FROM data").fetchall())

    with SqliteSnapshot.open(path, tables=Tables(look)) as store:
        store.apply([put("a", b"1", 1)], at(1))
    assert seen == [("a", b"1")]


def test_another_log_empties_tables_and_counts_from_the_start(path: Path) -> None:
    with SqliteSnapshot.open(path, tables=NOTED) as store:
        store.apply([put("a", b"1", 7)], at(7), meta=SnapshotMeta("one"))
        store.apply([], at(8), meta=SnapshotMeta("one", seen_evicting=True))
        assert noted(path) == [("a", 1, 7)]
        store.apply([], WatchCursor.NONE, meta=SnapshotMeta("two"))
        assert noted(path) == []
        store.apply([put("a", b"2", 1)], at(1))
    assert noted(path) == [("a", 1, 1)]


def test_without_reset_another_log_is_refused(path: Path) -> None:
    with SqliteSnapshot.open(path, tables=Tables(note, create=create)) as store:
        store.apply([put("a", b"1", 7)], at(7), meta=SnapshotMeta("one"))
        with pytest.raises(FoldStoreError, match="no reset"):
            store.apply([], WatchCursor.NONE, meta=SnapshotMeta("two"))
        with pytest.raises(FoldStoreError, match="no reset"):
            store.clear()
        assert store.cursor == at(7)
        assert store.meta.identity == "one"


def test_cleared_fold_has_empty_tables(path: Path) -> None:
    with SqliteSnapshot.open(path, tables=NOTED) as store:
        store.apply([put("a", b"1", 7)], at(7))
        store.clear()
        assert noted(path) == []
        store.apply([put("a", b"1", 7)], at(7))
    assert noted(path) == [("a", 1, 7)]


def test_tables_that_come_later_are_given_entries_once(path: Path) -> None:
    with SqliteSnapshot.open(path) as store:
        other = put("c", b"", token=b"0123456789")
        store.apply([put("b", b"1", 1), put("a", b"2", 2), other], at(3))
    for _ in range(2):
        with SqliteSnapshot.open(path, tables=NOTED) as store:
            store.apply([put("a", b"2", 2)], at(3))
    assert noted(path) == [("c", 1, -1), ("b", 1, 1), ("a", 1, 2)]


def test_tables_that_come_later_are_given_however_many_entries_there_are(path: Path) -> None:
    with SqliteSnapshot.open(path) as store:
        store.apply([put(f"k.{number}", b"", number) for number in range(1, 2_501)], at(2_500))
    SqliteSnapshot.open(path, tables=NOTED).close()
    assert [revision for _, _, revision in noted(path)] == list(range(1, 2_501))


def test_tables_go_with_artifact(path: Path, tmp_path: Path) -> None:
    with SqliteSnapshot.open(path, tables=NOTED) as store:
        store.apply([put("a", b"1", 1)], at(1))
        store.export_to(tmp_path / "artifact")
    copy = tmp_path / "copy.db"
    with SqliteSnapshot.import_from(tmp_path / "artifact", copy, tables=NOTED) as store:
        store.apply([put("a", b"1", 1), put("b", b"1", 2)], at(2))
    assert noted(copy) == [("a", 1, 1), ("b", 1, 2)]


def test_fold_with_tables_takes_no_change_without_them(path: Path) -> None:
    with SqliteSnapshot.open(path, tables=NOTED) as store:
        store.apply([put("a", b"1", 1)], at(1))
    with SqliteSnapshot.open(path) as store:
        with pytest.raises(FoldStoreError, match="tables"):
            store.apply([put("b", b"2", 2)], at(2))
        with pytest.raises(FoldStoreError, match="tables"):
            store.clear()
        store.apply([], at(2))  # nothing that they would miss
        assert (contents(store).keys(), store.cursor) == ({"a"}, at(2))
    with SqliteSnapshot.open(path, tables=NOTED) as store:
        store.apply([put("b", b"2", 3)], at(3))
    assert noted(path) == [("a", 1, 1), ("b", 1, 3)]


def test_tables_of_everything_are_not_taken_for_those_of_part(path: Path, tmp_path: Path) -> None:
    with SqliteSnapshot.open(path, tables=NOTED) as store:
        meta = SnapshotMeta("KV_b@1", ("",))
        store.apply([put("a.1", b"1", 1), put("b.1", b"1", 2)], at(2), meta=meta)
        store.export_to(tmp_path / "whole")
        store.export_to(tmp_path / "plain", form="append-log")
    copy, scope = tmp_path / "copy.db", Scope.prefix("a.")
    with pytest.raises(FoldStoreError, match="tables"):
        SqliteSnapshot.import_from(tmp_path / "whole", copy, scope=scope, tables=NOTED)
    assert not copy.exists()
    SqliteSnapshot.import_from(tmp_path / "plain", copy, scope=scope, tables=NOTED).close()
    assert noted(copy) == [("a.1", 1, 1)]


def test_transaction_ends_with_function_it_was_given_to(path: Path) -> None:
    kept: list[Transaction] = []
    with SqliteSnapshot.open(path, tables=Tables(lambda tx, _: kept.append(tx))) as store:
        store.apply([put("a", b"1", 1)], at(1))
    with pytest.raises(FoldStoreError, match="over"):
        kept[0].execute("SELECT 1")
