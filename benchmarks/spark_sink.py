"""Speed of Spark writes to streams and buckets, by delivery, on Penstock and the reference.

    python -m benchmarks.spark_sink [--messages 200000] [--runs 3] [--json out/spark-sink.json]

Rows of 100 bytes, two partitions, to a new stream each time: first by the bulk publisher alone,
then through Spark. The main figures are rows per CPU second of the server, which other clients
share, and of the client, Java and Python separately. Every run must leave exactly the rows it
wrote.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nats
import pyarrow as pa
from benchmarks.spark import python_cpu

from penstock.bench.process_stats import cpu_seconds
from penstock.bench.server_process import our_command, reference_command, running
from penstock.bulk.blocking_publisher import BlockingPublisher
from penstock.bulk.bulk_connection import ConnectSettings
from penstock.bulk.bulk_publisher import Publisher
from penstock.bulk.login import split_urls
from penstock.spark import session
from penstock.spark.write.sink_ids import RowIds
from penstock.spark.write.sink_rows import RowLayout

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

STREAM = "BENCH"
BUCKET = "bench"
SUBJECTS = 100
DATA = "x" * 100
ARROW_ROWS = 10_000
DELIVERIES: dict[str, dict[str, str]] = {
    "atLeastOnce": {"delivery": "atLeastOnce"},
    "exactlyOnce": {"delivery": "exactlyOnce"},
    "strict": {"delivery": "strict"},
}


@dataclass(frozen=True)
class Result:
    """One way of writing: medians of its runs."""

    name: str
    rows: int
    seconds: float
    java_cpu: float
    python_cpu: float
    server_cpu: float

    def line(self) -> str:
        def rate(cpu: float) -> str:
            return f"{self.rows / cpu:11,.0f}" if cpu > 0 else f"{'-':>11}"

        return (
            f"{self.name:34} {self.rows / self.seconds:9,.0f} rows/s   rows per CPU-s: "
            f"server {rate(self.server_cpu)}  Python {rate(self.python_cpu)}  "
            f"Java {rate(self.java_cpu)}"
        )


async def make(url: str) -> None:
    """Create a new stream and a new bucket."""
    client = await nats.connect(url)
    configs: list[dict[str, Any]] = [
        {"name": STREAM, "subjects": [f"{STREAM}.>", f"ledger.{STREAM}.>"], "allow_atomic": True},
        {"name": f"KV_{BUCKET}", "subjects": [f"$KV.{BUCKET}.>"], "max_msgs_per_subject": 1},
    ]
    for config in configs:
        body = json.dumps(config).encode()
        await client.request(f"$JS.API.STREAM.DELETE.{config['name']}", timeout=30)
        said = await client.request(f"$JS.API.STREAM.CREATE.{config['name']}", body, timeout=30)
        assert b'"error"' not in said.data, said.data
    await client.close()


async def count(url: str, stream: str) -> int:
    client = await nats.connect(url)
    info = await client.jetstream().stream_info(stream, subjects_filter=f"{STREAM}.>")
    await client.close()
    state = info.state
    return sum(state.subjects.values()) if state.subjects else int(state.messages)


class Bench:
    """Runs a write a few times and keeps the medians."""

    def __init__(self, java: int, runs: int) -> None:
        self._java = java
        self._runs = runs
        self.results: list[Result] = []

    def measure(
        self, name: str, rows: int, url: str, server: int, stream: str, write: Callable[[], None]
    ) -> None:
        seen = []
        for _ in range(self._runs):
            asyncio.run(make(url))
            before = self._clocks(server)
            write()
            after = self._clocks(server)
            seen.append([now - then for now, then in zip(after, before, strict=True)])
            assert asyncio.run(count(url, stream)) == rows, name
        medians = (statistics.median(column) for column in zip(*seen, strict=True))
        self.results.append(Result(name, rows, *medians))
        print(self.results[-1].line(), flush=True)

    def _clocks(self, server: int) -> tuple[float, float, float, float]:
        # The publisher alone runs in this process; Spark's Python processes run below Java.
        python = python_cpu(self._java) + time.process_time()
        return time.monotonic(), cpu_seconds(self._java), python, cpu_seconds(server)


def table_of(rows: int) -> pa.RecordBatch:
    numbers = range(rows)
    return pa.record_batch(
        {
            "subject": [f"{STREAM}.{number % SUBJECTS}" for number in numbers],
            "data": [DATA] * rows,
            "msgId": [f"EV:{number}" for number in numbers],
        }
    )


def publish_alone(url: str, table: pa.RecordBatch, *, with_ids: bool) -> None:
    layout = RowLayout(
        subject="", ids=RowIds(("msgId",)) if with_ids else RowIds(), has_headers=False
    )
    publisher = Publisher(ConnectSettings(split_urls(url)[0]), stream=STREAM)
    with BlockingPublisher(publisher) as way:
        for start in range(0, table.num_rows, ARROW_ROWS):
            columns = layout.rows(table.slice(start, ARROW_ROWS))
            way.publish(columns.subjects, columns.payloads, ids=columns.ids)
        way.drain()
        assert way.take_refused() == []


def write_stream(spark: SparkSession, url: str, rows: int, options: dict[str, str]) -> None:
    frame = spark.range(0, rows, 1, 2).selectExpr(
        f"concat('{STREAM}.', id % {SUBJECTS}) subject", f"'{DATA}' data", "concat('EV:', id) msgId"
    )
    # Without ids a strict write takes rows in the order they arrive, and does not sort them.
    frame = frame.drop("msgId") if options["delivery"] != "exactlyOnce" else frame
    chosen = {"url": url, "stream": STREAM, "writeId": f"{time.monotonic_ns()}", **options}
    frame.write.format("jetstream").mode("append").options(**chosen).save()


def write_bucket(spark: SparkSession, url: str, rows: int) -> None:
    frame = spark.range(0, rows, 1, 2).selectExpr("concat('key.', id) key", f"'{DATA}' value")
    frame.write.format("jetstream-kv").mode("append").options(url=url, bucket=BUCKET).save()


def measure_server(spark: SparkSession, bench: Bench, command: Any, rows: int) -> None:
    with running(command, jetstream="") as one:
        url = f"nats://{one.endpoint.host}:{one.endpoint.port}"
        table = table_of(rows)
        for label, with_ids in (("publisher", False), ("publisher, ids", True)):
            bench.measure(
                f"{command.label}, {label}",
                rows,
                url,
                one.pid,
                STREAM,
                lambda with_ids=with_ids: publish_alone(url, table, with_ids=with_ids),  # type: ignore[misc]
            )
        asyncio.run(make(url))
        write_stream(spark, url, ARROW_ROWS, DELIVERIES["atLeastOnce"])  # warm up the workers
        for label, options in DELIVERIES.items():
            bench.measure(
                f"{command.label}, {label}",
                rows,
                url,
                one.pid,
                STREAM,
                lambda options=options: write_stream(spark, url, rows, options),  # type: ignore[misc]
            )
        bench.measure(
            f"{command.label}, bucket",
            rows,
            url,
            one.pid,
            f"KV_{BUCKET}",
            lambda: write_bucket(spark, url, rows),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    spark = session("penstock bench", "local[2]", **{"spark.log.level": "ERROR"})
    java = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    bench = Bench(java, arguments.runs)
    for command in (our_command(), reference_command()):
        measure_server(spark, bench, command, arguments.messages)
    spark.stop()
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps([asdict(one) for one in bench.results], indent=1))


if __name__ == "__main__":
    main()
