"""Messages a client reads per second of its own CPU time: bulk reader compared with nats-py.

    python benchmarks/bulk.py [MESSAGES]

A bucket with one value of 100 bytes per key, on Penstock and on the reference, read by one process:
as columns, as tuples, as updates of a watch, as keys, and by nats-py's ordered consumer and its
`keys`. All in one run on one machine; nats-py reads fewer messages, to save time. Every read must
return exactly what was stored.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

import nats

from penstock.bench.server_process import our_command, reference_command, running
from penstock.bulk import BulkReader
from penstock.kv.contract import BucketConfig
from penstock.kv.kv_connection import NatsConfig, NatsConnection
from penstock.kv.kv_types import CaughtUp, Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.client import Client

    from penstock.kv.bucket import NatsBucket

MESSAGES = 200_000
NATS_PY_MESSAGES = 30_000
VALUE_BYTES = 100
FLUSH_EVERY = 1000
STREAM = "KV_bench"
PREFIX = "$KV.bench."


async def fill(client: Client, first: int, stop: int) -> None:
    for number in range(first, stop):
        await client.publish(f"{PREFIX}key.{number:08}", b"x" * VALUE_BYTES)
        if number % FLUSH_EVERY == 0:
            await client.flush()
    await client.flush()
    jetstream = client.jetstream()
    while (await jetstream.stream_info(STREAM)).state.messages < stop:
        await client.flush()


async def columns(reader: BulkReader) -> int:
    return sum([len(batch) async for batch in reader.range(STREAM)])


async def tuples(reader: BulkReader) -> int:
    return sum([len(batch.rows()) async for batch in reader.range(STREAM)])


async def newest(reader: BulkReader) -> int:
    return sum([len(batch) async for batch in reader.newest(STREAM)])


async def updates(bucket: NatsBucket) -> int:
    watcher = bucket.watcher()
    assert watcher is not None
    count = 0
    async with watcher.watch(Scope.all()) as watch:
        async for events in watch.batches():
            if CaughtUp() in events:
                return count
            count += len(events)
    raise AssertionError


async def keys(bucket: NatsBucket) -> int:
    return len([key async for key in bucket.reader().keys("key.")])


async def nats_py_ordered(client: Client, count: int) -> int:
    jetstream = client.jetstream()
    subscription = await jetstream.subscribe(f"{PREFIX}>", ordered_consumer=True)
    for _ in range(count):
        await subscription.next_msg(timeout=10)
    await subscription.unsubscribe()
    return count


async def nats_py_keys(client: Client) -> int:
    return len(await (await client.jetstream().key_value("bench")).keys())


async def measure(name: str, expected: int, read: Callable[[], Awaitable[int]]) -> None:
    cpu, wall = time.process_time(), time.monotonic()
    count = await read()
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    assert count == expected, f"{name}: {count} of {expected}"
    print(f"  {name:32} {count / cpu:12,.0f} per CPU-s {count / wall:12,.0f} per s", flush=True)


async def run(url: str, messages: int) -> None:
    few = min(messages, NATS_PY_MESSAGES)
    reader = BulkReader.to(url)
    client = await nats.connect(url)
    async with NatsConnection(NatsConfig.of(url)) as connection:
        bucket = await connection.bucket("bench", BucketConfig(storage="memory"))
        await fill(client, 0, few)
        await measure("nats-py, ordered consumer", few, lambda: nats_py_ordered(client, few))
        await measure("nats-py, keys", few, lambda: nats_py_keys(client))
        await fill(client, few, messages)
        await measure("bulk, columns", messages, lambda: columns(reader))
        await measure("bulk, tuples", messages, lambda: tuples(reader))
        await measure("bulk, newest of each subject", messages, lambda: newest(reader))
        await measure("bucket, updates of a watch", messages, lambda: updates(bucket))
        await measure("bucket, keys", messages, lambda: keys(bucket))
    await client.close()


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else MESSAGES
    for command in (our_command(), reference_command()):
        print(f"{command.label}, {messages:,} values of {VALUE_BYTES} bytes")
        with running(command, jetstream="") as server:
            asyncio.run(run(f"nats://{server.endpoint}", messages))


if __name__ == "__main__":
    main()
