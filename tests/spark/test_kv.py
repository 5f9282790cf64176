"""The format `jetstream-kv`: buckets as tables and feeds, and rows as changes of keys."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from support.spark_sinks import Message, call, make_stream, stored, with_client

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client
    from pyspark.sql import DataFrame, Row, SparkSession

    from support.servers import ServerUnderTest

FORMAT = "jetstream-kv"
WRITE = "key string, value string, op string, rev bigint, ttl bigint"
_numbers = itertools.count(1)


@pytest.fixture
def bucket(server: ServerUnderTest) -> str:
    """A new bucket that keeps three revisions, and times to live."""
    name = f"b{next(_numbers)}"
    config = {
        "name": f"KV_{name}",
        "subjects": [f"$KV.{name}.>"],
        "max_msgs_per_subject": 3,
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        "allow_msg_ttl": True,
        "discard": "new",
    }
    call(server, f"STREAM.CREATE.KV_{name}", config)
    return name


def apply(server: ServerUnderTest, bucket: str, *changes: tuple[str, str | None]) -> None:
    """Puts, and deletes where the value is None, by nats-py."""

    async def work(client: Client) -> None:
        kv = await client.jetstream().key_value(bucket)
        for key, value in changes:
            if value is None:
                await kv.delete(key)
            else:
                await kv.put(key, value.encode())

    with_client(server, work)


def records(server: ServerUnderTest, bucket: str) -> list[Message]:
    return stored(server, f"KV_{bucket}")


def values(server: ServerUnderTest, bucket: str) -> list[tuple[str, str]]:
    """Keys and values of records, in their order."""
    prefix = len(f"$KV.{bucket}.")
    return [(one.subject[prefix:], one.data) for one in records(server, bucket)]


def read(spark: SparkSession, server: ServerUnderTest, bucket: str, **options: Any) -> list[Row]:
    frame = spark.read.format(FORMAT).options(url=server.url, **options).load(bucket)
    return frame.orderBy("revision").collect()


def write(frame: DataFrame, server: ServerUnderTest, bucket: str, **options: Any) -> None:
    chosen = {"url": server.url, "bucket": bucket, **options}
    frame.coalesce(1).write.format(FORMAT).mode("append").options(**chosen).save()


def rows(spark: SparkSession, *changes: tuple[Any, ...]) -> DataFrame:
    """Rows with as many columns as the first has."""
    names = ", ".join(WRITE.split(", ")[: len(changes[0])])
    return spark.createDataFrame(changes, names)


# -- reading


def test_bucket_is_table_of_its_newest_values(
    spark: SparkSession, server: ServerUnderTest, bucket: str
) -> None:
    apply(server, bucket, ("a", "1"), ("b.x", "2"), ("a", "3"), ("c", "4"), ("c", None))
    found = read(spark, server, bucket)
    assert [(row.key, bytes(row.value), row.op, row.revision) for row in found] == [
        ("b.x", b"2", "put", 2),
        ("a", b"3", "put", 3),
    ]
    assert found[0].created is not None


def test_deleted_keys_are_rows_without_value_if_asked_for(
    spark: SparkSession, server: ServerUnderTest, bucket: str
) -> None:
    apply(server, bucket, ("a", "1"), ("a", None))
    (row,) = read(spark, server, bucket, includeDeletes=True)
    assert (row.key, row.value, row.op) == ("a", None, "delete")


def test_history_is_every_revision_that_is_kept(
    spark: SparkSession, server: ServerUnderTest, bucket: str
) -> None:
    apply(server, bucket, *[("a", f"{number}") for number in range(5)], ("b", "x"), ("b", None))
    found = read(spark, server, bucket, history=True)
    assert [(row.key, row.op, row.revision) for row in found] == [
        ("a", "put", 3),
        ("a", "put", 4),
        ("a", "put", 5),
        ("b", "put", 6),
        ("b", "delete", 7),
    ]


@pytest.mark.parametrize(
    ("prefixes", "keys", "history"),
    [
        ("users.2", {"users.20"}, False),
        ("users.,z", {"users.1", "users.20", "zoo"}, False),
        ("users.2,z", {"users.20", "zoo"}, True),
    ],
)
def test_prefixes_choose_keys(
    spark: SparkSession,
    server: ServerUnderTest,
    bucket: str,
    prefixes: str,
    keys: set[str],
    history: bool,
) -> None:
    every = ("users.1", "users.20", "umbrella", "zoo")
    apply(server, bucket, *[(key, key) for key in every])
    found = read(spark, server, bucket, keyPrefixes=prefixes, history=history)
    assert {row.key for row in found} == keys
    assert len(found) == len(keys)


def test_narrower_schema_is_honoured(
    spark: SparkSession, server: ServerUnderTest, bucket: str
) -> None:
    apply(server, bucket, ("a", "1"))
    reading = spark.read.format(FORMAT).schema("revision bigint, key string")
    found = reading.options(url=server.url, bucket=bucket).load().collect()
    assert [tuple(row) for row in found] == [(1, "a")]


def test_feed_reports_every_change_once_over_restarts(
    spark: SparkSession, server: ServerUnderTest, bucket: str, tmp_path: Path
) -> None:
    def run() -> None:
        feed = spark.readStream.format(FORMAT).options(url=server.url, maxOffsetsPerTrigger=2)
        (
            feed.load(bucket)
            .selectExpr("key", "cast(value as string) value", "op", "revision")
            .writeStream.format("json")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    apply(server, bucket, ("a", "1"), ("b", "2"), ("a", None))
    run()
    apply(server, bucket, ("a", "3"), ("b", None))
    run()
    schema = "key string, value string, op string, revision bigint"
    found = spark.read.schema(schema).json(str(tmp_path / "out")).orderBy("revision").collect()
    assert [tuple(row) for row in found] == [
        ("a", "1", "put", 1),
        ("b", "2", "put", 2),
        ("a", None, "delete", 3),
        ("a", "3", "put", 4),
        ("b", None, "delete", 5),
    ]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "there is no stream KV_nowhere"),
        ({"subjects": "x"}, "keyPrefixes"),
        ({"keyPrefix": "x"}, "did you mean keyPrefixes"),
    ],
)
def test_wrong_reading_is_reported(
    spark: SparkSession, server: ServerUnderTest, options: dict[str, str], told: str
) -> None:
    with pytest.raises(PySparkException, match=told):
        read(spark, server, "nowhere", **options)


# -- writing


def test_rows_of_key_are_applied_in_their_order(
    spark: SparkSession, server: ServerUnderTest, bucket: str
) -> None:
    changes = [
        ("a", "1", None),
        ("b", "2", "put"),
        ("a", "3", "put"),
        ("a", None, "delete"),
        ("b", None, "purge"),
    ]
    write(rows(spark, *changes), server, bucket)
    found = records(server, bucket)
    assert [(one.subject[-1], one.data) for one in found if one.subject.endswith("a")] == [
        ("a", "1"),
        ("a", "3"),
        ("a", ""),
    ]
    (purged,) = [one for one in found if one.subject.endswith("b")]
    assert (purged.headers["KV-Operation"], purged.headers["Nats-Rollup"]) == ("PURGE", "sub")


def test_only_the_last_row_of_key_is_written_if_asked_for(
    spark: SparkSession, server: ServerUnderTest, bucket: str
) -> None:
    write(rows(spark, ("a", "1"), ("b", "2"), ("a", "3")), server, bucket, latestPerKey=True)
    assert values(server, bucket) == [("b", "2"), ("a", "3")]


def test_repeated_write_with_ids_changes_nothing(
    spark: SparkSession, server: ServerUnderTest, bucket: str
) -> None:
    frame = rows(spark, ("a", "1"), ("a", "2")).selectExpr("*", "value msgId")
    for _ in range(2):
        write(frame, server, bucket, writeId="w")
    assert values(server, bucket) == [("a", "1"), ("a", "2")]
    with pytest.raises(PySparkException, match=r"key 'a' .* message id '1'"):
        write(frame, server, bucket)


def test_row_is_written_only_if_its_key_has_revision(
    spark: SparkSession, server: ServerUnderTest, bucket: str
) -> None:
    apply(server, bucket, ("a", "1"), ("b", "2"))
    changes = [
        ("a", "new", None, 1),
        ("b", "stale", None, 1),
        ("c", "made", None, 0),
        ("b", "any", None, None),
    ]
    write(rows(spark, *changes), server, bucket, revisionColumn="rev", onConflict="skip")
    expected = [("a", "1"), ("b", "2"), ("a", "new"), ("c", "made"), ("b", "any")]
    assert values(server, bucket) == expected


def test_conflict_fails_write_and_names_key(
    spark: SparkSession, server: ServerUnderTest, bucket: str
) -> None:
    apply(server, bucket, ("a", "1"))
    with pytest.raises(PySparkException, match="another revision than their rows say: a"):
        write(rows(spark, ("a", "new", None, 7)), server, bucket, revisionColumn="rev")


def test_conflict_is_reported_once_however_often_write_is_repeated(
    spark: SparkSession, server: ServerUnderTest, bucket: str
) -> None:
    make_stream(server, "CONFLICTS")
    apply(server, bucket, ("a", "1"))
    options = {
        "revisionColumn": "rev",
        "onConflict": "report",
        "conflictSubject": "CONFLICTS.all",
    }
    for _ in range(2):
        write(rows(spark, ("a", "lost", None, 7)), server, bucket, **options)
    (told,) = stored(server, "CONFLICTS")
    assert (told.data, told.headers["Penstock-Key"], told.headers["Penstock-Revision"]) == (
        "lost",
        "a",
        "7",
    )


def test_repeated_conditional_write_knows_its_own_and_is_no_conflict(
    spark: SparkSession, server: ServerUnderTest, bucket: str
) -> None:
    apply(server, bucket, ("a", "1"))
    for _ in range(2):
        changes = rows(spark, ("a", "new", None, 1), ("b", "made", None, 0))
        write(changes, server, bucket, revisionColumn="rev")
    assert values(server, bucket) == [("a", "1"), ("a", "new"), ("b", "made")]


def test_values_live_for_their_ttl(
    spark: SparkSession, server: ServerUnderTest, bucket: str
) -> None:
    changes = rows(spark, ("a", "1", None, None, 5000), ("b", "2", None, None, None))
    write(changes, server, bucket, ttlColumn="ttl", ttlMs=7000)
    lives = {one.subject[-1]: one.headers["Nats-TTL"] for one in records(server, bucket)}
    assert lives == {"a": "5000ms", "b": "7000ms"}


def test_bucket_without_times_to_live_is_reported(
    spark: SparkSession, server: ServerUnderTest
) -> None:
    name = f"plain{next(_numbers)}"
    call(server, f"STREAM.CREATE.KV_{name}", {"name": f"KV_{name}", "subjects": [f"$KV.{name}.>"]})
    with pytest.raises(PySparkException, match="allow_msg_ttl"):
        write(rows(spark, ("a", "1")), server, name, ttlMs=7000)


def test_copy_of_bucket_has_its_newest_values(
    spark: SparkSession, server: ServerUnderTest, bucket: str
) -> None:
    apply(server, bucket, ("a", "1"), ("b", "2"), ("a", "3"), ("b", None))
    copy = f"copy{next(_numbers)}"
    call(server, f"STREAM.CREATE.KV_{copy}", {"name": f"KV_{copy}", "subjects": [f"$KV.{copy}.>"]})
    source = spark.read.format(FORMAT).options(url=server.url, includeDeletes=True).load(bucket)
    write(source.orderBy("revision"), server, copy)
    found = [(row.key, row.op) for row in read(spark, server, copy, includeDeletes=True)]
    assert found == [("a", "put"), ("b", "delete")]
