"""The archive job: every message once, however it is stopped; damage and loss are never silent."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.jobs import ArchiveError, ServerOrigin, archive, archived, open_archive
from penstock.spark.jobs.compaction import compact
from support_pipelines import fill, tell, url_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from support_servers import ServerUnderTest

FORMS = ("parquet", "delta")
names = (f"ARC{n}" for n in itertools.count())


@pytest.fixture
def stream() -> str:
    return next(names)


def origin(spark: SparkSession, server: ServerUnderTest, stream: str) -> ServerOrigin:
    return ServerOrigin(spark, stream, {"url": url_of(server)})


def held(spark: SparkSession, dest: Path) -> list[tuple[int, bytes]]:
    """What an archive holds, by sequence; a message that is there twice shows."""
    table = open_archive(str(dest))
    rows = archived(spark, table, table.current()).select("seq", "data").orderBy("seq").collect()
    return [(row.seq, bytes(row.data)) for row in rows]


def messages(first: int, last: int) -> list[tuple[int, bytes]]:
    return [(n, b"message %d" % n) for n in range(first, last + 1)]


@pytest.mark.parametrize("form", FORMS)
def test_runs_go_on_where_the_last_one_ended(
    spark: SparkSession, server: ServerUnderTest, stream: str, tmp_path: Path, form: str
) -> None:
    source = origin(spark, server, stream)
    fill(server, stream, 1, 250)
    first = archive(
        spark, source, str(tmp_path / "a"), form=form, sequences_per_commit=100, compact_bytes=0
    )
    assert (first.rows_added, first.commits, first.cursor, first.form) == (250, 3, 250, form)
    fill(server, stream, 251, 300)
    second = archive(spark, source, str(tmp_path / "a"))
    assert (second.rows_added, second.cursor) == (50, 300)
    assert second.files_joined > 0
    assert archive(spark, source, str(tmp_path / "a")).rows_added == 0
    assert held(spark, tmp_path / "a") == messages(1, 300)


@pytest.mark.parametrize("form", FORMS)
def test_all_columns_come_back_and_partitions_are_directories(
    spark: SparkSession, server: ServerUnderTest, stream: str, tmp_path: Path, form: str
) -> None:
    source = origin(spark, server, stream)
    fill(server, stream, 1, 30)
    archive(spark, source, str(tmp_path / "a"), form=form, token=1)
    table = open_archive(str(tmp_path / "a"))
    frame = archived(spark, table, table.current())
    assert sorted(p.name for p in tmp_path.rglob("token_1=*")) == [f"token_1={n}" for n in range(3)]

    def rows(frame: DataFrame) -> list[Any]:
        wanted = ("stream", "subject", "seq", "timestamp", "headers", "data", "size")
        return frame.select(*wanted).orderBy("seq").collect()

    assert rows(frame) == rows(source.rows(1, 30))
    assert frame.where("token_1 = '2'").count() == 10
    assert frame.where("date = date(timestamp)").count() == 30


def test_a_writer_that_died_leaves_files_nobody_reads_and_vacuum_takes_them(
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


def test_of_two_writers_one_commits(
    spark: SparkSession, ours: ServerUnderTest, stream: str, tmp_path: Path
) -> None:
    source = origin(spark, ours, stream)
    fill(ours, stream, 1, 20)
    other = iter((True, False))

    def interrupted(done: int, total: int) -> None:
        if next(other, False):
            archive(spark, source, str(tmp_path), sequences_per_commit=5)

    with pytest.raises(ArchiveError, match="another writer"):
        archive(spark, source, str(tmp_path), sequences_per_commit=10, progress=interrupted)
    assert held(spark, tmp_path) == messages(1, 20)


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


def test_a_stream_made_anew_is_refused(
    spark: SparkSession, ours: ServerUnderTest, stream: str, tmp_path: Path
) -> None:
    source = origin(spark, ours, stream)
    fill(ours, stream, 1, 10)
    archive(spark, source, str(tmp_path))
    tell(ours, lambda js: js.delete_stream(stream))
    fill(ours, stream, 1, 20)
    with pytest.raises(ArchiveError, match="made anew"):
        archive(spark, source, str(tmp_path))
    assert held(spark, tmp_path) == messages(1, 10)


@pytest.mark.parametrize("form", FORMS)
def test_messages_dropped_before_they_were_archived_are_told(
    spark: SparkSession, ours: ServerUnderTest, stream: str, tmp_path: Path, form: str
) -> None:
    source = origin(spark, ours, stream)
    fill(ours, stream, 1, 10, max_msgs=10)
    archive(spark, source, str(tmp_path), form=form)
    fill(ours, stream, 11, 40)
    with pytest.raises(ArchiveError, match="sequences 11 to 30"):
        archive(spark, source, str(tmp_path))
    archive(spark, source, str(tmp_path), allow_loss=True)
    assert held(spark, tmp_path) == messages(1, 10) + messages(31, 40)
    assert open_archive(str(tmp_path)).current().evicted == ((11, 30),)
