"""Jobs from the files of a stopped server, and to an object store, do what they do elsewhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import nats
import pytest

from penstock import Options, Server
from penstock.spark.jobs import ServerOrigin, StoreOrigin, archive, archived, fold, open_archive
from support.pipelines import fill, url_of
from support.s3 import S3, s3_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from support.servers import ServerUnderTest

KEYS = 20


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as running:
        yield running


async def filled(directory: Path) -> tuple[int, int]:
    """A bucket, in a server's files; how many messages, and when its stream was made."""
    options = Options(port=-1, host="127.0.0.1", jetstream=True, store_dir=str(directory))
    async with Server(options=options) as server:
        client = await nats.connect(server.url)
        bucket = await client.jetstream().create_key_value(bucket="B", history=5)
        for number in range(3 * KEYS):
            await bucket.put(f"k{number % KEYS}", b"%d" % number)
        await bucket.delete("k3")
        await client.close()
    return 3 * KEYS + 1, KEYS - 1


def test_stopped_servers_files_are_archived_and_folded(spark: SparkSession, tmp_path: Path) -> None:
    messages, entries = asyncio.run(filled(tmp_path / "store"))
    origin = StoreOrigin(spark, str(tmp_path / "store"), "KV_B")
    told = archive(spark, origin, str(tmp_path / "a"), sequences_per_commit=25)
    assert (told.rows, told.cursor, told.commits) == (messages, messages, 3)
    assert archive(spark, origin, str(tmp_path / "a")).rows_added == 0
    folded = fold(spark, origin, "B", str(tmp_path / "f"), shards=2, archive=str(tmp_path / "a"))
    assert (folded.entries, folded.cursor, folded.rebuilt) == (entries, messages, False)


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_archive_lies_in_object_store(
    spark: SparkSession, ours: ServerUnderTest, s3: S3, form: str
) -> None:
    stream = f"TOS3{form}"
    fill(ours, stream, 1, 50)
    origin = ServerOrigin(spark, stream, {"url": url_of(ours)})
    place, options = f"s3://{s3.new_bucket()}/some/where", s3.options()
    told = archive(
        spark, origin, place, form=form, token=1, sequences_per_commit=20, storage_options=options
    )
    assert (told.rows, told.cursor) == (50, 50)
    assert told.files_joined > 0
    table = open_archive(place, storage_options=options)
    rows = archived(spark, table, table.current())
    assert rows.columns[-2:] == ["date", "token_1"]
    assert [row.seq for row in rows.orderBy("seq").collect()] == list(range(1, 51))
    assert rows.where("token_1 = '2'").count() == len([n for n in range(1, 51) if n % 3 == 2])
