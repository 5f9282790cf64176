"""Speed of Spark reads of a stream: Penstock and the reference, compared with Parquet and nats-py.

    python -m benchmarks.spark [--messages 1000000] [--runs 3] [--mixed] [--json out/spark.json]

One stream of messages of 100 bytes on each server; with `--mixed` (`spark_mixed`) of 20 B to 8 KiB,
with headers, on 50,000 subjects, with gaps. Each is read as one partition into a sink that drops
everything; the same rows also as one Parquet file and, unless mixed, as the files of a stopped
server and by nats-py, which reads fewer messages, to save time. Everything runs in one session on
one machine, in turns; CPU time is shown per process, because it is more comparable than wall time.
Every read must return exactly what was stored.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import nats
from benchmarks.spark_mixed import make_gaps, publish_mixed
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from penstock.bench.process_stats import cpu_seconds
from penstock.bench.server_process import our_command, reference_command, running
from penstock.spark import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from penstock.bench.server_process import RunningServer

STREAM = "BENCH"
DATA_BYTES = 100
SUBJECTS = 100
CHUNK = 2_000
NATS_PY_DIVISOR = 20
WARM_UP_TURNS = 2
NARROW = "subject string, seq bigint"


@dataclass(frozen=True)
class Result:
    """One way of reading: medians of its runs."""

    name: str
    rows: int
    seconds: float
    jvm_cpu: float
    python_cpu: float
    server_cpu: float


# -- setup


def publish(host: str, port: int, count: int) -> None:
    """Publish messages in chunks and wait for the ack of the last: a server drops excess
    messages."""
    chance = Random(count)  # all different: Parquet stores a constant column in almost no space
    with socket.create_connection((host, port)) as wire:
        wire.sendall(b'CONNECT {"verbose":false}\r\nSUB acks 1\r\n')
        for first in range(0, count, CHUNK):
            numbers = range(first, min(first + CHUNK, count))
            lines = [
                b"PUB %b.%d %b%d\r\n%b\r\n"
                % (
                    STREAM.encode(),
                    number % SUBJECTS,
                    b"acks " if number == numbers[-1] else b"",
                    DATA_BYTES,
                    chance.randbytes(DATA_BYTES),
                )
                for number in numbers
            ]
            wire.sendall(b"".join(lines))
            heard = b""
            while b'"seq":' not in heard:
                heard = heard[-8:] + wire.recv(65536)


async def fill(url: str, host: str, port: int, count: int) -> None:
    client = await nats.connect(url)
    jetstream = client.jetstream()
    await jetstream.add_stream(name=STREAM, subjects=[f"{STREAM}.>"], allow_direct=True)
    await asyncio.to_thread(publish, host, port, count)
    while (await jetstream.stream_info(STREAM)).state.messages < count:
        await client.flush()
    await client.close()


async def fill_mixed(url: str, host: str, port: int, count: int) -> int:
    """Publish the messages of a mixed stream; return how many are left after the gaps."""
    client = await nats.connect(url)
    jetstream = client.jetstream()
    await jetstream.add_stream(name=STREAM, subjects=[f"{STREAM}.>"], allow_direct=True)
    await asyncio.to_thread(publish_mixed, host, port, STREAM, count)
    await make_gaps(jetstream, STREAM, count)
    left = (await jetstream.stream_info(STREAM)).state.messages
    await client.close()
    return left


# -- nats-py, in a straightforward implementation


class NatsPy(DataSource):
    @classmethod
    def name(cls) -> str:
        return "nats-py"

    def schema(self) -> str:
        return "subject string, seq bigint, data binary"

    def reader(self, schema: Any) -> DataSourceReader:
        return NatsPyReader(self.options["url"], int(self.options["count"]))


class NatsPyReader(DataSourceReader):
    def __init__(self, url: str, count: int) -> None:
        self._url = url
        self._count = count

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, int, bytes]]:
        return iter(asyncio.run(self._rows()))

    async def _rows(self) -> list[tuple[str, int, bytes]]:
        client = await nats.connect(self._url)
        subscription = await client.jetstream().pull_subscribe(
            f"{STREAM}.>", stream=STREAM, config=nats.js.api.ConsumerConfig(ack_policy="none")
        )
        rows: list[tuple[str, int, bytes]] = []
        while len(rows) < self._count:
            fetched = await subscription.fetch(min(1000, self._count - len(rows)))
            rows += [(one.subject, one.metadata.sequence.stream, one.data) for one in fetched]
        await client.close()
        return rows


# -- measuring


def descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that ended meanwhile
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def python_cpu(jvm: int) -> float:
    """Return CPU seconds of every Python process below the JVM, including those that ended."""
    total = 0
    for pid in descendants(jvm):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(fields[at]) for at in (11, 12, 13, 14))
    return total / 100


@dataclass(frozen=True)
class Case:
    """One way of reading a number of rows; `server` is the process it reads from, if any."""

    name: str
    rows: int
    frame: Callable[[], DataFrame]
    server: int = 0


class Bench:
    """Runs cases in turns, so that all have an equally warm JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())

    def measure(self, cases: list[Case], runs: int) -> list[Result]:
        seen: dict[str, list[tuple[float, ...]]] = {case.name: [] for case in cases}
        for case in cases:
            assert case.frame().count() == case.rows, case.name
        for turn in range(WARM_UP_TURNS + runs):
            for case in cases:
                figures = self._once(case)
                if turn >= WARM_UP_TURNS:
                    seen[case.name].append(figures)
        return [
            Result(
                case.name, case.rows, *map(statistics.median, zip(*seen[case.name], strict=True))
            )
            for case in cases
        ]

    def _once(self, case: Case) -> tuple[float, ...]:
        before = self._clocks(case.server)
        case.frame().write.format("noop").mode("overwrite").save()
        after = self._clocks(case.server)
        return tuple(now - then for now, then in zip(after, before, strict=True))

    def _clocks(self, server: int) -> tuple[float, ...]:
        return (
            time.monotonic(),
            cpu_seconds(self._jvm),
            python_cpu(self._jvm),
            cpu_seconds(server) if server else 0.0,
        )


def server_cases(
    spark: SparkSession, server: RunningServer, messages: int, *, mixed: bool = False
) -> list[Case]:
    """Fill one server, and return all cases that read it."""
    host, port = server.endpoint.host, server.endpoint.port
    url = f"nats://{host}:{port}"
    if mixed:
        left = asyncio.run(fill_mixed(url, host, port, messages))
    else:
        asyncio.run(fill(url, host, port, messages))
        left = messages
    reading = spark.read.format("jetstream").option("url", url)
    reading = reading.option("maxRecordsPerPartition", messages)
    few = messages // NATS_PY_DIVISOR
    plain = spark.read.format("nats-py").option("url", url).option("count", few)
    label, pid = server.label, server.pid
    cases = [
        Case(f"{label}, all columns", left, lambda: reading.load(STREAM), pid),
        Case(f"{label}, two columns", left, lambda: narrow(spark, url, messages), pid),
    ]
    return cases if mixed else [*cases, Case(f"{label}, nats-py", few, plain.load, pid)]


def narrow(spark: SparkSession, url: str, messages: int) -> DataFrame:
    reading = spark.read.format("jetstream").option("url", url).schema(NARROW)
    return reading.option("maxRecordsPerPartition", messages).load(STREAM)


def parquet_cases(spark: SparkSession, rows: DataFrame, messages: int, path: str) -> list[Case]:
    """Return the cases that read the same rows from a file: Spark's best case."""
    rows.write.parquet(path)
    return [
        Case("Parquet, all columns", messages, lambda: spark.read.parquet(path)),
        Case("Parquet, two columns", messages, lambda: spark.read.schema(NARROW).parquet(path)),
    ]


def file_cases(spark: SparkSession, messages: int, store: str) -> list[Case]:
    """Return the cases that read the files of a stopped Penstock server, as one task."""
    with running(our_command(), jetstream=f"store_dir: {json.dumps(store)}") as server:
        host, port = server.endpoint.host, server.endpoint.port
        asyncio.run(fill(f"nats://{host}:{port}", host, port, messages))

    def read() -> DataFrameReader:
        return spark.read.format("penstock-blocks").option("maxPartitionBytes", 1 << 40)

    return [
        Case("files, all columns", messages, lambda: read().load(store)),
        Case("files, two columns", messages, lambda: read().schema(NARROW).load(store)),
    ]


def show(results: list[Result]) -> None:
    for one in results:
        per = 1e6 / one.rows
        print(
            f"{one.name:26} {one.rows / one.seconds:12,.0f} rows/s   CPU-s per million rows: "
            f"JVM {one.jvm_cpu * per:5.2f}  Python {one.python_cpu * per:5.2f}  "
            f"server {one.server_cpu * per:5.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mixed", action="store_true", help="sizes, headers, subjects, gaps")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    messages = arguments.messages
    spark = session("penstock bench", "local[2]", **{"spark.log.level": "ERROR"})
    spark.dataSource.register(NatsPy)
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-"))
        cases: list[Case] = []
        for command in (our_command(), reference_command()):
            server = stack.enter_context(running(command, jetstream=""))
            cases += server_cases(spark, server, messages, mixed=arguments.mixed)
        cases += parquet_cases(spark, cases[0].frame(), cases[0].rows, f"{place}/parquet")
        if not arguments.mixed:
            cases += file_cases(spark, messages, f"{place}/store")
        results = Bench(spark).measure(cases, arguments.runs)
    spark.stop()
    show(results)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps([asdict(one) for one in results], indent=1))


if __name__ == "__main__":
    main()
