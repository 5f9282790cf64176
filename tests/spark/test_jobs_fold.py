"""The fold job: artifacts hold what the bucket holds, shard by shard, and can be gone on from."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import nats
import pytest
from nats.js.api import KeyValueConfig

from penstock.fold import AppendLogSnapshot
from penstock.fold.artifact.shards import by_hash, hash_of, import_shards
from penstock.fold.ship.artifact_transport import transport_for
from penstock.spark.jobs import FoldJobError, ServerOrigin, archive, fold, verify
from support.folds import contents, delete, put
from support.pipelines import url_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from support.servers import ServerUnderTest

names = (f"B{n}" for n in itertools.count())


class Bucket:
    """A bucket with what was put into it, changed from a test without an event loop."""

    def __init__(self, server: ServerUnderTest, **config: Any) -> None:
        self.name = next(names)
        self.url = url_of(server)
        self.expected: dict[str, bytes] = {}
        self.do([], config)

    def do(self, steps: list[tuple[Any, ...]], make: dict[str, Any] | None = None) -> None:
        """Steps are (key, value), or (key, None) to delete, or (key, ...) to purge."""

        async def run() -> None:
            client = await nats.connect(self.url)
            js = client.jetstream()
            if make is not None:
                await js.create_key_value(KeyValueConfig(self.name, **make))
            bucket = await js.key_value(self.name)
            for key, value in steps:
                if value is None:
                    await bucket.delete(key)
                elif value is ...:
                    await bucket.purge(key)
                else:
                    await bucket.put(key, value)
            await client.close()

        asyncio.run(run())
        for key, value in steps:
            self.expected.pop(key, None)
            if isinstance(value, bytes):
                self.expected[key] = value

    def again(self) -> None:
        """The same name, another bucket."""

        async def run() -> None:
            client = await nats.connect(self.url)
            await client.jetstream().delete_key_value(self.name)
            await client.close()

        asyncio.run(run())
        self.expected = {}
        self.do([], {})


def origin(spark: SparkSession, bucket: Bucket) -> ServerOrigin:
    return ServerOrigin(spark, f"KV_{bucket.name}", {"url": bucket.url})


def fetched(dest: Path, bucket: Bucket, scratch: Path, shards: int) -> dict[str, Any]:
    """What an edge node gets that imports all shards."""
    scratch.mkdir()
    places = []
    for shard in by_hash(shards):
        place = scratch / shard.name
        asyncio.run(transport_for(str(dest)).download(f"{bucket.name}/{shard.name}", place))
        places.append(place)
    with import_shards(AppendLogSnapshot, places, scratch / "store") as store:
        assert store.meta.scope == ("",)
        return {key: entry.value for key, entry in contents(store).items()}


def first_steps() -> list[tuple[Any, ...]]:
    steps: list[tuple[Any, ...]] = [(f"k.{n % 30}", b"value %d" % n) for n in range(80)]
    return [*steps, ("k.1", None), ("k.2", ...), ("k.1", b"back"), ("empty", b"")]


def test_shards_hold_what_bucket_holds_and_continue(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path
) -> None:
    bucket = Bucket(server, history=3)
    bucket.do(first_steps())
    dest = tmp_path / "dest"
    told = fold(spark, origin(spark, bucket), bucket.name, str(dest), shards=3)
    assert told.entries == len(bucket.expected)
    assert {shard.cursor for shard in told.shards} == {84}
    assert fetched(dest, bucket, tmp_path / "one", 3) == bucket.expected
    bucket.do([("k.3", b"new"), ("k.4", None), ("other", b"1")])
    told = fold(spark, origin(spark, bucket), bucket.name, str(dest), shards=3)
    assert sum(shard.changed for shard in told.shards) == 3
    assert not told.rebuilt
    assert fetched(dest, bucket, tmp_path / "two", 3) == bucket.expected
    table = spark.read.format("penstock-fold").load(f"{dest}/{bucket.name}")
    assert {row.key: bytes(row.value) for row in table.collect()} == bucket.expected
    assert all(hash_of(row.key) % 3 == int(row.shard[:4]) for row in table.collect())
    again = fold(spark, origin(spark, bucket), bucket.name, str(dest), shards=3)
    assert not any(shard.published for shard in again.shards)


def test_archive_and_tail_of_stream_are_one_log(
    spark: SparkSession, ours: ServerUnderTest, tmp_path: Path
) -> None:
    bucket = Bucket(ours, history=64)
    bucket.do(first_steps())
    archive(spark, origin(spark, bucket), str(tmp_path / "a"))
    bucket.do([("k.5", b"tail"), ("k.6", None)])
    dest = tmp_path / "dest"
    kept = str(tmp_path / "a")
    fold(spark, origin(spark, bucket), bucket.name, str(dest), shards=2, archive=kept)
    assert fetched(dest, bucket, tmp_path / "one", 2) == bucket.expected


def test_log_with_hole_is_folded_again_from_what_is_there(
    spark: SparkSession, ours: ServerUnderTest, tmp_path: Path
) -> None:
    bucket = Bucket(ours)
    bucket.do([("a", b"1"), ("b", b"1"), ("c", b"1")])
    dest = tmp_path / "dest"
    fold(spark, origin(spark, bucket), bucket.name, str(dest), shards=2)
    bucket.do([("a", b"2"), ("b", b"2"), ("c", b"2"), ("a", b"3"), ("b", b"3"), ("c", b"3")])
    told = fold(spark, origin(spark, bucket), bucket.name, str(dest), shards=2)
    assert told.rebuilt
    assert fetched(dest, bucket, tmp_path / "one", 2) == bucket.expected


def test_shards_by_prefix_are_folds_of_their_scope(
    spark: SparkSession, ours: ServerUnderTest, tmp_path: Path
) -> None:
    bucket = Bucket(ours)
    bucket.do([("eu.a", b"1"), ("eu.b", b"2"), ("us.a", b"3"), ("none", b"4")])
    dest = tmp_path / "dest"
    fold(spark, origin(spark, bucket), bucket.name, str(dest), prefixes=("eu.", "us."))
    asyncio.run(transport_for(str(dest)).download(f"{bucket.name}/eu", tmp_path / "eu"))
    with AppendLogSnapshot.import_from(tmp_path / "eu", tmp_path / "store") as store:
        assert {key: e.value for key, e in contents(store).items()} == {"eu.a": b"1", "eu.b": b"2"}
        assert store.meta.scope == ("eu.",)
        assert store.cursor.revision == 4


def test_another_bucket_of_name_and_other_shards_are_refused(
    spark: SparkSession, ours: ServerUnderTest, tmp_path: Path
) -> None:
    bucket = Bucket(ours)
    bucket.do([("a", b"1"), ("b", b"1")])
    fold(spark, origin(spark, bucket), bucket.name, str(tmp_path), shards=2)
    with pytest.raises(FoldJobError, match="other shards"):
        fold(spark, origin(spark, bucket), bucket.name, str(tmp_path), shards=3)
    bucket.again()
    bucket.do([(f"k{n}", b"2") for n in range(5)])
    with pytest.raises(Exception, match="publish to another place"):
        fold(spark, origin(spark, bucket), bucket.name, str(tmp_path), shards=2)


def test_differing_shard_is_detected(
    spark: SparkSession, ours: ServerUnderTest, tmp_path: Path
) -> None:
    bucket = Bucket(ours)
    bucket.do([("a", b"1"), ("b", b"1"), ("c", b"1")])
    source, dest = origin(spark, bucket), str(tmp_path / "dest")
    fold(spark, source, bucket.name, dest, shards=1)
    asked = {"origin": source, "folds": dest, "bucket": bucket.name, "shards": by_hash(1)}
    assert verify(spark, **asked).is_well
    key = f"{bucket.name}/{by_hash(1)[0].name}"
    asyncio.run(transport_for(dest).download(key, tmp_path / "artifact"))
    with AppendLogSnapshot.import_from(tmp_path / "artifact", tmp_path / "store") as store:
        store.apply([put("b", b"2", 2), delete("c")], store.cursor)
        store.export_to(tmp_path / "forged")
    asyncio.run(transport_for(dest).upload(key, tmp_path / "forged"))
    told = verify(spark, **asked)
    assert not told.is_well
    (check,) = [one for one in told.checks if not one.is_well]
    assert (check.expected, check.found) == (3, 2)
    assert {"b", "c"} == set(check.detail.rpartition("keys ")[2].split(", "))
