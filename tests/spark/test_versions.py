"""What every supported version of Spark does: run with each by `make spark-matrix`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from penstock.spark.compat import HAS_LIMITS, HAS_STREAM_SINKS
from support.spark import Query, Streams, seqs, table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from support.servers import ServerUnderTest

pytestmark = pytest.mark.every_spark


@pytest.fixture
def streams(server: ServerUnderTest) -> Streams:
    return Streams(server.url)


@pytest.fixture
def name(streams: Streams) -> str:
    found = streams.make("V")
    streams.fill(found, 20)
    return found


def test_table_is_read_in_partitions_with_filters(
    spark: SparkSession, server: ServerUnderTest, name: str
) -> None:
    frame = table(spark, server, name, minPartitions=4)
    assert seqs(frame.collect()) == list(range(1, 21))
    assert seqs(frame.filter(f"seq > 4 AND subject = '{name}.1'").collect()) == [
        5,
        8,
        11,
        14,
        17,
        20,
    ]


def test_payloads_are_decoded(spark: SparkSession, server: ServerUnderTest, name: str) -> None:
    rows = table(spark, server, name, payload="text").filter("seq = 3").collect()
    assert [row.value for row in rows] == ["2"]


def test_query_continues_where_it_was(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, name: str, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path, server, name)
    for first in (20, 25, 30):
        query.run()
        streams.fill(name, 5, first=first)
    query.run()
    assert query.seqs() == list(range(1, 36))


def test_latest_begins_with_what_comes_after(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, name: str, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path, server, name, startingSeq="latest")
    query.run()
    streams.fill(name, 5, first=20)
    query.run()
    assert query.seqs() == [21, 22, 23, 24, 25]


def test_stream_created_again_fails_query(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, name: str, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path, server, name)
    query.run()
    streams.remake(name)
    streams.fill(name, 30)
    with pytest.raises(PySparkException, match="was deleted and recreated"):
        query.run()


@pytest.mark.skipif(HAS_LIMITS, reason="this version of Spark has limits")
def test_limits_are_refused_where_spark_has_none(
    spark: SparkSession, server: ServerUnderTest, name: str, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match=r"maxOffsetsPerTrigger needs Spark 4\.2"):
        Query(spark, tmp_path, server, name, maxOffsetsPerTrigger=4).run()


def test_rows_are_written(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, name: str, tmp_path: Path
) -> None:
    target = streams.make("W")
    rows = table(spark, server, name).selectExpr(f"'{target}.x' AS subject", "data")
    options = {"url": server.url, "stream": target, "delivery": "atLeastOnce"}
    rows.write.format("jetstream").options(**options).mode("append").save()
    assert streams.state(target).messages == 20
    following = spark.readStream.format("jetstream").options(url=server.url).load(name)
    writer = (
        following.selectExpr(f"'{target}.y' AS subject", "data")
        .writeStream.format("jetstream")
        .options(**options, checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
    )
    if HAS_STREAM_SINKS:
        writer.start().awaitTermination()
        assert streams.state(target).messages == 40
    else:
        with pytest.raises(PySparkException, match=r"streaming sinks need Spark 4\.1"):
            writer.start().awaitTermination()


@pytest.mark.parametrize("what", ["TABLE", "TEMPORARY VIEW"])
def test_sql_creates_table_over_stream(
    spark: SparkSession, server: ServerUnderTest, name: str, what: str
) -> None:
    over = f"over_{name}"
    options = f"url '{server.url}', stream '{name}'"
    spark.sql(f"CREATE {what} {over} USING jetstream OPTIONS ({options})")
    try:
        assert spark.sql(f"SELECT count(*) FROM {over} WHERE seq > 5").collect() == [(15,)]
    finally:
        spark.sql(f"DROP {what.split()[-1]} {over}")
