"""Folds as columns: Arrow, Polars, pandas, Parquet; what is missing is asked for by name."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from penstock.fold import FoldStoreError, MemorySnapshot
from penstock.fold.derive.fold_columns import (
    record_batches,
    to_pandas,
    to_polars,
    to_table,
    write_parquet,
)
from penstock.fold.derive.value_codecs import Json
from support.folds import at, put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pyarrow = pytest.importorskip("pyarrow")


class Node(msgspec.Struct):
    region: str
    cores: int = 1


@pytest.fixture
def store() -> Iterator[MemorySnapshot]:
    with MemorySnapshot.open() as opened:
        batch = [
            put(f"n.{number:02d}", b'{"region":"eu","cores":%d}' % number, number)
            for number in range(1, 26)
        ]
        opened.apply([*batch, put("x", b"bad", token=b"0123456789")], at(25))
        yield opened


def test_table_has_every_entry_in_order(store: MemorySnapshot) -> None:
    table = to_table(store)
    assert table.column_names == ["key", "value", "revision", "version"]
    assert table.column("key").to_pylist() == [entry.key for entry in store.range()]
    assert table.column("value").to_pylist() == [entry.value for entry in store.range()]
    assert table.column("revision").to_pylist() == [*range(1, 26), None]
    assert table.column("version").to_pylist() == [None] * 25 + [b"0123456789"]


def test_batches_are_made_as_they_are_asked_for(store: MemorySnapshot) -> None:
    reader = record_batches(store, "n.", rows=10)
    assert [batch.num_rows for batch in reader] == [10, 10, 5]


def test_empty_range_has_columns_anyway(store: MemorySnapshot) -> None:
    assert to_table(store, "none.").schema == to_table(store).schema
    assert to_table(store, "none.").num_rows == 0


def test_decoded_values_are_structs_and_null_where_they_cannot_be_read(
    store: MemorySnapshot,
) -> None:
    values = to_table(store, codec=Json(Node), rows=10).column("value").to_pylist()
    assert values[0] == {"region": "eu", "cores": 1}
    assert values[-1] is None


def test_type_of_values_can_be_given(store: MemorySnapshot) -> None:
    wanted = pyarrow.struct([("cores", pyarrow.int16())])
    table = to_table(store, "n.", codec=Json(Node), value_type=wanted)
    assert table.schema.field("value").type == wanted
    assert table.column("value").to_pylist()[3] == {"cores": 4}


def test_frames_have_the_same_rows(store: MemorySnapshot) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    keys = [entry.key for entry in store.range()]
    assert list(to_pandas(store)["key"]) == keys
    assert to_polars(store)["key"].to_list() == keys


def test_parquet_file_has_the_same_rows(store: MemorySnapshot, tmp_path: Path) -> None:
    import pyarrow.parquet

    write_parquet(store, tmp_path / "fold.parquet", rows=10)
    assert pyarrow.parquet.read_table(tmp_path / "fold.parquet").equals(to_table(store))


@pytest.mark.parametrize(
    ("make", "package", "what"),
    [
        (to_table, "pyarrow", r"penstock\[arrow\]"),
        (to_polars, "polars", "install polars"),
        (to_pandas, "pandas", "install pandas"),
    ],
)
def test_package_that_is_missing_is_asked_for(
    make: Callable[[MemorySnapshot], object],
    package: str,
    what: str,
    store: MemorySnapshot,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(FoldStoreError, match=what):
        make(store)
