"""Key-value buckets, object stores and everyday streams through the Python client people use.

The client's own conventions are not ours to test: what must hold is that they work.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from typing import TYPE_CHECKING, Any

import nats
import pytest
from nats.js.api import (
    ConsumerConfig,
    KeyValueConfig,
    ObjectStoreConfig,
    StorageType,
)
from nats.js.errors import (
    BadRequestError,
    BucketNotFoundError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NotFoundError,
    ObjectNotFoundError,
)

from support.assets import unique
from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from nats.js import JetStreamContext
    from nats.js.kv import KeyValue

    from support.servers import ServerUnderTest

STORAGES = [StorageType.FILE, StorageType.MEMORY]


@contextlib.asynccontextmanager
async def connected(server: ServerUnderTest) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(server.url, allow_reconnect=False)
    try:
        yield client.jetstream()
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def bucket(server: ServerUnderTest, **config: Any) -> AsyncIterator[KeyValue]:
    """A bucket that is deleted afterwards."""
    async with connected(server) as context:
        name = unique("B")
        made = await context.create_key_value(KeyValueConfig(bucket=name, **config))
        yield made
        await context.delete_key_value(name)


async def eventually(condition: Callable[[], Any]) -> Any:
    """The first true answer of a coroutine function, asked again and again."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if found := await condition():
                return found


async def initial(watcher: Any) -> list[tuple[str, Any, Any]]:
    """Key, value and operation of what a watcher sees before it is up to date."""
    seen = []
    while (entry := await watcher.updates(timeout=PATIENCE_SECONDS)) is not None:
        seen.append((entry.key, entry.value, entry.operation))
    return seen


# -- keys and values


@pytest.mark.parametrize("storage", STORAGES)
async def test_value_is_put_got_and_deleted(
    jetstream_server: ServerUnderTest, storage: StorageType
) -> None:
    async with bucket(jetstream_server, storage=storage) as kv:
        assert await kv.put("a", b"1") == 1
        assert await kv.put("a", b"2") == 2
        entry = await kv.get("a")
        assert (entry.key, entry.value, entry.revision) == ("a", b"2", 2)
        with pytest.raises(KeyNotFoundError):
            await kv.get("b")
        await kv.delete("a")
        with pytest.raises(KeyNotFoundError):
            await kv.get("a")


async def test_value_is_created_once_and_again_after_deletion(
    jetstream_server: ServerUnderTest,
) -> None:
    async with bucket(jetstream_server) as kv:
        assert await kv.create("a", b"1") == 1
        with pytest.raises(KeyWrongLastSequenceError):
            await kv.create("a", b"2")
        await kv.delete("a")
        assert await kv.create("a", b"3") == 3
        assert (await kv.get("a")).value == b"3"


async def test_value_is_updated_only_from_its_revision(
    jetstream_server: ServerUnderTest,
) -> None:
    async with bucket(jetstream_server) as kv:
        revision = await kv.put("a", b"1")
        assert await kv.update("a", b"2", last=revision) == revision + 1
        with pytest.raises(KeyWrongLastSequenceError):
            await kv.update("a", b"3", last=revision)
        with pytest.raises(BadRequestError, match="10071"):
            await kv.delete("a", last=revision)


async def test_history_is_kept_up_to_its_limit(jetstream_server: ServerUnderTest) -> None:
    async with bucket(jetstream_server, history=3) as kv:
        for number in range(5):
            await kv.put("a", b"%d" % number)
        await kv.put("b", b"x")
        history = await kv.history("a")
        assert [entry.value for entry in history] == [b"2", b"3", b"4"]
        entry = await kv.get("a", revision=4)
        assert entry.value == b"3"
        with pytest.raises(KeyNotFoundError):
            await kv.get("b", revision=4)


async def test_purge_leaves_one_marker(jetstream_server: ServerUnderTest) -> None:
    async with bucket(jetstream_server, history=5) as kv:
        for number in range(3):
            await kv.put("a", b"%d" % number)
        await kv.purge("a")
        assert [entry.operation for entry in await kv.history("a")] == ["PURGE"]
        status = await kv.status()
        assert status.values == 1


async def test_listed_keys_exclude_deleted_ones(jetstream_server: ServerUnderTest) -> None:
    async with bucket(jetstream_server) as kv:
        for key in ("a.1", "a.2", "b.1", "gone"):
            await kv.put(key, b"x")
        await kv.delete("gone")
        assert sorted(await kv.keys()) == ["a.1", "a.2", "b.1"]


async def test_watcher_sees_current_values_and_changes(jetstream_server: ServerUnderTest) -> None:
    async with bucket(jetstream_server, history=5) as kv:
        await kv.put("a.1", b"old")
        await kv.put("a.1", b"1")
        await kv.put("b", b"2")
        await kv.put("a.2", b"3")
        watcher = await kv.watch("a.*")
        assert await initial(watcher) == [("a.1", b"1", None), ("a.2", b"3", None)]
        await kv.put("b", b"not seen")
        await kv.delete("a.1")
        entry = await watcher.updates(timeout=PATIENCE_SECONDS)
        assert (entry.key, entry.operation) == ("a.1", "DEL")
        await watcher.stop()


async def test_watcher_can_see_history(jetstream_server: ServerUnderTest) -> None:
    async with bucket(jetstream_server, history=5) as kv:
        for number in range(3):
            await kv.put("a", b"%d" % number)
        watcher = await kv.watchall(include_history=True)
        assert [value for _, value, _ in await initial(watcher)] == [b"0", b"1", b"2"]
        await watcher.stop()


async def test_watcher_of_empty_bucket_is_up_to_date_at_once(
    jetstream_server: ServerUnderTest,
) -> None:
    async with bucket(jetstream_server) as kv:
        watcher = await kv.watchall()
        assert await initial(watcher) == []
        await kv.put("a", b"1")
        assert (await watcher.updates(timeout=PATIENCE_SECONDS)).value == b"1"
        await watcher.stop()


async def test_large_bucket_is_watched_completely(jetstream_server: ServerUnderTest) -> None:
    async with bucket(jetstream_server, storage=StorageType.MEMORY) as kv:
        for number in range(300):
            await kv.put(f"key.{number}", b"x" * 5000)
        watcher = await kv.watchall()
        seen = await initial(watcher)
        assert [key for key, _, _ in seen] == [f"key.{number}" for number in range(300)]
        await watcher.stop()


async def test_values_expire_with_their_ttl(jetstream_server: ServerUnderTest) -> None:
    async with bucket(jetstream_server, ttl=1.0) as kv:
        await kv.put("a", b"1")

        async def gone() -> bool:
            try:
                await kv.get("a")
            except KeyNotFoundError:
                return True
            return False

        assert await eventually(gone)


async def test_bucket_limits_its_values(jetstream_server: ServerUnderTest) -> None:
    async with bucket(jetstream_server, max_value_size=100) as kv:
        await kv.put("a", b"x" * 10)
        with pytest.raises(Exception, match="message size exceeds maximum allowed"):
            await kv.put("a", b"x" * 200)


async def test_bucket_is_found_by_name(jetstream_server: ServerUnderTest) -> None:
    async with bucket(jetstream_server) as kv, connected(jetstream_server) as other:
        await kv.put("a", b"1")
        name = (await kv.status()).bucket
        assert (await (await other.key_value(name)).get("a")).value == b"1"
        with pytest.raises(BucketNotFoundError):
            await other.key_value("nope")


# -- objects


@contextlib.asynccontextmanager
async def objects(server: ServerUnderTest, **config: Any) -> AsyncIterator[Any]:
    async with connected(server) as context:
        name = unique("O")
        store = await context.create_object_store(name, ObjectStoreConfig(**config))
        yield store
        await context.delete_object_store(name)


@pytest.mark.parametrize("size", [0, 10, 128 * 1024, 1_000_000])
async def test_object_round_trips(jetstream_server: ServerUnderTest, size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    async with objects(jetstream_server) as store:
        info = await store.put("file", io.BytesIO(data))
        assert (info.size, info.chunks) == (size, -(-size // (128 * 1024)))
        result = await store.get("file")
        assert result.data == data
        assert result.info.digest == info.digest


async def test_replacing_object_removes_its_old_chunks(
    jetstream_server: ServerUnderTest,
) -> None:
    async with objects(jetstream_server) as store:
        await store.put("file", b"x" * 500_000)
        await store.put("file", b"new")
        assert (await store.get("file")).data == b"new"
        assert (await store.status()).size < 10_000


async def test_deleted_object_is_not_found(jetstream_server: ServerUnderTest) -> None:
    async with objects(jetstream_server) as store:
        await store.put("file", b"x")
        await store.delete("file")
        with pytest.raises(ObjectNotFoundError):
            await store.get("file")
        assert (await store.get_info("file", show_deleted=True)).deleted


async def test_objects_are_listed(jetstream_server: ServerUnderTest) -> None:
    async with objects(jetstream_server) as store:
        await store.put("a", b"1")
        await store.put("b", b"2")
        assert sorted([one.name for one in await store.list()]) == ["a", "b"]


async def test_sealed_object_store_refuses_writes(jetstream_server: ServerUnderTest) -> None:
    async with objects(jetstream_server) as store:
        await store.put("a", b"1")
        await store.seal()
        assert (await store.get("a")).data == b"1"
        assert (await store.status()).sealed


# -- streams


async def test_stream_is_found_by_subject_and_consumed(
    jetstream_server: ServerUnderTest,
) -> None:
    async with connected(jetstream_server) as context:
        name = unique("S")
        await context.add_stream(name=name, subjects=[f"{name}.>"])
        for number in range(20):
            ack = await context.publish(f"{name}.a", b"%d" % number)
        assert (ack.stream, ack.seq) == (name, 20)
        pull = await context.pull_subscribe(f"{name}.>", durable="d")
        taken = []
        while len(taken) < 20:
            for message in await pull.fetch(7, timeout=PATIENCE_SECONDS):
                await message.ack_sync(timeout=PATIENCE_SECONDS)
                taken.append(message.data)
        assert taken == [b"%d" % number for number in range(20)]
        info = await context.consumer_info(name, "d")
        assert (info.num_pending, info.num_ack_pending) == (0, 0)
        await context.delete_stream(name)


async def test_ordered_consumer_reads_stream_through(
    jetstream_server: ServerUnderTest,
) -> None:
    async with connected(jetstream_server) as context:
        name = unique("S")
        await context.add_stream(name=name, subjects=[f"{name}.>"])
        for _ in range(60):
            await context.publish(f"{name}.a", b"x" * 100_000)
        ordered = await context.subscribe(f"{name}.>", ordered_consumer=True)
        sequences = [
            (await ordered.next_msg(timeout=PATIENCE_SECONDS)).metadata.sequence.stream
            for _ in range(60)
        ]
        assert sequences == [*range(1, 61)]
        await ordered.unsubscribe()
        await context.delete_stream(name)


async def test_push_subscription_is_shared_by_queue(
    jetstream_server: ServerUnderTest,
) -> None:
    async with connected(jetstream_server) as context:
        name = unique("S")
        await context.add_stream(name=name, subjects=[f"{name}.>"])
        members = [
            await context.subscribe(f"{name}.>", queue="workers", durable="workers")
            for _ in range(2)
        ]
        for _ in range(40):
            await context.publish(f"{name}.a", b"x")

        async def all_taken() -> bool:
            await context.consumer_info(name, "workers")
            return sum(one.pending_msgs for one in members) == 40

        assert await eventually(all_taken)
        await context.delete_stream(name)


async def test_missing_message_is_not_found(jetstream_server: ServerUnderTest) -> None:
    async with connected(jetstream_server) as context:
        name = unique("S")
        await context.add_stream(name=name, subjects=[f"{name}.>"], allow_direct=True)
        await context.publish(f"{name}.a", b"x", headers={"Key": "value"})
        for direct in (True, False):
            message = await context.get_msg(name, seq=1, direct=direct)
            assert (message.data, message.headers["Key"]) == (b"x", "value")
            with pytest.raises(NotFoundError):
                await context.get_msg(name, seq=9, direct=direct)
        await context.delete_stream(name)


async def test_consumer_made_by_hand_is_described(jetstream_server: ServerUnderTest) -> None:
    async with connected(jetstream_server) as context:
        name = unique("S")
        await context.add_stream(name=name, subjects=[f"{name}.>"])
        config = ConsumerConfig(durable_name="d", ack_wait=5, max_deliver=3, backoff=[1, 2])
        await context.add_consumer(name, config)
        info = await context.consumer_info(name, "d")
        assert (info.config.ack_wait, info.config.backoff) == (1, [1, 2])
        assert [one.name for one in await context.consumers_info(name)] == ["d"]
        assert await context.delete_consumer(name, "d")
        await context.delete_stream(name)
