"""The sink `jetstream`: what is stored, how often, and what is said when it cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from support.spark_sinks import Message, make_stream, stored
from support.tls import Certificates, certificates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from support.servers import ServerUnderTest, Starter

__all__ = ["certificates"]

STORE = "jetstream { store_dir: store }\n"


def numbered(spark: SparkSession, count: int, stream: str = "OUT", parts: int = 2) -> DataFrame:
    """Rows that name themselves."""
    return spark.range(0, count, 1, parts).selectExpr(
        f"concat('{stream}.', id % 3) subject",
        "cast(concat('row ', id) as binary) data",
        "concat('id-', id) msgId",
    )


def write(frame: DataFrame, server: ServerUnderTest, **options: Any) -> None:
    chosen = {"url": server.url, "stream": "OUT", **options}
    frame.write.format("jetstream").mode("append").options(**chosen).save()


def test_row_is_stored_with_its_subject_headers_and_data(
    spark: SparkSession, server: ServerUnderTest
) -> None:
    make_stream(server, "OUT")
    rows = [
        ("OUT.a", b"one", {"Kind": ["x", "y"], "Nats-Expected-Stream": ["NOT"]}, "i1"),
        ("OUT.b", None, None, "i2"),
    ]
    schema = "subject string, data binary, headers map<string,array<string>>, msgId string"
    write(spark.createDataFrame(rows, schema).coalesce(1), server)
    one, two = stored(server, "OUT")
    assert (one.subject, one.data, one.headers["Nats-Msg-Id"]) == ("OUT.a", "one", "i1")
    assert one.headers.keys() == {"Nats-Msg-Id", "Nats-Expected-Stream", "Kind"}
    assert two == Message("OUT.b", "", {"Nats-Msg-Id": "i2", "Nats-Expected-Stream": "OUT"})


def test_rows_of_partition_keep_their_order(spark: SparkSession, server: ServerUnderTest) -> None:
    make_stream(server, "OUT")
    write(numbered(spark, 5000, parts=1), server)
    assert [one.data for one in stored(server, "OUT")] == [f"row {row}" for row in range(5000)]


@pytest.mark.parametrize(
    ("options", "times"),
    [
        ({"writeId": "w"}, 1),
        ({"onDuplicate": "skip"}, 1),
        ({"delivery": "strict", "writeId": "w"}, 1),
        ({"delivery": "atLeastOnce"}, 2),
    ],
)
def test_repeated_write_stores_rows_as_often_as_delivery_reports(
    spark: SparkSession, server: ServerUnderTest, options: dict[str, str], times: int
) -> None:
    make_stream(server, "OUT", allow_atomic=True)
    for _ in range(2):
        write(numbered(spark, 1500), server, **options)
    found = sorted(one.data for one in stored(server, "OUT"))
    assert found == sorted([f"row {row}" for row in range(1500)] * times)


def test_another_write_id_is_another_write(spark: SparkSession, server: ServerUnderTest) -> None:
    make_stream(server, "OUT", allow_atomic=True)
    for name in ("a", "b"):
        write(numbered(spark, 10), server, delivery="strict", writeId=name)
    assert len(stored(server, "OUT")) == 20


def test_subject_option_stands_for_every_row(spark: SparkSession, server: ServerUnderTest) -> None:
    make_stream(server, "OUT")
    write(numbered(spark, 3).drop("subject"), server, subject="OUT.all")
    assert {one.subject for one in stored(server, "OUT")} == {"OUT.all"}


def test_copy_of_stream_is_named_by_stream_sequence_and_time(
    spark: SparkSession, server: ServerUnderTest
) -> None:
    make_stream(server, "OUT")
    frame = spark.sql(
        "SELECT 'OUT.a' subject, 'x' data, 'EV' stream, seq, timestamp_micros(7 + seq) timestamp "
        "FROM range(3) t(seq)"
    )
    write(frame, server)
    found = {one.headers["Nats-Msg-Id"] for one in stored(server, "OUT")}
    assert found == {"EV:0:7:OUT.a", "EV:1:8:OUT.a", "EV:2:9:OUT.a"}


def test_ledger_keeps_one_mark_where_stream_can_roll_up(
    spark: SparkSession, server: ServerUnderTest
) -> None:
    make_stream(server, "OUT", allow_atomic=True, allow_rollup_hdrs=True, allow_msg_ttl=True)
    write(numbered(spark, 100), server, delivery="strict", writeId="w", batchRows=7)
    marks = [one for one in stored(server, "OUT", marks=True) if one.subject.startswith("ledger")]
    assert sorted(one.subject for one in marks) == ["ledger.OUT.w.0", "ledger.OUT.w.1"]
    assert {one.headers["Nats-TTL"] for one in marks} == {"never"}


def test_rows_of_repeated_strict_write_that_differ_are_noticed(
    spark: SparkSession, server: ServerUnderTest
) -> None:
    make_stream(server, "OUT", allow_atomic=True)
    write(numbered(spark, 10), server, delivery="strict", writeId="w")
    with pytest.raises(PySparkException, match="rows now come differently"):
        write(numbered(spark, 12), server, delivery="strict", writeId="w")
    assert len(stored(server, "OUT")) == 10


def test_more_partitions_than_strict_write_had_before_are_refused(
    spark: SparkSession, server: ServerUnderTest
) -> None:
    make_stream(server, "OUT", allow_atomic=True)
    write(numbered(spark, 40, parts=2), server, delivery="strict", writeId="w")
    with pytest.raises(PySparkException, match="rows now come differently"):
        write(numbered(spark, 40, parts=4), server, delivery="strict", writeId="w")


def test_fewer_partitions_than_strict_write_had_before_are_reported(
    spark: SparkSession, server: ServerUnderTest
) -> None:
    """An attempt that failed had written its third partition, which the next one does not have."""
    make_stream(server, "OUT", allow_atomic=True)
    third = numbered(spark, 40, parts=4).where("msgId BETWEEN 'id-20' AND 'id-29'")
    write(third, server, delivery="strict", writeId="w")
    with pytest.raises(PySparkException, match=r"other partitions: the 10 rows that ledger\.OUT"):
        write(numbered(spark, 40, parts=2), server, delivery="strict", writeId="w")


@pytest.mark.parametrize("delivery", ["exactlyOnce", "strict"])
def test_rows_are_written_over_tls(
    spark: SparkSession, start: Starter, certificates: Certificates, delivery: str
) -> None:
    tls = certificates.verifying("verify: true")
    server = start(STORE + tls)
    context = certificates.context(certificates.with_name)
    make_stream(server, "OUT", tls=context, allow_atomic=True)
    options = {
        "url": server.url.replace("nats://", "tls://"),
        "tlsCa": str(certificates.ca),
        "tlsCert": str(certificates.with_name.cert),
        "tlsKey": str(certificates.with_name.key),
    }
    rows = numbered(spark, 20)
    write(rows, server, delivery=delivery, writeId="w", **options)
    assert len(stored(server, "OUT", tls=context)) == 20
    unknown = {**options, "tlsCa": str(certificates.stranger.cert), "reconnectTimeoutMs": "200"}
    with pytest.raises(PySparkException, match="certificate"):
        write(rows, server, **unknown)


def test_strict_write_puts_rows_in_order_of_their_ids(
    spark: SparkSession, server: ServerUnderTest
) -> None:
    make_stream(server, "OUT", allow_atomic=True)
    frame = numbered(spark, 100, parts=1)
    write(frame, server, delivery="strict", writeId="w", batchRows=7)
    backwards = frame.orderBy("msgId", ascending=False).coalesce(1)
    write(backwards, server, delivery="strict", writeId="w", batchRows=9)
    assert len(stored(server, "OUT")) == 100


FAILURES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"stream": "NOWHERE"}, "create it first"),
    ({"duplicate_window": 10**9}, {}, "duplicate_window"),
    ({}, {"delivery": "strict", "writeId": "w"}, "allow_atomic"),
    ({"max_msg_size": 20}, {}, r"the first is row 0 of partition 0, subject .OUT\.0.: .*10054"),
    (
        {"max_msg_size": 20, "allow_atomic": True},
        {"delivery": "strict", "writeId": "w"},
        r"cannot store 10 of the rows.*takes 20",
    ),
]


@pytest.mark.parametrize(("config", "options", "told"), FAILURES)
def test_unaccepted_rows_fail_write_with_reason(
    spark: SparkSession,
    server: ServerUnderTest,
    config: dict[str, Any],
    options: dict[str, Any],
    told: str,
) -> None:
    make_stream(server, "OUT", **config)
    long = numbered(spark, 10, parts=1).selectExpr("subject", "repeat('x', 30) data", "msgId")
    with pytest.raises(PySparkException, match=told):
        write(long, server, **options)
    assert stored(server, "OUT") == []


def test_wrong_option_is_named(spark: SparkSession) -> None:
    frame = numbered(spark, 1).write.format("jetstream").mode("append")
    with pytest.raises(PySparkException, match="did you mean delivery"):
        frame.options(url="nats://127.0.0.1:1", stream="OUT", deliverry="strict").save()


def test_server_that_is_not_there_is_reported_within_patience_given(spark: SparkSession) -> None:
    frame = numbered(spark, 1).write.format("jetstream").mode("append")
    with pytest.raises(PySparkException, match=r"127\.0\.0\.1:1"):
        frame.options(url="nats://127.0.0.1:1", stream="OUT", reconnectTimeoutMs=200).save()
