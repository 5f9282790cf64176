"""Streams as tables, on both servers."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from nats.js.api import RetentionPolicy
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from support.spark import Streams, seqs, table

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from pyspark.sql import SparkSession

    from support.servers import ServerUnderTest

COUNT = 30


@pytest.fixture
def streams(server: ServerUnderTest) -> Streams:
    return Streams(server.url)


@pytest.fixture
def filled(streams: Streams) -> str:
    name = streams.make()
    streams.fill(name, COUNT)
    return name


def test_table_has_every_message_as_it_was_published(
    spark: SparkSession, server: ServerUnderTest, streams: Streams
) -> None:
    name = streams.make()
    streams.fill(name, 1)
    streams.fill(name, 1, first=1, headers={"Kind": "odd", "Nats-Msg-Id": "x"})
    one, two = table(spark, server, name).orderBy("seq").collect()
    assert (one.stream, one.subject, one.seq, bytes(one.data), one.size) == (
        name,
        f"{name}.0",
        1,
        b"0",
        1,
    )
    assert one.headers is None
    assert two.headers == {"Kind": ["odd"], "Nats-Msg-Id": ["x"]}
    assert one.timestamp <= two.timestamp


def test_partitions_tile_table(spark: SparkSession, server: ServerUnderTest, filled: str) -> None:
    frame = table(spark, server, filled, maxRecordsPerPartition=7)
    assert frame.rdd.getNumPartitions() == 5
    assert seqs(frame.collect()) == list(range(1, COUNT + 1))
    assert table(spark, server, filled, minPartitions=3).rdd.getNumPartitions() == 3


def test_only_columns_of_schema_are_there(
    spark: SparkSession, server: ServerUnderTest, filled: str
) -> None:
    reading = spark.read.format("jetstream").options(url=server.url, stream=filled)
    rows = reading.schema("seq bigint, subject string").load().collect()
    assert rows[0].asDict() == {"seq": 1, "subject": f"{filled}.0"}
    with pytest.raises(PySparkException, match="there is no column sequence"):
        reading.schema("sequence bigint").load().collect()
    with pytest.raises(PySparkException, match="column data is binary, not string: cast it"):
        reading.schema("data string").load().collect()


def test_places_choose_sequences(spark: SparkSession, server: ServerUnderTest, filled: str) -> None:
    cases: list[tuple[dict[str, object], range]] = [
        ({"startingSeq": 10, "endingSeq": 12}, range(10, 13)),
        ({"startingSeq": "latest"}, range(0)),
        ({"startingSeq": json.dumps({filled: 29})}, range(29, 31)),
        ({"endingSeq": "earliest"}, range(0)),
        ({"startingSeq": 28, "endingSeq": 999}, range(28, 31)),
    ]
    for options, wanted in cases:
        assert seqs(table(spark, server, filled, **options).collect()) == list(wanted), options


def test_times_choose_sequences(spark: SparkSession, server: ServerUnderTest, filled: str) -> None:
    times = [row.timestamp for row in table(spark, server, filled).orderBy("seq").collect()]
    after = (times[9] + timedelta(microseconds=1)).isoformat()
    late = (times[-1] + timedelta(days=1)).isoformat()
    since = seqs(table(spark, server, filled, startingTimestamp=after).collect())
    until = seqs(table(spark, server, filled, endingTimestamp=after).collect())
    assert since + until == [*range(11, COUNT + 1), *range(1, 11)]
    assert table(spark, server, filled, startingTimestamp=late).count() == 0
    assert table(spark, server, filled, endingTimestamp=late).count() == COUNT


def test_filters_are_servers(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, filled: str
) -> None:
    frame = table(spark, server, filled, subjects=f"{filled}.0, {filled}.2")
    assert {row.subject for row in frame.collect()} == {f"{filled}.0", f"{filled}.2"}
    assert table(spark, server, filled, subjects=f"{filled}.none").count() == 0
    assert streams.consumers(filled) == 0


def test_several_streams_are_one_table(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, filled: str
) -> None:
    other = streams.make()
    streams.fill(other, 4)
    frame = table(spark, server, f"{filled},{other}")
    found = {row.stream: row["count"] for row in frame.groupBy("stream").count().collect()}
    assert found == {filled: COUNT, other: 4}


def test_range_that_ends_in_deleted_messages_ends(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, filled: str
) -> None:
    streams.delete(filled, [5, 9, 10, 29, 30])
    wanted = [seq for seq in range(1, 29) if seq not in (5, 9, 10)]
    assert seqs(table(spark, server, filled, maxRecordsPerPartition=10).collect()) == wanted


@pytest.mark.parametrize("retention", [RetentionPolicy.WORK_QUEUE, RetentionPolicy.INTEREST])
def test_reading_work_queue_consumes_nothing(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, retention: RetentionPolicy
) -> None:
    for allow_direct in (True, False):
        name = streams.make(retention=retention, allow_direct=allow_direct)
        if retention is RetentionPolicy.INTEREST:
            streams.do(lambda js, name=name: js.add_consumer(name, durable_name="keeps"))
        streams.fill(name, 9)
        assert seqs(table(spark, server, name).collect()) == list(range(1, 10))
        assert streams.state(name).messages == 9


def test_direct_mode_reads_the_same(
    spark: SparkSession, server: ServerUnderTest, streams: Streams
) -> None:
    name = streams.make(allow_direct=True)
    streams.fill(name, COUNT, headers={"A": "b"})
    options = {"subjects": f"{name}.1,{name}.2", "startingSeq": 4}
    wanted = table(spark, server, name, **options).orderBy("seq").collect()
    assert table(spark, server, name, readMode="direct", **options).orderBy("seq").collect() == (
        wanted
    )


def test_filtered_rows_are_not_read(
    spark: SparkSession, server: ServerUnderTest, filled: str
) -> None:
    frame = table(spark, server, filled, maxRecordsPerPartition=5)
    late = frame.filter(F.col("seq") > 27)
    assert late.rdd.getNumPartitions() == 1
    assert seqs(late.collect()) == [28, 29, 30]
    one = frame.filter((F.col("subject") == f"{filled}.1") & (F.col("seq") <= 9))
    assert seqs(one.collect()) == [2, 5, 8]
    time = frame.filter("seq = 10").first()
    assert time is not None
    since = frame.filter(F.col("timestamp") >= F.lit(time.timestamp))
    assert seqs(since.collect())[-1] == COUNT
    assert 10 in seqs(since.collect())


def test_pushing_filters_may_be_switched_off(
    spark: SparkSession, server: ServerUnderTest, filled: str
) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", False)
    try:
        assert seqs(table(spark, server, filled).filter("seq > 28").collect()) == [29, 30]
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", True)


def test_view_in_sql_reads_stream(
    spark: SparkSession, server: ServerUnderTest, filled: str
) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW messages USING jetstream "
        f"OPTIONS (url '{server.url}', stream '{filled}')"
    )
    (row,) = spark.sql("SELECT count(*) AS n, max(seq) AS last FROM messages").collect()
    assert (row.n, row["last"]) == (COUNT, COUNT)


def test_fault_is_named_in_error_of_spark(spark: SparkSession, server: ServerUnderTest) -> None:
    with pytest.raises(PySparkException, match="there is no stream NONE in this account"):
        table(spark, server, "NONE").collect()
    with pytest.raises(PySparkException, match="did you mean startingSeq"):
        table(spark, server, "NONE", startingSequence=5)


def test_no_secret_is_in_plan(spark: SparkSession, server: ServerUnderTest, filled: str) -> None:
    frame = table(spark, server, filled, user="bob", password="hush-hush")
    frame.createOrReplaceTempView("secretive")
    for shown in (frame, spark.sql("SELECT seq FROM secretive WHERE seq > 3")):
        assert "hush" not in shown._jdf.queryExecution().toString()


@pytest.mark.parametrize("size", [4, 2000])
def test_columns_without_data_are_the_same_without_payloads(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, size: int
) -> None:
    """Of large messages only the headers travel, and nothing of that shows in the rows."""
    name = streams.make()

    async def publish(js: JetStreamContext) -> None:
        await js.publish(f"{name}.a", bytes(size))
        await js.publish(f"{name}.a", bytes(size + 1), headers={"Kind": "odd"})

    streams.do(publish)
    columns = "seq bigint, size int, headers map<string, array<string>>"
    reading = spark.read.format("jetstream").options(url=server.url).schema(columns)
    rows = [(row.seq, row.size, row.headers) for row in reading.load(name).collect()]
    assert rows == [(1, size, None), (2, size + 1, {"Kind": ["odd"]})]
    assert reading.load(name).count() == 2


def test_plan_shows_what_was_pushed_down(
    spark: SparkSession, server: ServerUnderTest, filled: str, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = table(spark, server, filled)
    wanted = frame.filter(f"seq > 4 AND subject = '{filled}.1' AND size > 0")
    wanted.explain(mode="formatted")
    plan = capsys.readouterr().out
    scan = next(line for line in plan.splitlines() if line.startswith("PushedFilters"))
    assert "GreaterThan(seq,4)" in scan
    assert f"EqualTo(subject,{filled}.1)" in scan
    assert "size" not in scan
    assert seqs(wanted.collect()) == [seq for seq in range(5, COUNT + 1) if seq % 3 == 2]
