"""What servers send for Spark reads: messages per row by partitions, bytes of a two-column read.

    python -m benchmarks.spark_wire [--messages 100000] [--large 5000]

Spark reads through a TCP proxy that counts bytes and deliveries (messages with an ack subject),
from Penstock and from the reference. The amounts do not depend on how busy the machine is. Every
read must return exactly what was stored.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Final

import nats
from benchmarks.spark import NARROW

from penstock.bench.server_process import our_command, reference_command, running
from penstock.spark import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from penstock.bench.server_process import RunningServer

PARTITIONS: Final = (1, 50, 200)
SMALL_BYTES: Final = 100
LARGE_BYTES: Final = 8 << 10
FLUSH_EACH: Final = 500
RECEIVE_BYTES: Final = 1 << 16
DELIVERY: Final = b"$JS.ACK."


class WireCounts:
    """Counts what a server sends, over all connections."""

    def __init__(self) -> None:
        self.byte_count = 0
        self.deliveries = 0
        self._lock = threading.Lock()

    def reset(self) -> None:
        with self._lock:
            self.byte_count = self.deliveries = 0

    def add(self, byte_count: int, deliveries: int) -> None:
        with self._lock:
            self.byte_count += byte_count
            self.deliveries += deliveries


def forward(source: socket.socket, target: socket.socket, counts: WireCounts | None) -> None:
    """Copy bytes until one side closes. A mark that is split between two reads counts once."""
    tail = b""
    with contextlib.suppress(OSError):
        while data := source.recv(RECEIVE_BYTES):
            if counts is not None:
                seen = tail + data
                counts.add(len(data), seen.count(DELIVERY))
                tail = seen[-(len(DELIVERY) - 1) :]
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def counted(server: RunningServer, counts: WireCounts) -> Iterator[str]:
    """Yield the URL of a proxy to the server."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                upstream = socket.create_connection((server.endpoint.host, server.endpoint.port))
                for ends in ((client, upstream, None), (upstream, client, counts)):
                    threading.Thread(target=forward, args=ends, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"nats://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


async def fill(server: RunningServer, stream: str, count: int, payload: bytes) -> None:
    client = await nats.connect(f"nats://{server.endpoint.host}:{server.endpoint.port}")
    jetstream = client.jetstream()
    await jetstream.add_stream(name=stream, subjects=[f"{stream}.>"], allow_direct=True)
    for first in range(0, count, FLUSH_EACH):
        numbers = range(first, min(first + FLUSH_EACH, count))
        for number in numbers[:-1]:
            await client.publish(f"{stream}.{number % 100}", payload)
        await jetstream.publish(f"{stream}.{numbers[-1] % 100}", payload)
    assert (await jetstream.stream_info(stream)).state.messages == count
    await client.close()


def read(
    spark: SparkSession, url: str, stream: str, count: int, *, parts: int, schema: str = ""
) -> None:
    """Read all rows, and check that each sequence came once."""
    reading = spark.read.format("jetstream").option("url", url).option("minPartitions", parts)
    rows = (reading.schema(schema) if schema else reading).load(stream)
    assert rows.rdd.getNumPartitions() == parts
    found = rows.selectExpr("count(*) n", "min(seq) low", "max(seq) high", "count(distinct seq) d")
    assert tuple(found.collect()[0]) == (count, 1, count, count)


def measure(spark: SparkSession, server: RunningServer, small: int, large: int) -> None:
    asyncio.run(fill(server, "SMALL", small, bytes(SMALL_BYTES)))
    asyncio.run(fill(server, "LARGE", large, bytes(LARGE_BYTES)))
    counts = WireCounts()
    with counted(server, counts) as url:
        for parts in PARTITIONS:
            counts.reset()
            read(spark, url, "SMALL", small, parts=parts)
            per_row = counts.deliveries / small
            print(f"{server.label:12} {parts:4} partitions: {per_row:.4f} messages per row")
        for parts in PARTITIONS:
            counts.reset()
            read(spark, url, "LARGE", large, parts=parts, schema=NARROW)
            share = counts.byte_count / (large * LARGE_BYTES)
            print(
                f"{server.label:12} {parts:4} partitions, two columns: {share:.2%} of the payloads"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--large", type=int, default=5_000)
    arguments = parser.parse_args()
    spark = session("penstock wire", "local[2]", light=True, **{"spark.log.level": "ERROR"})
    for command in (our_command(), reference_command()):
        with running(command, jetstream="") as server:
            measure(spark, server, arguments.messages, arguments.large)
    spark.stop()


if __name__ == "__main__":
    main()
