"""What tests of Spark share: streams filled by nats-py, and queries that run to their end."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import nats

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

    from nats.js import JetStreamContext
    from pyspark.sql import DataFrame, Row, SparkSession

    from support.servers import ServerUnderTest

QUERY_SECONDS = 240
_numbers = itertools.count(1)


class Streams:
    """Streams on one server, made and filled from a test without an event loop."""

    def __init__(self, url: str) -> None:
        self.url = url

    def do(self, work: Callable[[JetStreamContext], Awaitable[Any]]) -> Any:
        """Some work over a connection of its own."""

        async def connected() -> Any:
            client = await nats.connect(self.url)
            try:
                return await work(client.jetstream())
            finally:
                await client.close()

        return asyncio.run(connected())

    def make(self, prefix: str = "S", **config: Any) -> str:
        """A stream with a name of its own; its subjects are below that name."""
        name = f"{prefix}{next(_numbers)}"
        self.do(lambda js: js.add_stream(name=name, subjects=[f"{name}.>"], **config))
        return name

    def remake(self, name: str) -> None:
        """The same name for another stream."""
        self.do(lambda js: js.delete_stream(name))
        self.do(lambda js: js.add_stream(name=name, subjects=[f"{name}.>"]))

    def fill(
        self, name: str, count: int, *, first: int = 0, headers: dict[str, str] | None = None
    ) -> None:
        """Messages `first`, `first`+1, … with their number as data, on subjects NAME.0 to .2."""

        async def publish(js: JetStreamContext) -> None:
            for number in range(first, first + count):
                await js.publish(f"{name}.{number % 3}", b"%d" % number, headers=headers)

        self.do(publish)

    def delete(self, name: str, seqs: Iterable[int]) -> None:
        async def delete(js: JetStreamContext) -> None:
            for seq in seqs:
                await js.delete_msg(name, seq)

        self.do(delete)

    def state(self, name: str) -> Any:
        return self.do(lambda js: js.stream_info(name)).state

    def consumers(self, name: str) -> int:
        return int(self.state(name).consumer_count)


def table(spark: SparkSession, server: ServerUnderTest, stream: str, **options: Any) -> DataFrame:
    """A stream as a table."""
    return spark.read.format("jetstream").options(url=server.url, **options).load(stream)


def seqs(rows: Iterable[Row]) -> list[int]:
    return sorted(row.seq for row in rows)


class Query:
    """A streaming query into Parquet, run again and again over one checkpoint."""

    def __init__(
        self, spark: SparkSession, place: Path, server: ServerUnderTest, stream: str, **options: Any
    ) -> None:
        self.spark = spark
        self.checkpoint = place / "checkpoint"
        self.output = place / "output"
        self.options = {"url": server.url, "idleWaitMs": 20, **options}
        self.stream = stream

    @property
    def frame(self) -> DataFrame:
        return self.spark.readStream.format("jetstream").options(**self.options).load(self.stream)

    def writer(self, frame: DataFrame | None = None) -> Any:
        return (
            (self.frame if frame is None else frame)
            .select("stream", "seq", "data")
            .writeStream.format("parquet")
            .option("path", str(self.output))
            .option("checkpointLocation", str(self.checkpoint))
        )

    def run(self, **trigger: Any) -> Any:
        """To the end of what there is; raises what the query died of."""
        query = self.writer().trigger(**(trigger or {"availableNow": True})).start()
        assert query.awaitTermination(QUERY_SECONDS), "the query does not end"
        return query

    def rows(self) -> list[Row]:
        return self.spark.read.parquet(str(self.output)).orderBy("stream", "seq").collect()

    def seqs(self) -> list[int]:
        return seqs(self.rows())
