"""Archives as Iceberg tables: snapshots, other writers, other columns, catalogs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Transaction
from pyiceberg.types import StringType

from penstock.spark.jobs import ArchiveError, ServerOrigin, archive, archived, open_archive
from support.iceberg import PLACE, catalog_options, rest_catalog
from support.pipelines import fill, url_of
from support.s3 import S3, s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.jobs.job_inputs import InputExtent
    from support.servers import ServerUnderTest

names = (f"ICE{n}" for n in itertools.count())


@dataclass
class Lake:
    """A stream, its archive, and the archive as other users of the catalog see it."""

    spark: SparkSession
    server: ServerUnderTest
    stream: str
    options: dict[str, str]

    @property
    def origin(self) -> ServerOrigin:
        return ServerOrigin(self.spark, self.stream, {"url": url_of(self.server)})

    @property
    def table(self) -> Any:
        return load_catalog("lake", **self.options).load_table("kept.stream")

    def publish(self, first: int, last: int) -> None:
        fill(self.server, self.stream, first, last)

    def archive(self, **more: Any) -> Any:
        return archive(self.spark, self.origin, PLACE, storage_options=self.options, **more)

    def seqs(self) -> list[int]:
        return sorted(self.table.scan(selected_fields=("seq",)).to_arrow()["seq"].to_pylist())


@pytest.fixture
def lake(spark: SparkSession, ours: ServerUnderTest, tmp_path: Path) -> Lake:
    return Lake(spark, ours, next(names), catalog_options(tmp_path))


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as running:
        yield running


def test_snapshot_names_its_stream_and_cursor(lake: Lake) -> None:
    lake.publish(1, 20)
    lake.archive(sequences_per_commit=8, compact_bytes=0)
    summaries = [one.summary for one in lake.table.snapshots()]
    assert [one["penstock.cursor"] for one in summaries] == ["8", "16", "20"]
    assert {one["penstock.stream"] for one in summaries} == {lake.stream}
    assert lake.table.properties["penstock.cursor"] == "20"
    assert [str(field.transform) for field in lake.table.spec().fields] == ["day"]
    assert lake.seqs() == list(range(1, 21))


def test_commit_that_lost_race_is_not_repeated(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.publish(1, 20)
    lake.archive(until=5)
    commit = Transaction.commit_transaction
    raced = iter((True,))

    def overtaken(self: Transaction) -> Any:
        if next(raced, False):
            lake.archive(until=12, compact_bytes=0)
        return commit(self)

    monkeypatch.setattr(Transaction, "commit_transaction", overtaken)
    with pytest.raises(ArchiveError, match="another writer"):
        lake.archive(compact_bytes=0)
    assert lake.seqs() == list(range(1, 13))
    lake.archive()
    assert lake.seqs() == list(range(1, 21))


def test_cursor_survives_deletes_and_expiry_by_others(lake: Lake) -> None:
    lake.publish(1, 20)
    lake.archive(until=10, by_time="none")
    lake.table.delete("seq = 5")
    assert lake.table.current_snapshot().summary.get("penstock.cursor") is None
    others = lake.table.maintenance.expire_snapshots()
    kept = lake.table.current_snapshot().snapshot_id
    others.by_ids([one.snapshot_id for one in lake.table.snapshots() if one.snapshot_id != kept])
    others.commit()
    lake.archive(by_time="none")
    assert lake.seqs() == [n for n in range(1, 21) if n != 5]


def test_small_files_are_joined_and_old_snapshots_expire_with_their_files(
    lake: Lake, tmp_path: Path
) -> None:
    lake.publish(1, 60)
    lake.archive(sequences_per_commit=10, compact_bytes=0, token=1)
    assert len(list(tmp_path.rglob("*.parquet"))) == 18
    told = lake.archive(token=1, expire_days=0)
    assert (told.files_joined, told.files, told.rows, told.cursor) == (15, 3, 60, 60)
    assert len(lake.table.snapshots()) == 1
    assert len(list(tmp_path.rglob("*.parquet"))) == 3
    assert lake.seqs() == list(range(1, 61))


def test_partitions_are_hours_and_tokens(lake: Lake) -> None:
    lake.publish(1, 30)
    lake.archive(token=1, by_time="hour")
    table = lake.table
    assert [str(one.transform) for one in table.spec().fields] == ["hour", "identity"]
    files = [task.file for task in table.scan("token_1 = '2'").plan_files()]
    assert sum(file.record_count for file in files) == 10
    with pytest.raises(ArchiveError, match="partitioned by timestamp_hour, token_1"):
        lake.archive(by_time="day")
    with pytest.raises(ArchiveError, match="form parquet is partitioned by day"):
        archive(lake.spark, lake.origin, "elsewhere", by_time="hour")


def test_columns_of_others_stay_and_missing_one_is_refused(lake: Lake) -> None:
    lake.publish(1, 20)
    lake.archive(until=10)
    with lake.table.update_schema() as update:
        update.add_column("note", StringType())
    lake.archive()
    assert lake.seqs() == list(range(1, 21))
    archived_rows = open_archive(PLACE, storage_options=lake.options)
    rows = archived(lake.spark, archived_rows, archived_rows.current())
    assert "note" in rows.columns
    assert rows.where("note is null").count() == 20
    with lake.table.update_schema() as update:
        update.rename_column("data", "body")
    lake.publish(21, 22)
    with pytest.raises(ArchiveError, match="no column data"):
        lake.archive()


@dataclass
class Widened:
    """An origin whose rows have a typed column besides those of messages."""

    origin: ServerOrigin

    def extent(self) -> InputExtent:
        return self.origin.extent()

    def rows(self, first: int, last: int) -> DataFrame:
        rows = self.origin.rows(first, last)
        return rows.selectExpr("*", "cast(split(string(data), ' ')[1] as int) as number")


def test_typed_columns_become_columns_of_table(lake: Lake, tmp_path: Path) -> None:
    lake.publish(1, 10)
    lake.archive(until=5)
    wide = Widened(lake.origin)
    archive(lake.spark, wide, PLACE, storage_options=lake.options)
    rows = lake.table.scan(selected_fields=("seq", "number")).to_arrow().to_pylist()
    found = {row["seq"]: row["number"] for row in rows}
    assert found == {n: n if n > 5 else None for n in range(1, 11)}
    plain = str(tmp_path / "plain")
    archive(lake.spark, wide, plain)
    table = open_archive(plain)
    found_plain = archived(lake.spark, table, table.current()).where("number = seq")
    assert found_plain.count() == 10


def test_table_that_is_no_archive_is_refused(lake: Lake) -> None:
    lake.publish(1, 3)
    lake.archive()
    catalog = load_catalog("lake", **lake.options)
    catalog.create_table("kept.other", lake.table.schema())
    with pytest.raises(ArchiveError, match="no archive"):
        open_archive("iceberg://lake/kept.other", storage_options=lake.options).current()
    with pytest.raises(ArchiveError, match="namespace"):
        open_archive("iceberg://lake/other", storage_options=lake.options)


def test_rest_catalog(lake: Lake, tmp_path: Path) -> None:
    with rest_catalog(tmp_path) as url:
        lake.options = {"type": "rest", "uri": url}
        lake.publish(1, 20)
        lake.archive(sequences_per_commit=8, compact_bytes=0)
        assert lake.archive().files_joined == 2
        assert lake.archive().rows_added == 0
        assert lake.seqs() == list(range(1, 21))


def test_glue_catalog_and_s3(lake: Lake, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    # Options as object stores have them elsewhere; Glue's own are PyIceberg's.
    endpoint = s3.options()["endpoint"]
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    lake.options = {
        "type": "glue",
        "warehouse": f"s3://{s3.new_bucket()}/warehouse",
        "glue.endpoint": endpoint,
        "glue.region": "us-east-1",
        "glue.access-key-id": "who",
        "glue.secret-access-key": "cares",
        "s3.endpoint": endpoint,
        "s3.region": "us-east-1",
        "s3.access-key-id": "who",
        "s3.secret-access-key": "cares",
    }
    lake.publish(1, 20)
    lake.archive(sequences_per_commit=8, token=1)
    assert lake.archive(token=1).rows_added == 0
    table = open_archive(PLACE, storage_options=lake.options)
    rows = archived(lake.spark, table, table.current())
    assert rows.where("token_1 = '2'").count() == 7
    assert lake.seqs() == list(range(1, 21))
