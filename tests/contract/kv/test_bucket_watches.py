"""What a watch of a bucket tells, in which order, and where it may be taken up again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from penstock.kv.bucket_watcher import NatsWatcher
from penstock.kv.contract import BucketConfig
from penstock.kv.kv_types import Bookmark, CaughtUp, Op, Scope, WatchCursor
from support.kv import Seen, watching

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from penstock.kv.bucket import NatsBucket
    from penstock.kv.bucket_watcher import Watch
    from penstock.kv.contract import KvWatcher
    from support.kv import Maker
    from support.servers import ServerUnderTest

QUICK = 0.2


async def seen_of(watch: Watch) -> Seen:
    return await Seen(watch).until_caught_up()


async def test_watch_yields_current_values_and_markers_then_caught_up(
    bucket: NatsBucket,
) -> None:
    writer = bucket.writer()
    await writer.put("a", b"1")
    await writer.put("b", b"2")
    await writer.put("a", b"3")
    await writer.delete("b")
    async with watching(bucket).watch(Scope.all()) as watch:
        seen = await seen_of(watch)
    told = [(update.op, update.key, update.value, update.revision) for update in seen.updates]
    assert told == [(Op.PUT, "a", b"3", 3), (Op.DELETE, "b", b"", 4)]
    assert seen.events[-1] == CaughtUp()
    assert seen.updates[0].created is not None
    assert watch.cursor == WatchCursor.of(4)


async def test_empty_bucket_is_caught_up_at_once(bucket: NatsBucket) -> None:
    async with watching(bucket).watch(Scope.all()) as watch:
        async with asyncio.timeout(20):
            assert await anext(watch) == CaughtUp()
        await bucket.writer().put("k", b"1")
        seen = await Seen(watch).until(lambda seen: bool(seen.updates))
    assert (seen.puts, seen.events) == ([("k", b"1")], seen.updates)


async def test_watch_from_cursor_yields_only_later_events(bucket: NatsBucket) -> None:
    writer = bucket.writer()
    for number in range(1, 6):
        await writer.put(f"k{number}", b"%d" % number)
    async with watching(bucket).watch(Scope.all(), after=WatchCursor.of(3)) as watch:
        seen = await seen_of(watch)
        assert seen.puts == [("k4", b"4"), ("k5", b"5")]
    async with watching(bucket).watch(Scope.all(), after=watch.cursor) as watch:
        seen = await seen_of(watch)
    assert seen.puts == []


async def test_one_consumer_covers_several_prefixes(
    bucket: NatsBucket, jetstream: JetStreamContext
) -> None:
    for key in ("a.1", "b.1", "c.1", "ab.1"):
        await bucket.writer().put(key, b"")
    async with watching(bucket).watch(Scope.of(["a.", "c."])) as watch:
        seen = await seen_of(watch)
        assert len(await jetstream.consumers_info(f"KV_{bucket.name}")) == 1
        await bucket.writer().put("b.2", b"")
        await bucket.writer().put("c.2", b"")
        await seen.until(lambda seen: len(seen.updates) == 3)
    assert [update.key for update in seen.updates] == ["a.1", "c.1", "c.2"]
    assert await jetstream.consumers_info(f"KV_{bucket.name}") == []


async def test_bookmarks_move_cursor_over_other_keys(bucket: NatsBucket) -> None:
    watcher = NatsWatcher(bucket.name, bucket.bulk, bookmark_seconds=0)  # type: ignore[arg-type]
    async with watcher.watch(Scope.prefix("mine."), heartbeat=QUICK) as watch:
        seen = await seen_of(watch)
        for number in range(30):
            await bucket.writer().put("others", b"%d" % number)
        await seen.until(lambda seen: Bookmark(WatchCursor.of(30)) in seen.events)
        assert watch.cursor == WatchCursor.of(30)
    marks = [event.cursor.rank for event in seen.events if isinstance(event, Bookmark)]
    assert marks == sorted(set(marks))
    assert seen.updates == []


async def test_bookmarks_come_no_more_often_than_asked(bucket: NatsBucket) -> None:
    async with watching(bucket).watch(Scope.prefix("mine."), heartbeat=QUICK) as watch:
        seen = await seen_of(watch)
        await bucket.writer().put("others", b"")
        await seen.until(lambda seen: len(seen.events) == 2)
        last = await bucket.writer().put("others", b"")
        await bucket.writer().put("mine.1", b"")
        await seen.until(lambda seen: bool(seen.updates))
    assert [type(event) for event in seen.events[:2]] == [CaughtUp, Bookmark]
    assert Bookmark(WatchCursor(last.raw)) not in seen.events


async def test_expired_key_event_has_reason(make: Maker) -> None:
    bucket = await make(BucketConfig(marker_ttl=60.0))
    writer = bucket.ttl_writer()
    assert writer is not None
    async with watching(bucket).watch(Scope.all()) as watch:
        seen = await seen_of(watch)
        await writer.create_with_ttl("k", b"1", 1.0)
        await seen.until(lambda seen: len(seen.updates) == 2)
    gone = seen.updates[1]
    assert (gone.op, gone.key, gone.reason) == (Op.PURGE, "k", "MaxAge")


async def test_purge_of_key_is_event(make: Maker) -> None:
    bucket = await make(BucketConfig(history=3))
    purger = bucket.purger()
    assert purger is not None
    await purger.put("k", b"1")
    await purger.purge("k")
    async with watching(bucket).watch(Scope.all()) as watch:
        seen = await seen_of(watch)
    assert [(update.op, update.reason) for update in seen.updates] == [(Op.PURGE, None)]


async def test_empty_values_are_deletes_if_bucket_is_configured_so(
    bucket: NatsBucket,
) -> None:
    await bucket.writer().put("k", b"")
    meant = NatsWatcher(bucket.name, bucket.bulk, empty_is_delete=True)  # type: ignore[arg-type]
    for watcher, op in ((watching(bucket), Op.PUT), (meant, Op.DELETE)):
        async with watcher.watch(Scope.all()) as watch:
            seen = await seen_of(watch)
        assert [update.op for update in seen.updates] == [op]


async def test_overwritten_records_are_not_losses_while_older_ones_remain(
    bucket: NatsBucket,
) -> None:
    """With one record kept for a key, most of what a late watch wanted is overwritten."""
    writer = bucket.writer()
    await writer.put("still", b"")
    for number in range(20):
        await writer.put("hot", b"%d" % number)
    async with watching(bucket).watch(Scope.all(), after=WatchCursor.of(2)) as watch:
        seen = await seen_of(watch)
    assert seen.puts == [("hot", b"19")]


async def test_events_arrive_in_batches(bucket: NatsBucket) -> None:
    writer = bucket.writer()
    for at in range(0, 2000, 200):
        await asyncio.gather(*(writer.put(f"k{at + n}", b"v") for n in range(200)))
    rounds = 0
    keys: set[str] = set()
    async with watching(bucket).watch(Scope.all()) as watch:
        async for events in watch.batches():
            rounds += 1
            keys |= {event.key for event in events if not isinstance(event, CaughtUp | Bookmark)}
            if CaughtUp() in events:
                break
    assert len(keys) == 2000
    assert rounds < 200


@pytest.mark.parametrize("cursor", [WatchCursor(b"12345"), WatchCursor.of(2**64 - 1)])
async def test_unusable_cursor_is_refused(bucket: NatsBucket, cursor: WatchCursor) -> None:
    watcher: KvWatcher = watching(bucket)
    with pytest.raises(ValueError, match="revision"):
        watcher.watch(Scope.all(), after=cursor)


async def test_watch_satisfies_contract(server: ServerUnderTest, bucket: NatsBucket) -> None:
    watcher: KvWatcher = watching(bucket)
    info = await watcher.log_info()
    assert (info.first_seq, info.last_seq, info.evicts_current) == (0, 0, False)
    assert info.identity.startswith(f"KV_{bucket.name}@")
