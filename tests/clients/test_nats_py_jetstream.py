"""JetStream, buckets and object stores as people use them from Python, on both servers."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from nats.aio.client import Client
from nats.errors import TimeoutError
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    KeyValueConfig,
    ObjectMeta,
    RetentionPolicy,
    StreamConfig,
    StreamSource,
)
from nats.js.errors import (
    BadRequestError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NoStreamResponseError,
    NotFoundError,
    ObjectNotFoundError,
)

from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from nats.js import JetStreamContext

    from support.servers import Implementation, ServerPool

MESSAGES = 50
FLAGS = ("-js", "-sd", "store")

_names = itertools.count()


def fresh(prefix: str) -> str:
    return f"{prefix}{next(_names)}"


@pytest.fixture
async def js(pool: ServerPool, implementation: Implementation) -> AsyncIterator[JetStreamContext]:
    client = Client()
    await client.connect(pool.get(implementation, flags=FLAGS).url, allow_reconnect=False)
    yield client.jetstream(timeout=PATIENCE_SECONDS)
    await client.close()


async def stream(js: JetStreamContext, count: int = 0, **config: Any) -> str:
    """A stream of its own, with so many messages."""
    name = fresh("S")
    await js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"], **config))
    for n in range(count):
        await js.publish(f"{name}.{n % 5}", b"%d" % n)
    return name


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():
            continue


def numbers(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


async def test_publishes_are_acknowledged_in_order(js: JetStreamContext) -> None:
    name = await stream(js)
    acks = [await js.publish(f"{name}.a", b"x") for _ in range(3)]
    assert [(ack.stream, ack.seq) for ack in acks] == [(name, 1), (name, 2), (name, 3)]


async def test_publishes_may_be_concurrent(js: JetStreamContext) -> None:
    name = await stream(js)
    futures = [await js.publish_async(f"{name}.a", b"x") for _ in range(MESSAGES)]
    await js.publish_async_completed()
    assert sorted(future.result().seq for future in futures) == list(range(1, MESSAGES + 1))


async def test_duplicate_message_is_stored_once(js: JetStreamContext) -> None:
    name = await stream(js)
    headers = {"Nats-Msg-Id": "one"}
    await js.publish(f"{name}.a", b"", headers=headers)
    assert (await js.publish(f"{name}.a", b"", headers=headers)).duplicate


async def test_expected_values_are_checked(js: JetStreamContext) -> None:
    name = await stream(js, 2)
    with pytest.raises(BadRequestError, match="wrong last sequence: 2"):
        await js.publish(f"{name}.a", b"", headers={"Nats-Expected-Last-Sequence": "1"})


async def test_publish_without_stream_has_no_responders(js: JetStreamContext) -> None:
    with pytest.raises(NoStreamResponseError):
        await js.publish("nobody.takes.this", b"")


async def test_stream_is_changed_listed_and_deleted(js: JetStreamContext) -> None:
    name = await stream(js, 3)
    info = await js.update_stream(name=name, subjects=[f"{name}.>"], max_msgs=2)
    assert (info.config.max_msgs, info.state.messages) == (2, 2)
    assert name in [one.config.name for one in await js.streams_info()]
    assert await js.purge_stream(name)
    assert await js.delete_stream(name)
    with pytest.raises(NotFoundError):
        await js.stream_info(name)


async def test_messages_are_read_and_removed(js: JetStreamContext) -> None:
    name = await stream(js, 3, allow_direct=True)
    assert (await js.get_msg(name, 2)).data == b"1"
    assert (await js.get_msg(name, 2, direct=True)).data == b"1"
    assert (await js.get_last_msg(name, f"{name}.2")).seq == 3
    assert await js.delete_msg(name, 2)
    with pytest.raises(NotFoundError):
        await js.get_msg(name, 2)


async def test_batches_are_pulled_and_acknowledged(js: JetStreamContext) -> None:
    name = await stream(js, MESSAGES)
    subscription = await js.pull_subscribe(f"{name}.>", durable="D")
    messages = await subscription.fetch(MESSAGES, timeout=PATIENCE_SECONDS)
    assert [msg.data for msg in messages] == numbers(MESSAGES)
    assert messages[-1].metadata.num_pending == 0
    for msg in messages:
        await msg.ack_sync()
    info = await subscription.consumer_info()
    assert (info.num_ack_pending, info.ack_floor.stream_seq) == (0, MESSAGES)


async def test_pull_of_empty_stream_times_out(js: JetStreamContext) -> None:
    name = await stream(js)
    subscription = await js.pull_subscribe(f"{name}.>", durable="D")
    with pytest.raises(TimeoutError):
        await subscription.fetch(1, timeout=0.2)


async def test_naked_message_is_redelivered(js: JetStreamContext) -> None:
    name = await stream(js, 1)
    subscription = await js.pull_subscribe(f"{name}.>", durable="D")
    (msg,) = await subscription.fetch(1, timeout=PATIENCE_SECONDS)
    await msg.nak()
    (again,) = await subscription.fetch(1, timeout=PATIENCE_SECONDS)
    assert again.metadata.num_delivered == 2
    await again.term()


async def test_pushed_messages_arrive_and_are_acknowledged(js: JetStreamContext) -> None:
    name = await stream(js, MESSAGES)
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(msg: Any) -> None:
        await msg.ack()
        arrived.put_nowait(msg.data)

    subscription = await js.subscribe(f"{name}.>", durable="D", cb=take, manual_ack=True)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert [await arrived.get() for _ in range(MESSAGES)] == numbers(MESSAGES)

    async def settled() -> bool:
        return (await js.consumer_info(name, "D")).num_ack_pending == 0

    await until(settled)
    await subscription.unsubscribe()


async def test_queue_group_shares_push_consumer(js: JetStreamContext) -> None:
    name = await stream(js)
    shares: list[list[bytes]] = [[], []]

    def taker(share: list[bytes]) -> Callable[[Any], Awaitable[None]]:
        async def take(msg: Any) -> None:
            share.append(msg.data)

        return take

    for share in shares:
        await js.subscribe(f"{name}.>", "crew", cb=taker(share))
    for n in range(MESSAGES):
        await js.publish(f"{name}.a", b"%d" % n)

    async def arrived() -> bool:
        await asyncio.sleep(0)
        return sum(map(len, shares)) == MESSAGES

    await until(arrived)
    assert all(shares)


async def test_ordered_consumer_reads_everything_in_order(js: JetStreamContext) -> None:
    name = await stream(js, MESSAGES)
    subscription = await js.subscribe(f"{name}.>", ordered_consumer=True)
    seen = [(await subscription.next_msg(PATIENCE_SECONDS)).data for _ in range(MESSAGES)]
    assert seen == numbers(MESSAGES)
    await subscription.unsubscribe()


async def test_flow_control_and_heartbeats_keep_long_delivery_going(js: JetStreamContext) -> None:
    name = await stream(js)
    count = 500
    for n in range(count):
        await js.publish_async(f"{name}.a", b"%d" % n + b"x" * 1000)
    await js.publish_async_completed()
    config = ConsumerConfig(flow_control=True, idle_heartbeat=0.5, ack_policy=AckPolicy.NONE)
    subscription = await js.subscribe(f"{name}.>", config=config)
    for n in range(count):
        msg = await subscription.next_msg(PATIENCE_SECONDS)
        assert msg.data.startswith(b"%dx" % n)
    await subscription.unsubscribe()


async def test_work_queue_removes_acked_messages(js: JetStreamContext) -> None:
    name = await stream(js, 3, retention=RetentionPolicy.WORK_QUEUE)
    subscription = await js.pull_subscribe(f"{name}.>", durable="D")
    for msg in await subscription.fetch(3, timeout=PATIENCE_SECONDS):
        await msg.ack_sync()
    assert (await js.stream_info(name)).state.messages == 0


async def test_mirrors_and_sources_follow(js: JetStreamContext) -> None:
    name = await stream(js, 5)
    await js.add_stream(StreamConfig(name=f"{name}M", mirror=StreamSource(name=name)))
    await js.add_stream(StreamConfig(name=f"{name}A", sources=[StreamSource(name=name)]))
    for copy in (f"{name}M", f"{name}A"):

        async def whole(copy: str = copy) -> bool:
            return (await js.stream_info(copy)).state.messages == 5

        await until(whole)


async def test_bucket_keeps_last_values(js: JetStreamContext) -> None:
    kv = await js.create_key_value(KeyValueConfig(bucket=fresh("B"), history=3))
    for n in range(5):
        await kv.put("key", b"%d" % n)
    entry = await kv.get("key")
    assert (entry.value, entry.revision) == (b"4", 5)
    assert [one.value for one in await kv.history("key")] == [b"2", b"3", b"4"]
    assert (await kv.status()).values == 3


async def test_key_is_created_once_and_updated_at_its_revision(js: JetStreamContext) -> None:
    kv = await js.create_key_value(KeyValueConfig(bucket=fresh("B")))
    revision = await kv.create("key", b"1")
    with pytest.raises(KeyWrongLastSequenceError):
        await kv.create("key", b"2")
    with pytest.raises(KeyWrongLastSequenceError):
        await kv.update("key", b"2", last=revision + 1)
    assert await kv.update("key", b"2", last=revision) == revision + 1


async def test_deleted_keys_are_missing_and_may_be_created_again(js: JetStreamContext) -> None:
    kv = await js.create_key_value(KeyValueConfig(bucket=fresh("B")))
    await kv.put("a", b"1")
    await kv.put("b", b"2")
    await kv.delete("a")
    with pytest.raises(KeyNotFoundError):
        await kv.get("a")
    assert await kv.keys() == ["b"]
    await kv.create("a", b"3")
    await kv.purge("b")
    assert await kv.keys() == ["a"]


async def test_watch_reports_current_values_and_changes(js: JetStreamContext) -> None:
    kv = await js.create_key_value(KeyValueConfig(bucket=fresh("B")))
    await kv.put("a.1", b"1")
    await kv.put("b.1", b"2")
    watcher = await kv.watch("a.*")
    there = await watcher.updates(timeout=PATIENCE_SECONDS)
    assert there is not None
    assert (there.key, there.value) == ("a.1", b"1")
    assert await watcher.updates(timeout=PATIENCE_SECONDS) is None
    await kv.delete("a.1")
    gone = await watcher.updates(timeout=PATIENCE_SECONDS)
    assert gone is not None
    assert (gone.key, gone.operation) == ("a.1", "DEL")
    await watcher.stop()


async def test_object_of_many_chunks_round_trips(js: JetStreamContext) -> None:
    objects = await js.create_object_store(fresh("O"))
    data = bytes(n % 251 for n in range(500_000))
    info = await objects.put("big", data, meta=ObjectMeta(description="of many pieces"))
    assert (info.size, info.chunks) == (len(data), 4)
    found = await objects.get("big")
    assert found.data == data
    assert found.info.meta.description == "of many pieces"


async def test_objects_are_listed_and_deleted(js: JetStreamContext) -> None:
    name = fresh("O")
    objects = await js.create_object_store(name)
    for key in ("a", "b"):
        await objects.put(key, key.encode())
    assert sorted(one.name for one in await objects.list()) == ["a", "b"]
    await objects.delete("a")
    with pytest.raises(ObjectNotFoundError):
        await objects.get("a")
    assert (await objects.status()).size > 0
    assert await js.delete_object_store(name)
