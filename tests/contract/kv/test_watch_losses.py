"""What a watch reports when the bucket, its consumer or the server did not stay as they were."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from penstock.bulk import BulkReader
from penstock.kv.bucket_watcher import NatsWatcher
from penstock.kv.contract import BucketConfig
from penstock.kv.errors import (
    BucketNotFound,
    ConnectionFailed,
    CursorExpired,
    LogReset,
)
from penstock.kv.kv_connection import NatsConfig, NatsConnection
from penstock.kv.kv_types import CaughtUp, Scope, WatchCursor
from support.kv import Seen, watching

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from penstock.kv.bucket import NatsBucket
    from support.kv import Maker
    from support.servers import Starter

QUICK = 0.2


async def fill(bucket: NatsBucket, count: int) -> None:
    for number in range(1, count + 1):
        await bucket.writer().put(f"k{number}", b"%d" % number)


async def recreate(bucket: NatsBucket, jetstream: JetStreamContext) -> None:
    await jetstream.delete_stream(f"KV_{bucket.name}")
    config = dict(bucket.stream_config)
    await jetstream.add_stream(
        name=config["name"], subjects=config["subjects"], max_msgs_per_subject=1
    )


# -- while away


async def test_cursor_older_than_log_has_expired(
    bucket: NatsBucket, jetstream: JetStreamContext
) -> None:
    await fill(bucket, 9)
    await jetstream.purge_stream(f"KV_{bucket.name}", seq=6)
    with pytest.raises(CursorExpired) as expired:
        async with watching(bucket).watch(Scope.all(), after=WatchCursor.of(4)):
            pass
    assert (expired.value.first_seq, expired.value.cursor) == (6, WatchCursor.of(4))
    assert expired.value.bucket == bucket.name
    async with watching(bucket).watch(Scope.all(), after=WatchCursor.of(5)) as watch:
        seen = await Seen(watch).until_caught_up()
    assert [update.revision for update in seen.updates] == [6, 7, 8, 9]


async def test_aged_out_values_expire_cursor(make: Maker) -> None:
    bucket = await make(BucketConfig(max_age=0.5))
    await fill(bucket, 3)
    watcher = watching(bucket)
    async with asyncio.timeout(20):
        while (await watcher.log_info()).first_seq < 4:
            pass
    assert (await watcher.log_info()).evicts_current
    with pytest.raises(CursorExpired):
        async with watcher.watch(Scope.all(), after=WatchCursor.of(1)):
            pass
    async with watcher.watch(Scope.all(), after=WatchCursor.of(3)) as watch:
        await Seen(watch).until_caught_up()


async def test_full_bucket_that_drops_the_oldest_expires_cursors(make: Maker) -> None:
    bucket = await make(BucketConfig(discard="old", max_bytes=1000))
    for number in range(20):
        await bucket.writer().put(f"k{number}", bytes(100))
    info = await watching(bucket).log_info()
    assert info.evicts_current
    assert info.first_seq > 2
    with pytest.raises(CursorExpired):
        async with watching(bucket).watch(Scope.prefix("k."), after=WatchCursor.of(1)):
            pass


async def test_cursor_ahead_of_log_is_of_another_log(bucket: NatsBucket) -> None:
    await fill(bucket, 3)
    with pytest.raises(LogReset, match="ends at 3"):
        async with watching(bucket).watch(Scope.all(), after=WatchCursor.of(4)):
            pass


async def test_recreated_bucket_is_detected_by_its_identity(
    bucket: NatsBucket, jetstream: JetStreamContext
) -> None:
    await fill(bucket, 3)
    before = (await watching(bucket).log_info()).identity
    await recreate(bucket, jetstream)
    await fill(bucket, 5)
    with pytest.raises(LogReset) as reset:
        async with watching(bucket).watch(Scope.all(), after=WatchCursor.of(3), identity=before):
            pass
    assert reset.value.old_identity == before
    assert reset.value.new_identity == (await watching(bucket).log_info()).identity


async def test_deleted_bucket_is_not_found(bucket: NatsBucket, jetstream: JetStreamContext) -> None:
    await jetstream.delete_stream(f"KV_{bucket.name}")
    for after in (WatchCursor.NONE, WatchCursor.of(1)):
        with pytest.raises(BucketNotFound):
            async with watching(bucket).watch(Scope.all(), after=after):
                pass


# -- while watching


async def test_consumer_deleted_by_operator_is_recreated(
    bucket: NatsBucket, jetstream: JetStreamContext
) -> None:
    async with watching(bucket).watch(Scope.all(), heartbeat=QUICK) as watch:
        seen = await Seen(watch).until_caught_up()
        (consumer,) = await jetstream.consumers_info(f"KV_{bucket.name}")
        await jetstream.delete_consumer(f"KV_{bucket.name}", consumer.name)
        await bucket.writer().put("k", b"1")
        await seen.until(lambda seen: bool(seen.updates))
    assert seen.puts == [("k", b"1")]
    assert seen.events.count(CaughtUp()) == 1


async def test_bucket_deleted_under_watch_ends_it(
    bucket: NatsBucket, jetstream: JetStreamContext
) -> None:
    async with watching(bucket).watch(Scope.all(), heartbeat=QUICK) as watch:
        seen = await Seen(watch).until_caught_up()
        await jetstream.delete_stream(f"KV_{bucket.name}")
        with pytest.raises(BucketNotFound):
            await seen.until_end()


async def test_bucket_recreated_under_watch_ends_it(
    bucket: NatsBucket, jetstream: JetStreamContext
) -> None:
    await fill(bucket, 2)
    async with watching(bucket).watch(Scope.all(), heartbeat=QUICK) as watch:
        seen = await Seen(watch).until_caught_up()
        await recreate(bucket, jetstream)
        await fill(bucket, 4)
        with pytest.raises(LogReset) as reset:
            await seen.until_end()
    assert reset.value.cursor == WatchCursor.of(2)


async def test_overrun_is_reported_before_later_events(
    bucket: NatsBucket, jetstream: JetStreamContext
) -> None:
    """Records vanish while no consumer delivers them: it was deleted before."""
    await fill(bucket, 2)
    stream = f"KV_{bucket.name}"
    async with watching(bucket).watch(Scope.all(), heartbeat=QUICK) as watch:
        seen = await Seen(watch).until_caught_up()
        (consumer,) = await jetstream.consumers_info(stream)
        await jetstream.delete_consumer(stream, consumer.name)
        await fill(bucket, 6)
        await jetstream.purge_stream(stream, seq=7)
        with pytest.raises(CursorExpired) as expired:
            await seen.until_end()
    assert expired.value.first_seq == 7
    assert [update.revision for update in seen.updates] == [1, 2]


@pytest.mark.parametrize("scope", [Scope.all(), Scope.prefix("a.")], ids=["whole", "part"])
async def test_watch_too_slow_for_dropping_bucket_reports_overrun(
    make: Maker, scope: Scope
) -> None:
    """Flow control holds the server back without a reader; meanwhile the bucket drops values."""
    bucket = await make(BucketConfig(max_bytes=1 << 20, discard="old"))
    async with watching(bucket).watch(scope) as watch:
        seen = await Seen(watch).until_caught_up()
        for n in range(60):
            await bucket.writer().put(f"a.{n}", bytes(300_000))
        with pytest.raises(CursorExpired):
            await seen.until_end()
    revisions = [update.revision for update in seen.updates]
    assert revisions == list(range(1, len(revisions) + 1))
    assert len(revisions) < 57  # so what was lost is more than one record


async def test_watch_survives_server_restart(start: Starter) -> None:
    server = start("", "-js", "-sd", "store")
    async with NatsConnection(NatsConfig.of(server.url)) as connection:
        bucket = await connection.bucket("b", BucketConfig())
        await fill(bucket, 3)
        async with watching(bucket).watch(Scope.all(), heartbeat=QUICK) as watch:
            seen = await Seen(watch).until_caught_up()
            await asyncio.to_thread(server.restart)
            async with NatsConnection(NatsConfig.of(server.url)) as again:
                await (await again.bucket("b")).writer().put("after", b"1")
            await seen.until(lambda seen: len(seen.updates) == 4)
    assert [update.revision for update in seen.updates] == [1, 2, 3, 4]
    assert seen.events.count(CaughtUp()) == 1


async def test_unreachable_server_ends_watch(start: Starter) -> None:
    server = start("", "-js", "-sd", "store")
    async with NatsConnection(NatsConfig.of(server.url)) as connection:
        await connection.bucket("b", BucketConfig())
        watcher = NatsWatcher("b", BulkReader.to(server.url, reconnect_seconds=0.5))
        async with watcher.watch(Scope.all(), heartbeat=QUICK) as watch:
            seen = await Seen(watch).until_caught_up()
            server.kill()
            with pytest.raises(ConnectionFailed):
                await seen.until_end()
