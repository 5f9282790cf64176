"""Streams as streaming tables: what a query reads over its runs, on both servers."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from penstock.spark import ProgressListener
from support.servers import until
from support.spark import QUERY_SECONDS, Query, Streams

if TYPE_CHECKING:
    from pathlib import Path

    from nats.js import JetStreamContext
    from pyspark.sql import DataFrame, SparkSession

    from support.servers import ServerUnderTest


@pytest.fixture
def streams(server: ServerUnderTest) -> Streams:
    return Streams(server.url)


@pytest.fixture
def name(streams: Streams) -> str:
    return streams.make()


def test_query_continues_where_it_was(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, name: str, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path, server, name)
    streams.fill(name, 10)
    query.run()
    streams.fill(name, 5, first=10)
    query.run()
    query.run()
    assert query.seqs() == list(range(1, 16))


def test_batches_are_as_large_as_asked_for(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, name: str, tmp_path: Path
) -> None:
    streams.fill(name, 10)
    query = Query(spark, tmp_path, server, name, maxOffsetsPerTrigger=4)
    done = query.run()
    rows = [one.numInputRows for one in done.recentProgress if one.numInputRows]
    assert rows == [4, 4, 2]
    assert query.seqs() == list(range(1, 11))


def test_trigger_of_once_reads_all_whatever_limit(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, name: str, tmp_path: Path
) -> None:
    streams.fill(name, 10)
    query = Query(spark, tmp_path, server, name, maxOffsetsPerTrigger=4)
    query.run(once=True)
    assert query.seqs() == list(range(1, 11))


def test_checkpoint_reports_which_stream_was_read_how_far(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, name: str, tmp_path: Path
) -> None:
    streams.fill(name, 3)
    query = Query(spark, tmp_path, server, name)
    query.run()
    offset = json.loads((query.checkpoint / "offsets" / "0").read_text().splitlines()[-1])
    assert offset["v"] == 1
    assert offset["streams"][name]["seq"] == 3
    assert offset["streams"][name]["created"].startswith("20")


def test_query_that_starts_at_the_end_reads_what_comes_even_while_it_is_away(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, name: str, tmp_path: Path
) -> None:
    streams.fill(name, 4)
    query = Query(spark, tmp_path, server, name, startingSeq="latest")
    query.run()
    streams.fill(name, 3, first=4)
    query.run()
    assert query.seqs() == [5, 6, 7]


def test_first_batch_that_failed_is_read_again_from_where_it_began(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, name: str, tmp_path: Path
) -> None:
    """Spark asks for the start again then, and "latest" would mean something else by now."""
    streams.fill(name, 4)
    query = Query(spark, tmp_path, server, name, startingSeq="latest")
    query.run()
    streams.fill(name, 3, first=4)
    query.run()
    # As if batch 0 had failed: it is planned, not committed.
    for path in ("commits/0", "commits/1", "offsets/1"):
        (query.checkpoint / path).unlink()
    for path in query.checkpoint.rglob(".*.crc"):
        path.unlink()
    shutil.rmtree(query.output)
    streams.fill(name, 2, first=7)
    query.run()
    assert query.seqs() == [5, 6, 7, 8, 9]


def test_failing_batch_is_replayed_with_the_same_rows(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, name: str, tmp_path: Path
) -> None:
    streams.fill(name, 4)
    seen: list[tuple[int, list[int]]] = []

    def fail_at_first(frame: DataFrame, batch: int) -> None:
        seen.append((batch, [row.seq for row in frame.orderBy("seq").collect()]))
        if len(seen) == 1:
            raise RuntimeError("the sink is down")

    def run() -> None:
        frame = Query(spark, tmp_path, server, name, startingSeq=2).frame
        writer = frame.writeStream.foreachBatch(fail_at_first).trigger(availableNow=True)
        started = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        started.awaitTermination(QUERY_SECONDS)

    with pytest.raises(StreamingQueryException, match="the sink is down"):
        run()
    streams.fill(name, 2, first=4)
    run()
    assert seen == [(0, [2, 3, 4]), (0, [2, 3, 4]), (1, [5, 6])]


def test_running_query_follows_and_reports_how_far_it_is_behind(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, name: str, tmp_path: Path
) -> None:
    listener = ProgressListener()
    spark.streams.addListener(listener)
    query = Query(spark, tmp_path, server, name)
    started = query.writer().queryName("follows").trigger(processingTime="0 seconds").start()
    try:
        for number in range(3):
            streams.fill(name, 2, first=2 * number)
            until(
                lambda number=number: _seq(listener, name) == 2 * number + 2,
                "a batch",
                QUERY_SECONDS,
            )
    finally:
        started.stop()
        spark.streams.removeListener(listener)
    lag = listener.lags["follows", name]
    assert (lag.seq, lag.latest, lag.behind) == (6, 6, 0)
    assert query.seqs() == list(range(1, 7))


def _seq(listener: ProgressListener, name: str) -> int:
    lag = listener.lags.get(("follows", name))
    return lag.seq if lag else 0


def test_stream_recreated_is_noticed(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, name: str, tmp_path: Path
) -> None:
    streams.fill(name, 5)
    query = Query(spark, tmp_path, server, name)
    query.run()
    streams.remake(name)
    streams.fill(name, 7, first=100)
    with pytest.raises(StreamingQueryException, match="was deleted and recreated"):
        query.run()
    query.options["failOnDataLoss"] = False
    query.run()
    data = sorted(int(row.data) for row in query.rows())
    assert data == [*range(5), *range(100, 107)]


def test_bucket_shows_how_far_query_has_read(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, name: str, tmp_path: Path
) -> None:
    bucket = f"cursors-{name}"
    streams.do(lambda js: js.create_key_value(bucket=bucket))
    streams.fill(name, 10)
    limits = {"maxOffsetsPerTrigger": 4, "cursorBucket": bucket, "cursorKey": "q.a"}
    done = Query(spark, tmp_path, server, name, **limits).run()

    async def shown(js: JetStreamContext) -> bytes:
        entry = await (await js.key_value(bucket)).get("q.a")
        return entry.value or b""

    cursor = json.loads(streams.do(shown))["streams"][name]
    assert (cursor["seq"], cursor["messages"]) == (8, 2)
    assert cursor["seconds"] > 0
    latest = json.loads(done.recentProgress[0].sources[0].latestOffset)
    assert latest["lag"][name]["messages"] == 6


def test_bucket_that_is_not_there_fails_no_query(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, name: str, tmp_path: Path
) -> None:
    streams.fill(name, 10)
    query = Query(spark, tmp_path, server, name, maxOffsetsPerTrigger=4, cursorBucket="nosuch")
    query.run()
    assert query.seqs() == list(range(1, 11))


def test_stream_that_leaves_list_and_comes_back_keeps_its_cursor(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, name: str, tmp_path: Path
) -> None:
    other = streams.make()
    streams.fill(name, 3)
    streams.fill(other, 3)
    for listed, more in ((f"{name},{other}", 3), (name, 6), (f"{name},{other}", 9)):
        Query(spark, tmp_path, server, listed).run()
        for stream in (name, other):
            streams.fill(stream, 3, first=more)
    query = Query(spark, tmp_path, server, f"{name},{other}")
    query.run()
    expected = sorted((stream, seq) for stream in (name, other) for seq in range(1, 13))
    assert [(row.stream, row.seq) for row in query.rows()] == expected
