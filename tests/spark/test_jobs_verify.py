"""Replay, verify, profile: an archive goes back once, differences are found, flows are measured."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from penstock.spark.jobs import (
    MessageSelection,
    ServerOrigin,
    archive,
    draw,
    fold,
    open_archive,
    profile,
    replay,
    verify,
)
from penstock.spark.jobs.parquet_writer import FileLayout, written
from support.pipelines import fill, tell, url_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from support.servers import ServerUnderTest

names = (f"VER{n}" for n in itertools.count())
WINDOW_SECONDS = 600


@pytest.fixture
def stream() -> str:
    return next(names)


def origin(spark: SparkSession, server: ServerUnderTest, stream: str) -> ServerOrigin:
    return ServerOrigin(spark, stream, {"url": url_of(server)})


def test_replay_stores_each_message_once_however_often_it_is_run(
    spark: SparkSession, server: ServerUnderTest, stream: str, tmp_path: Path
) -> None:
    fill(server, stream, 1, 60)
    archive(spark, origin(spark, server, stream), str(tmp_path))
    target = f"{stream}COPY"
    tell(
        server,
        lambda js: js.add_stream(
            name=target, subjects=[f"{target}.>"], duplicate_window=WINDOW_SECONDS
        ),
    )
    chosen = MessageSelection(first=11, subjects=(f"{stream}.0.>", f"{stream}.1.*"))
    for number in range(2):
        told = replay(
            spark, str(tmp_path), target, {"url": url_of(server)},
            selection=chosen, rename=(f"{stream}.", f"{target}."),
        )  # fmt: skip
        assert told.rows == len([n for n in range(11, 61) if n % 3 != 2])
        assert (told.stored, told.repeated) == ((0, told.rows) if number else (told.rows, 0))
    rows = origin(spark, server, target).rows(1, told.rows).orderBy("seq").collect()
    assert tell(server, lambda js: js.stream_info(target)).state.messages == told.rows
    expected = [b"message %d" % n for n in range(11, 61) if n % 3 != 2]
    assert [bytes(row.data) for row in rows] == expected
    assert {row.subject for row in rows} == {f"{target}.0.x", f"{target}.1.x"}
    assert rows[-1].headers["N"] == ["60"]


def test_verify_passes_sound_copies_and_names_differences(
    spark: SparkSession, server: ServerUnderTest, stream: str, tmp_path: Path
) -> None:
    fill(server, stream, 1, 50)
    source = origin(spark, server, stream)
    archive(spark, source, str(tmp_path))
    tell(server, lambda js: js.delete_msg(stream, 7))
    told = verify(spark, origin=source, archive=str(tmp_path))
    assert told.is_well
    table = open_archive(str(tmp_path))
    base = table.current()
    layout = FileLayout(table.storage, table.data, base.partition_by)
    batch = source.rows(20, 21).toArrow().to_batches()[0]
    table.commit(base, list(written(layout, [batch])))  # 20 and 21 are there twice now
    told = verify(spark, origin=source, archive=str(tmp_path))
    assert not told.is_well
    assert {check.what: check.found for check in told.checks if not check.is_well}[
        "archive: rows that are there twice"
    ] == 2


def test_messages_that_are_not_in_archive_are_named(
    spark: SparkSession, ours: ServerUnderTest, stream: str, tmp_path: Path
) -> None:
    fill(ours, stream, 1, 30)
    source = origin(spark, ours, stream)
    archive(spark, source, str(tmp_path), sequences_per_commit=10, compact_bytes=0)
    table = open_archive(str(tmp_path))
    base = table.current()
    table.commit(base, [], [base.files[1].path])
    told = verify(spark, origin=source, archive=str(tmp_path))
    bad = [check for check in told.checks if not check.is_well]
    assert [(check.what, check.found) for check in bad] == [
        ("stream and archive: not archived", 10)
    ]
    assert "11, 12, 13" in bad[0].detail


def test_archive_and_stream_without_common_message_do_not_pass(
    spark: SparkSession, server: ServerUnderTest, stream: str, tmp_path: Path
) -> None:
    fill(server, stream, 1, 20)
    source = origin(spark, server, stream)
    archive(spark, source, str(tmp_path))
    assert verify(spark, origin=source, archive=str(tmp_path)).is_well
    tell(server, lambda js: js.purge_stream(stream))
    fill(server, stream, 21, 30)
    report = verify(spark, origin=source, archive=str(tmp_path))
    (bad,) = [check for check in report.checks if not check.is_well]
    assert bad.what == "stream and archive: messages"
    assert "no sequence from 21 to 20: there is nothing to compare" in bad.detail


def test_folds_without_any_key_do_not_pass(
    spark: SparkSession, server: ServerUnderTest, stream: str, tmp_path: Path
) -> None:
    """Neither the bucket nor its folds have a key, so nothing was compared."""
    name, subject = f"KV_{stream}", f"$KV.{stream}.k"
    tell(server, lambda js: js.add_stream(name=name, subjects=[f"$KV.{stream}.>"]))
    tell(server, lambda js: js.publish(subject, b"", headers={"KV-Operation": "DEL"}))
    source = origin(spark, server, name)
    fold(spark, source, stream, str(tmp_path), shards=2)
    report = verify(spark, origin=source, folds=str(tmp_path), bucket=stream)
    (bad,) = [check for check in report.checks if not check.is_well]
    assert bad.what == "folds: keys compared"


def test_lost_file_is_named(
    spark: SparkSession, ours: ServerUnderTest, stream: str, tmp_path: Path
) -> None:
    fill(ours, stream, 1, 30)
    archive(spark, origin(spark, ours, stream), str(tmp_path))
    table = open_archive(str(tmp_path))
    file = tmp_path / table.current().files[0].path
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(Exception, match=r"parquet|Parquet"):
        verify(spark, archive=str(tmp_path))


def test_profile_counts_what_there_is_and_draws_it(
    spark: SparkSession, ours: ServerUnderTest, stream: str, tmp_path: Path
) -> None:
    fill(ours, stream, 1, 90)
    rows = origin(spark, ours, stream).rows(1, 90)
    found = profile(rows, interval="1 minute", depth=2, top=2)
    assert (found.messages, found.subjects) == (90, 3)
    assert found.bytes == sum(len(b"message %d" % n) for n in range(1, 91))
    assert [(one.messages, one.distinct) for one in found.shares] == [(30, 1), (30, 1)]
    assert sum(one.messages for one in found.timeline) == 90
    assert found.size_max == len(b"message 90")
    for name, magic in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml")):
        draw(found, tmp_path / name, title=stream)
        assert (tmp_path / name).read_bytes().startswith(magic)
