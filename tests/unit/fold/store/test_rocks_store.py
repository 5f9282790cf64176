"""RocksDB: what is particular to it, beyond the contract of all stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rocksdict import Options, Rdict

from penstock.fold import FoldFormatError, RocksDbSnapshot, StoreIOError
from support.folds import SMALL_ROCKS, at, contents, model, put

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fold"


def spoil(path: Path, family: str, key: bytes, value: bytes) -> None:
    names = Rdict.list_cf(str(path), Options(raw_mode=True))
    families = {name: Options(raw_mode=True) for name in names}
    db = Rdict(str(path), Options(raw_mode=True), column_families=families)
    db.get_column_family(family)[key] = value
    db.close()


def test_one_directory_has_one_writer(path: Path) -> None:
    with RocksDbSnapshot.open(path, **SMALL_ROCKS), pytest.raises(StoreIOError, match="lock"):
        RocksDbSnapshot.open(path, **SMALL_ROCKS)
    RocksDbSnapshot.open(path, **SMALL_ROCKS).close()


def test_flushed_and_merged_entries_are_read_as_before(path: Path) -> None:
    batches = [[put(f"k.{n:05}", b"%d" % lap, n) for n in range(2000)] for lap in range(5)]
    with RocksDbSnapshot.open(path, cache_bytes=1 << 20, write_buffer_bytes=1 << 16) as store:
        for batch in batches:
            store.apply(batch, at(2000))
        store.finish_load()
        assert contents(store) == model(batches[-1])
    with RocksDbSnapshot.open(path, **SMALL_ROCKS, sync=True) as store:
        assert contents(store) == model(batches[-1])
        store.apply([put("a", b"1", 2001)], at(2001))
        assert store.cursor == at(2001)


@pytest.mark.parametrize("record", [b"", b"\x0b" + bytes(20), b"\x08short"])
def test_impossible_records_are_refused(path: Path, record: bytes) -> None:
    RocksDbSnapshot.open(path, **SMALL_ROCKS).close()
    spoil(path, "data", b"k", record)
    with RocksDbSnapshot.open(path, **SMALL_ROCKS) as store:
        with pytest.raises(FoldFormatError, match="no value record"):
            store.get("k")
        with pytest.raises(FoldFormatError, match="no value record"):
            contents(store)


def test_impossible_cursor_is_refused(path: Path) -> None:
    RocksDbSnapshot.open(path, **SMALL_ROCKS).close()
    spoil(path, "meta", b"cursor", bytes(11))
    store = RocksDbSnapshot.open(path, **SMALL_ROCKS)
    with store, pytest.raises(FoldFormatError, match="11 bytes"):
        _ = store.cursor
