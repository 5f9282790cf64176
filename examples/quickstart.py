"""An embedded server in ten seconds: a stream, a work queue and a bucket, without Spark.

    python examples/quickstart.py

Starts a server in this process, stores messages in a directory that is deleted at the end, and
prints what each part does. The client is the ordinary nats-py.
"""

from __future__ import annotations

import asyncio
import tempfile

import nats
from nats.js.api import ConsumerConfig, RetentionPolicy

import penstock

ORDERS = 1_000
JOBS = 6


async def stream(js: nats.js.JetStreamContext) -> None:
    """Publish orders, then read one subject of the stream from its beginning."""
    await js.add_stream(name="ORDERS", subjects=["orders.*"])
    acks = [
        await js.publish(f"orders.{'eu' if number % 2 else 'us'}", b"%d" % number)
        for number in range(ORDERS)
    ]
    print(f"stream      {len(acks):,} messages are on disk; the last is {acks[-1].seq:,}")
    reader = await js.pull_subscribe("orders.eu", "reporting")
    messages = await reader.fetch(5)
    print(f"consumer    reads orders.eu: {', '.join(one.data.decode() for one in messages)}, …")


async def work_queue(js: nats.js.JetStreamContext) -> None:
    """Let two workers share jobs: each job goes to one worker and is removed when it is acked."""
    await js.add_stream(name="JOBS", subjects=["jobs"], retention=RetentionPolicy.WORK_QUEUE)
    for number in range(JOBS):
        await js.publish("jobs", b"job %d" % number)
    config = ConsumerConfig(ack_wait=30)
    workers = [await js.pull_subscribe("jobs", "workers", config=config) for _ in range(2)]
    for number, worker in enumerate(workers, 1):
        jobs = await worker.fetch(JOBS // 2)
        for job in jobs:
            await job.ack_sync()
        print(f"work queue  worker {number} did {', '.join(job.data.decode() for job in jobs)}")
    left = (await js.stream_info("JOBS")).state.messages
    print(f"            {left} jobs are left")


async def bucket(js: nats.js.JetStreamContext) -> None:
    """Write a key conditionally: the second writer notices that it is late."""
    prices = await js.create_key_value(bucket="prices", history=5)
    revision = await prices.put("gold", b"2000")
    await prices.update("gold", b"2010", last=revision)
    try:
        await prices.update("gold", b"1990", last=revision)
    except nats.js.errors.KeyWrongLastSequenceError:
        print("bucket      the second update of revision 1 is refused")
    entry = await prices.get("gold")
    print(f"bucket      gold = {(entry.value or b'').decode()} (revision {entry.revision})")


async def main() -> None:
    with tempfile.TemporaryDirectory() as store:
        async with penstock.Server(jetstream=True, store_dir=store) as server:
            print(f"server      listens on {server.url}, in this process")
            client = await nats.connect(server.url)
            js = client.jetstream()
            await stream(js)
            await work_queue(js)
            await bucket(js)
            await client.close()


if __name__ == "__main__":
    asyncio.run(main())
