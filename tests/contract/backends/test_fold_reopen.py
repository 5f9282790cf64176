"""What was applied is there when the store is opened again; what is no fold is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.fold import FoldCorruptedError, FoldFormatError, SnapshotMeta, StoreIOError
from penstock.kv.kv_types import WatchCursor
from support.folds import at, contents, delete, model, put

if TYPE_CHECKING:
    from pathlib import Path

    from support.folds import Kind


def test_entries_cursor_and_origin_survive_reopening(durable: Kind, path: Path) -> None:
    batch = [put(f"k.{n}", b"v" * n, n) for n in range(200)]
    batch += [put("x" * 600, b"long", 200), delete("k.7", 201), put("t", b"", token=b"0123456789")]
    origin = SnapshotMeta("KV_b 2026", ("k.",), seen_evicting=True)
    with durable.open(path) as store:
        store.apply(batch[:100], at(100), meta=origin)
        store.apply(batch[100:], at(201))
    for _ in range(2):
        with durable.open(path) as store:
            assert contents(store) == model(batch)
            assert store.cursor == at(201)
            assert store.meta == origin


def test_unused_store_reopens_empty(durable: Kind, path: Path) -> None:
    for _ in range(2):
        with durable.open(path) as store:
            assert contents(store) == {}
            assert store.cursor == WatchCursor.NONE


def test_cleared_store_stays_empty(durable: Kind, path: Path) -> None:
    with durable.open(path) as store:
        store.apply([put("a", b"1", 1)], at(1), meta=SnapshotMeta("id"))
        store.clear()
    with durable.open(path) as store:
        assert contents(store) == {}
        assert store.cursor == WatchCursor.NONE
        assert store.meta == SnapshotMeta()


def test_cursor_reset_to_none_stays_none(durable: Kind, path: Path) -> None:
    with durable.open(path) as store:
        store.apply([put("a", b"1", 1)], at(1))
        store.apply([], WatchCursor.NONE)
    with durable.open(path) as store:
        assert store.cursor == WatchCursor.NONE
        assert list(contents(store)) == ["a"]


def test_reopening_many_times_equals_one_session(durable: Kind, path: Path) -> None:
    batch = []
    for life in range(5):
        with durable.open(path) as store:
            assert store.cursor.rank == len(batch)
            more = [put(f"k.{(life * 7 + n) % 11}", b"%d" % n, len(batch) + n) for n in range(6)]
            more.append(delete(f"k.{life}", len(batch) + 6))
            batch += more
            store.apply(more, at(len(batch)))
    with durable.open(path) as store:
        assert contents(store) == model(batch)


def test_missing_directory_is_reported(durable: Kind, tmp_path: Path) -> None:
    with pytest.raises(StoreIOError):
        durable.open(tmp_path / "none" / "fold")


def test_foreign_file_is_refused_and_unchanged(durable: Kind, path: Path) -> None:
    text = b"dear diary, " * 1000
    file = path
    if not durable.store.payload:
        path.mkdir()
        file = path / ("data.mdb" if durable.store.backend == "lmdb" else "CURRENT")
    file.write_bytes(text)
    with pytest.raises((FoldFormatError, FoldCorruptedError)):
        durable.open(path)
    assert file.read_bytes() == text
