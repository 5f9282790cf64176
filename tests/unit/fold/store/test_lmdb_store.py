"""LMDB: what is particular to it, beyond the contract of all stores."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import lmdb
import pytest

from penstock.fold import FoldFormatError, LmdbSnapshot, StoreIOError
from support.folds import at, contents, model, put

if TYPE_CHECKING:
    from pathlib import Path

READ_ELSEWHERE = """
import sys
from penstock.fold import LmdbReader
with LmdbReader.open(sys.argv[1]) as reader:
    print(reader.cursor.rank, *(entry.key for entry in reader.range()))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fold"


def spoil(path: Path, table: bytes, key: bytes, value: bytes) -> None:
    with lmdb.open(str(path), max_dbs=3) as env, env.begin(write=True) as txn:
        txn.put(key, value, db=env.open_db(table, txn=txn))


@pytest.mark.sockets
def test_another_process_reads_while_this_one_writes(path: Path) -> None:
    with LmdbSnapshot.open(path) as store:
        store.apply([put("a", b"1", 1), put("b" * 600, b"2", 2)], at(2))
        done = subprocess.run(
            [sys.executable, "-c", READ_ELSEWHERE, str(path)], capture_output=True, text=True
        )
        assert done.stdout.split() == ["2", "a", "b" * 600], done.stderr
        store.apply([put("c", b"3", 3)], at(3))


def test_full_map_refuses_batch_and_larger_one_takes_it(path: Path) -> None:
    batch = [put(f"k.{n}", b"v" * 1000, n) for n in range(200)]
    with LmdbSnapshot.open(path, map_bytes=1 << 17) as store:
        store.apply(batch[:10], at(10))
        with pytest.raises(StoreIOError, match="map_bytes"):
            store.apply(batch, at(200))
        assert store.cursor == at(10)
        assert contents(store) == model(batch[:10])
    with LmdbSnapshot.open(path) as store:
        store.apply(batch, at(200))
        assert contents(store) == model(batch)


def test_foreign_environment_is_refused(path: Path) -> None:
    path.mkdir()
    spoil(path, b"mine", b"k", b"v")
    with pytest.raises(FoldFormatError):
        LmdbSnapshot.open(path)


def test_another_format_is_refused(path: Path) -> None:
    LmdbSnapshot.open(path).close()
    spoil(path, b"meta", b"format", b"2")
    with pytest.raises(FoldFormatError, match="format"):
        LmdbSnapshot.open(path)


@pytest.mark.parametrize("record", [b"", b"\x0b" + bytes(20), b"\x08short"])
def test_impossible_records_are_refused(path: Path, record: bytes) -> None:
    with LmdbSnapshot.open(path) as store:
        store.apply([], at(1))
    spoil(path, b"data", b"k", record)
    with LmdbSnapshot.open(path) as store:
        with pytest.raises(FoldFormatError, match="no value record"):
            store.get("k")
        with pytest.raises(FoldFormatError, match="no value record"):
            contents(store)


@pytest.mark.parametrize("item", [b"", b"\x05\x00ab"])
def test_impossible_long_entries_are_refused(path: Path, item: bytes) -> None:
    with LmdbSnapshot.open(path) as store:
        store.apply([], at(1))
    spoil(path, b"long", b"some hash", item)
    with LmdbSnapshot.open(path) as store, pytest.raises(FoldFormatError, match="long key"):
        contents(store)


def test_impossible_cursor_is_refused(path: Path) -> None:
    LmdbSnapshot.open(path).close()
    spoil(path, b"meta", b"cursor", bytes(11))
    with pytest.raises(FoldFormatError, match="11 bytes"):
        LmdbSnapshot.open(path)
