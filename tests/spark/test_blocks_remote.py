"""The format `penstock-blocks` over an object store, and on files of a nats-server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import nats
import pytest
from obstore.store import from_url

from penstock import Options, Server
from support.pipelines import fill
from support.s3 import s3_server
from support.servers import REFERENCE, ServerPool

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

N = 400


async def stored(directory: Path, streams: tuple[str, ...]) -> None:
    options = Options(port=-1, host="127.0.0.1", jetstream=True, store_dir=str(directory))
    async with Server(options=options) as server:
        client = await nats.connect(server.url)
        for stream in streams:
            await client.jetstream().add_stream(name=stream, subjects=[f"{stream}.>"])
            for n in range(1, N + 1):
                await client.jetstream().publish(f"{stream}.{n % 3}", b"%d" % n)
            await client.jetstream().delete_msg(stream, 7)
        await client.close()


def uploaded(directory: Path, url: str, options: dict[str, Any]) -> None:
    store = from_url(url, **options)
    for path in directory.rglob("*"):
        if path.is_file():
            store.put(path.relative_to(directory).as_posix(), path.read_bytes())


def test_store_in_object_store_is_read(spark: SparkSession, tmp_path: Path) -> None:
    asyncio.run(stored(tmp_path / "store", ("A", "B")))
    with s3_server() as s3:
        url, options = f"s3://{s3.new_bucket()}/kept", s3.options()
        uploaded(tmp_path / "store", url, options)
        told = {f"storage.{k}": v for k, v in options.items() if k != "client_options"}
        read = spark.read.format("penstock-blocks").options(**told)
        both = read.load(url)
        assert both.groupBy("stream").count().orderBy("stream").collect() == [
            ("A", N - 1), ("B", N - 1)
        ]  # fmt: skip
        rows = read.option("stream", "B").option("startingSeq", 5).option("endingSeq", 9).load(url)
        assert [(row.seq, bytes(row.data)) for row in rows.orderBy("seq").collect()] == [
            (n, b"%d" % n) for n in (5, 6, 8, 9)
        ]
        assert read.option("damage", True).load(url).count() == 0
        with pytest.raises(Exception, match="no store of stream C"):
            read.option("stream", "C").load(url).count()


def test_store_of_nats_server_is_named(spark: SparkSession, tmp_path: Path) -> None:
    if REFERENCE is None:
        pytest.skip("there is no nats-server")
    servers = ServerPool(tmp_path / "servers")
    reference = servers.get(REFERENCE, flags=("-js", "-sd", str(tmp_path / "go")))
    fill(reference, "GO", 1, 5)
    servers.close()
    with pytest.raises(Exception, match="was written by nats-server"):
        spark.read.format("penstock-blocks").load(str(tmp_path / "go")).count()
