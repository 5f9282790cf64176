"""The archive job: every message once, however it is stopped; damage and loss are never silent."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.spark.jobs import ArchiveError, ServerOrigin, archive, archived, open_archive
from penstock.spark.jobs.archive_compaction import compact
from support.iceberg import PLACE, catalog_options
from support.pipelines import fill, tell, url_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from support.servers import ServerUnderTest

FORMS = ("parquet", "delta", "iceberg")
names = (f"ARC{n}" for n in itertools.count())


@pytest.fixture
def stream() -> str:
    return next(names)


def origin(spark: SparkSession, server: ServerUnderTest, stream: str) -> ServerOrigin:
    return ServerOrigin(spark, stream, {"url": url_of(server)})


def place(form: str, directory: Path) -> tuple[str, dict[str, Any]]:
    """Where an archive is put, and the options of that place."""
    if form == "iceberg":
        return PLACE, catalog_options(directory)
    return str(directory), {}


def held(
    spark: SparkSession, dest: Path | str, options: dict[str, Any] | None = None
) -> list[tuple[int, bytes]]:
    """What an archive holds, by sequence; a message that is there twice shows."""
    table = open_archive(str(dest), storage_options=options)
    rows = archived(spark, table, table.current()).select("seq", "data").orderBy("seq").collect()
    return [(row.seq, bytes(row.data)) for row in rows]


def messages(first: int, last: int) -> list[tuple[int, bytes]]:
    return [(n, b"message %d" % n) for n in range(first, last + 1)]


@pytest.mark.parametrize("form", FORMS)
def test_runs_continue_where_the_last_one_ended(
    spark: SparkSession, server: ServerUnderTest, stream: str, tmp_path: Path, form: str
) -> None:
    source = origin(spark, server, stream)
    dest, options = place(form, tmp_path / "a")
    fill(server, stream, 1, 250)
    first = archive(
        spark,
        source,
        dest,
        form=form,
        sequences_per_commit=100,
        compact_bytes=0,
        storage_options=options,
    )
    assert (first.rows_added, first.commits, first.cursor, first.form) == (250, 3, 250, form)
    fill(server, stream, 251, 300)
    second = archive(spark, source, dest, storage_options=options)
    assert (second.rows_added, second.cursor) == (50, 300)
    assert second.files_joined > 0
    assert archive(spark, source, dest, storage_options=options).rows_added == 0
    assert held(spark, dest, options) == messages(1, 300)


@pytest.mark.parametrize("form", FORMS)
def test_all_columns_come_back_and_partitions_are_directories(
    spark: SparkSession, server: ServerUnderTest, stream: str, tmp_path: Path, form: str
) -> None:
    source = origin(spark, server, stream)
    fill(server, stream, 1, 30)
    dest, options = place(form, tmp_path / "a")
    archive(spark, source, dest, form=form, token=1, storage_options=options)
    table = open_archive(dest, storage_options=options)
    frame = archived(spark, table, table.current())
    assert sorted(p.name for p in tmp_path.rglob("token_1=*")) == [f"token_1={n}" for n in range(3)]

    def rows(frame: DataFrame) -> list[Any]:
        wanted = ("stream", "subject", "seq", "timestamp", "headers", "data", "size")
        return frame.select(*wanted).orderBy("seq").collect()

    assert rows(frame) == rows(source.rows(1, 30))
    assert frame.where("token_1 = '2'").count() == 10
    assert frame.where("date = date(timestamp)").count() == 30


def test_dead_writers_files_are_unread_and_vacuumed(
    spark: SparkSession, ours: ServerUnderTest, stream: str, tmp_path: Path
) -> None:
    source = origin(spark, ours, stream)
    fill(ours, stream, 1, 20)

    class Died(Exception):
        pass

    def dies(done: int, total: int) -> None:
        raise Died

    with pytest.raises(Died):  # behind the first commit
        archive(spark, source, str(tmp_path), sequences_per_commit=10, progress=dies)
    (tmp_path / "data" / "date=2026-01-01").mkdir(parents=True)
    (tmp_path / "data" / "date=2026-01-01" / "left.parquet").write_bytes(b"half")
    archive(spark, source, str(tmp_path), sequences_per_commit=10)
    assert held(spark, tmp_path) == messages(1, 20)
    table = open_archive(str(tmp_path))
    assert table.vacuum(grace=-1) == 1
    assert held(spark, tmp_path) == messages(1, 20)


@pytest.mark.parametrize("form", FORMS)
def test_of_two_writers_one_commits(
    spark: SparkSession, ours: ServerUnderTest, stream: str, tmp_path: Path, form: str
) -> None:
    source = origin(spark, ours, stream)
    dest, options = place(form, tmp_path)
    fill(ours, stream, 1, 20)
    other = iter((True, False))

    def interrupted(done: int, total: int) -> None:
        if next(other, False):
            archive(spark, source, dest, sequences_per_commit=5, storage_options=options)

    with pytest.raises(ArchiveError, match="another writer"):
        archive(
            spark,
            source,
            dest,
            form=form,
            sequences_per_commit=10,
            progress=interrupted,
            storage_options=options,
        )
    assert held(spark, dest, options) == messages(1, 20)


def test_small_files_are_joined_and_nothing_changes(
    spark: SparkSession, ours: ServerUnderTest, stream: str, tmp_path: Path
) -> None:
    source = origin(spark, ours, stream)
    fill(ours, stream, 1, 60)
    archive(spark, source, str(tmp_path), sequences_per_commit=10, compact_bytes=0)
    table = open_archive(str(tmp_path))
    before = table.current()
    assert compact(spark, table) == 5
    after = table.current()
    assert (len(after.files), after.cursor, after.rows) == (1, before.cursor, before.rows)
    assert held(spark, tmp_path) == messages(1, 60)
    assert compact(spark, table) == 0


@pytest.mark.parametrize("form", FORMS)
def test_stream_recreated_is_refused_before_anything_is_written(
    spark: SparkSession, server: ServerUnderTest, stream: str, tmp_path: Path, form: str
) -> None:
    source = origin(spark, server, stream)
    dest, options = place(form, tmp_path)
    fill(server, stream, 1, 10)
    archive(spark, source, dest, form=form, storage_options=options)
    files = sorted(tmp_path.rglob("*.*"))
    tell(server, lambda js: js.delete_stream(stream))
    fill(server, stream, 1, 20)
    with pytest.raises(ArchiveError, match="recreated"):
        archive(spark, source, dest, storage_options=options)
    assert sorted(tmp_path.rglob("*.*")) == files
    assert held(spark, dest, options) == messages(1, 10)


@pytest.mark.parametrize("form", FORMS)
def test_messages_dropped_before_they_were_archived_are_reported(
    spark: SparkSession, ours: ServerUnderTest, stream: str, tmp_path: Path, form: str
) -> None:
    source = origin(spark, ours, stream)
    dest, options = place(form, tmp_path)
    fill(ours, stream, 1, 10, max_msgs=10)
    archive(spark, source, dest, form=form, storage_options=options)
    fill(ours, stream, 11, 40)
    with pytest.raises(ArchiveError, match="sequences 11 to 30"):
        archive(spark, source, dest, storage_options=options)
    archive(spark, source, dest, allow_loss=True, storage_options=options)
    assert held(spark, dest, options) == messages(1, 10) + messages(31, 40)
    assert open_archive(dest, storage_options=options).current().evicted == ((11, 30),)


@pytest.mark.parametrize("form", FORMS)
def test_token_with_too_many_values_is_refused(
    spark: SparkSession, ours: ServerUnderTest, stream: str, tmp_path: Path, form: str
) -> None:
    source = origin(spark, ours, stream)
    dest, options = place(form, tmp_path)
    fill(ours, stream, 1, 30)
    with pytest.raises(Exception, match="token_1 has more than 2 values"):
        archive(
            spark, source, dest, form=form, token=1, token_values_max=2, storage_options=options
        )
    archive(spark, source, dest, form=form, token=1, token_values_max=3, storage_options=options)
    assert held(spark, dest, options) == messages(1, 30)


def test_delta_has_dates_statistics_and_vacuum(
    spark: SparkSession, ours: ServerUnderTest, stream: str, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    fill(ours, stream, 1, 30)
    archive(
        spark,
        origin(spark, ours, stream),
        str(tmp_path),
        form="delta",
        token=5,
        sequences_per_commit=10,
        compact_bytes=0,
    )
    table = DeltaTable(str(tmp_path))
    assert pa.schema(table.schema().to_arrow()).field("date").type == pa.date32()
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert sorted((row["min.seq"], row["max.seq"]) for row in actions) == [
        (1, 10), (11, 20), (21, 30)
    ]  # fmt: skip
    assert {row["min.subject"] for row in actions} == {f"{stream}.0.x"}
    assert all(row["min.timestamp"] <= row["max.timestamp"] for row in actions)
    assert {row["partition.token_5"] for row in actions} == {None}
    again = archive(spark, origin(spark, ours, stream), str(tmp_path), token=5, expire_days=0)
    assert (again.files_joined, again.files) == (2, 1)
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    assert held(spark, tmp_path) == messages(1, 30)
