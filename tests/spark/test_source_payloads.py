"""Payloads as columns, and what becomes of bad ones, on both servers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from penstock.spark.payloads.payload_codec import Encoder
from support.spark import Query, Streams, table

if TYPE_CHECKING:
    from pathlib import Path

    from nats.js import JetStreamContext
    from pyspark.sql import SparkSession

    from support.servers import ServerUnderTest

SCHEMA = "id bigint, name string"
GOOD, BAD = b'{"id": 1, "name": "a"}', b'{"id": "one"}'
AVRO = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def streams(server: ServerUnderTest) -> Streams:
    return Streams(server.url)


@pytest.fixture
def name(streams: Streams) -> str:
    found = streams.make("P")
    publish(streams, found, GOOD, BAD)
    return found


def publish(streams: Streams, name: str, *payloads: bytes) -> None:
    async def work(js: JetStreamContext) -> None:
        for payload in payloads:
            await js.publish(f"{name}.x", payload, headers={"Kind": "k"})

    streams.do(work)


def read(spark: SparkSession, server: ServerUnderTest, name: str, **more: Any) -> Any:
    return table(spark, server, name, **{"payload": "json", "payloadSchema": SCHEMA, **more})


def test_bad_record_fails_read_and_is_named(
    spark: SparkSession, server: ServerUnderTest, name: str
) -> None:
    assert read(spark, server, name, endingSeq=1).select("value.*").collect() == [(1, "a")]
    with pytest.raises(PySparkException, match=f"stream {name}, sequence 2, subject {name}.x: no"):
        read(spark, server, name).collect()


def test_bad_records_are_null_or_kept_in_columns(
    spark: SparkSession, server: ServerUnderTest, name: str
) -> None:
    rows = read(spark, server, name, badRecords="null").orderBy("seq").collect()
    assert [row.value for row in rows] == [(1, "a"), None]
    good, bad = read(spark, server, name, badRecords="column").orderBy("seq").collect()
    assert (good.bad_data, good.bad_reason) == (None, None)
    assert (bytes(bad.bad_data), bad.value, bad.size) == (BAD, None, len(BAD))
    assert "no json of the schema" in bad.bad_reason


def test_dead_letters_are_stored_once_with_reason_and_origin(
    spark: SparkSession, server: ServerUnderTest, streams: Streams, name: str
) -> None:
    graves = streams.make("D")
    options = {"badRecords": "deadletter", "badRecordsSubject": f"{graves}.bad"}
    for _ in range(2):
        assert [row.seq for row in read(spark, server, name, **options).collect()] == [1]
    (letter,) = table(spark, server, graves).collect()
    assert bytes(letter.data) == BAD
    assert letter.headers["Penstock-Sequence"] == ["2"]
    assert letter.headers["Penstock-Stream"] == [name]
    assert letter.headers["Kind"] == ["k"]
    assert "no json" in letter.headers["Penstock-Reason"][0]


def test_schema_is_found_in_bucket(
    spark: SparkSession, server: ServerUnderTest, streams: Streams
) -> None:
    name = streams.make("P")
    schema = json.dumps(AVRO).encode()
    publish(streams, name, b"\0\0\0\0\x07" + Encoder("avro", schema).encode({"id": 5}))

    async def register(js: JetStreamContext) -> None:
        bucket = await js.create_key_value(bucket=f"schemas-{name}")
        await bucket.put("order", schema)

    streams.do(register)
    more = {"payload": "avro", "payloadSchema": f"kv:schemas-{name}/order"}
    assert read(spark, server, name, **more).select("value.id").collect() == [(5,)]
    with pytest.raises(PySparkException, match="has no key other"):
        read(spark, server, name, payload="avro", payloadSchema=f"kv:schemas-{name}/other")


def test_streaming_query_decodes_as_well(
    spark: SparkSession, server: ServerUnderTest, name: str, tmp_path: Path
) -> None:
    def query(place: str, bad: str) -> Query:
        options = {"payload": "json", "payloadSchema": SCHEMA, "badRecords": bad}
        return Query(spark, tmp_path / place, server, name, **options)

    lenient = query("a", "null")
    frame = lenient.frame.selectExpr("stream", "seq", "value.name AS data")
    done = lenient.writer(frame).trigger(availableNow=True).start()
    done.awaitTermination()
    assert [row.data for row in lenient.rows()] == ["a", None]
    strict = query("b", "fail")
    frame = strict.frame.selectExpr("stream", "seq", "value.name AS data")
    with pytest.raises(StreamingQueryException, match="sequence 2"):
        strict.writer(frame).trigger(availableNow=True).start().awaitTermination()


def test_options_that_need_each_other_are_refused_alone(
    spark: SparkSession, server: ServerUnderTest, name: str
) -> None:
    for options, said in (
        ({"payload": "raw"}, "need payload"),
        ({"badRecords": "deadletter"}, "belong together"),
        ({"payload": "avro", "payloadSchema": ""}, "needs payloadSchema"),
    ):
        with pytest.raises(PySparkException, match=said):
            read(spark, server, name, **options)
