"""The format `penstock-fold`: an exported fold is a table, whatever store it comes from."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from penstock.fold import AppendLogSnapshot, LmdbSnapshot, RocksDbSnapshot, SqliteSnapshot
from penstock.fold.ship.artifact_transport import transport_for
from support.folds import at, delete, put

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from penstock.fold.store.contract import SnapshotStore

STORES = (AppendLogSnapshot, SqliteSnapshot, LmdbSnapshot, RocksDbSnapshot)


def made(place: Path, kind: type[SnapshotStore] = AppendLogSnapshot, keys: int = 5) -> Path:
    """An artifact with keys k.0 to k.<n>, the first of them deleted, at its cursor."""
    place.parent.mkdir(parents=True, exist_ok=True)
    updates = [put(f"k.{n}", b"value %d" % n, n + 1) for n in range(keys)]
    with kind.open(place.with_name(f"{place.name}.store")) as store:
        store.apply([*updates, delete("k.0", keys + 1)], at(keys + 1))
        store.export_to(place)
    return place


def rows(frame: DataFrame) -> list[tuple[str, bytes, int]]:
    return sorted((row.key, bytes(row.value), row.revision) for row in frame.collect())


@pytest.mark.parametrize("kind", STORES, ids=lambda kind: kind.backend)
def test_artifact_is_table_of_its_entries(
    spark: SparkSession, tmp_path: Path, kind: type[SnapshotStore]
) -> None:
    frame = spark.read.format("penstock-fold").load(str(made(tmp_path / "a", kind)))
    assert rows(frame) == [(f"k.{n}", b"value %d" % n, n + 1) for n in range(1, 5)]
    assert {(row.shard, row.cursor) for row in frame.collect()} == {("a", 6)}


def test_directory_of_artifacts_is_one_table_with_task_for_each(
    spark: SparkSession, tmp_path: Path
) -> None:
    made(tmp_path / "s" / "one", keys=3)
    made(tmp_path / "s" / "two", keys=4)
    (tmp_path / "s" / ".half").mkdir()
    frame = spark.read.format("penstock-fold").load(str(tmp_path / "s"))
    assert frame.rdd.getNumPartitions() == 2
    found = {row["shard"]: (row["count"], row["cursor"]) for row in
             frame.groupBy("shard", "cursor").count().collect()}  # fmt: skip
    assert found == {"one": (2, 4), "two": (3, 5)}


def test_published_artifacts_are_read_from_where_they_are_published(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "objects"
    for name, keys in (("one", 3), ("two", 4)):
        artifact = made(tmp_path / name, keys=keys)
        asyncio.run(transport_for(str(place)).upload(f"bucket/{name}", artifact))
    read = spark.read.format("penstock-fold")
    assert len(rows(read.load(f"file://{place}/bucket"))) == 5
    assert len(rows(read.load(f"{place}/bucket/two"))) == 3


def test_narrower_schema_and_prefix_are_honoured(spark: SparkSession, tmp_path: Path) -> None:
    path = str(made(tmp_path / "a"))
    read = spark.read.format("penstock-fold").schema("revision bigint, key string")
    frame = read.option("prefix", "k.2").load(path)
    assert [tuple(row) for row in frame.collect()] == [(3, "k.2")]


def test_damage_is_reported_and_gives_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = made(tmp_path / "a")
    file = path / "data" / "fold.snap"
    data = bytearray(file.read_bytes())
    data[20] ^= 1
    file.write_bytes(data)
    with pytest.raises(Exception, match="not what the manifest says"):
        spark.read.format("penstock-fold").load(str(path)).collect()


def test_path_without_artifact_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="there is no artifact at"):
        spark.read.format("penstock-fold").load(str(tmp_path)).collect()
