"""The floor guard of a watch: a skip is looked into before what follows it is handed on."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.bulk.bulk_requests import StreamSummary
from penstock.bulk.errors import ConnectionLost
from penstock.bulk.ordered_consumer import EndReached as StreamCaughtUp
from penstock.bulk.ordered_consumer import Event, Idle, Quiet
from penstock.bulk.record_batch import Batch
from penstock.kv.bucket_watcher import NatsWatcher, Watch
from penstock.kv.errors import CursorExpired, LogReset, WatchError
from penstock.kv.kv_types import Bookmark, CaughtUp, Scope, WatchCursor


def batch(*seqs: int) -> Batch:
    count = len(seqs)
    numbers = b"".join(seq.to_bytes(8, "little") for seq in seqs)
    none = bytes(4 * (count + 1))
    ends = b"".join((8 * n).to_bytes(4, "little") for n in range(count + 1))
    return Batch(
        count, 0, numbers, bytes(8 * count), b"$KV.b.kk" * count, ends, b"", none, b"", none
    )


class Bulk:
    """A reader and its following, scripted. The log begins at 1, and later at `first_seq`."""

    def __init__(
        self,
        *events: Event | Exception,
        first_seq: int = 1,
        last_seq: int = 100,
        config: dict[str, Any] | None = None,
        penstock: dict[str, Any] | None = None,
    ) -> None:
        self.events = list(events)
        self.first_seq = first_seq
        self.last_seq = last_seq
        self.config = config or {}
        self.penstock = penstock
        self.created = 1
        self.asked = 0
        self.recreated = 0
        self.position: int | None = None

    def follow(self, stream: str, *, after: int | None, check: Any, **more: Any) -> Bulk:
        self.after, self.check = after, check
        return self

    async def begin(self) -> None:
        if self.after is not None:
            self.check(self._state(1), self.after)

    async def close(self) -> None: ...

    async def state(self) -> StreamSummary:
        self.asked += 1
        return self._state(self.first_seq)

    def _state(self, first_seq: int) -> StreamSummary:
        return StreamSummary(
            "KV_b",
            self.created,
            first_seq,
            self.last_seq,
            9,
            self.config,
            penstock=self.penstock,
        )

    async def next(self) -> Event:
        event = self.events.pop(0)
        if isinstance(event, Exception):
            raise event
        if isinstance(event, Batch):
            self.position = event.last
        return event


def watch(bulk: Bulk, scope: Scope | None = None, after: int | None = None) -> Watch:
    made: Any = bulk
    watcher = NatsWatcher("b", made)
    cursor = WatchCursor.NONE if after is None else WatchCursor.of(after)
    return watcher.watch(scope or Scope.all(), after=cursor)


async def revisions(watch: Watch) -> list[int]:
    return [event.revision for event in await watch.next_events()]  # type: ignore[union-attr]


async def test_without_skip_server_is_not_asked() -> None:
    bulk = Bulk(batch(4, 5), batch(6))
    async with watch(bulk, after=3) as one:
        assert await revisions(one) == [4, 5]
        assert await revisions(one) == [6]
    assert bulk.asked == 0


async def test_skip_over_overwritten_records_is_harmless() -> None:
    bulk = Bulk(batch(4, 9), first_seq=2)
    async with watch(bulk, after=3) as one:
        assert await revisions(one) == [4, 9]
    assert bulk.asked == 1


async def test_skip_before_log_expires_cursor_before_any_delivery() -> None:
    async with watch(Bulk(batch(4), batch(5, 9), first_seq=8), after=3) as one:
        assert await revisions(one) == [4]
        with pytest.raises(CursorExpired) as expired:
            await one.next_events()
    assert (expired.value.first_seq, expired.value.cursor) == (8, WatchCursor.of(4))


async def test_listing_may_skip_but_what_comes_after_it_may_not() -> None:
    bulk = Bulk(batch(4, 9), StreamCaughtUp(), batch(12), first_seq=11, last_seq=9)
    async with watch(bulk) as one:
        assert await revisions(one) == [4, 9]
        assert await one.next_events() == (CaughtUp(),)
        with pytest.raises(CursorExpired):
            await one.next_events()


async def test_updates_after_listing_of_empty_bucket_must_not_skip() -> None:
    bulk = Bulk(StreamCaughtUp(), batch(10), batch(13), first_seq=12, last_seq=9)
    async with watch(bulk) as one:
        assert await one.next_events() == (Bookmark(WatchCursor.of(9)), CaughtUp())
        assert await revisions(one) == [10]
        with pytest.raises(CursorExpired) as expired:
            await one.next_events()
    assert expired.value.cursor == WatchCursor.of(10)


async def test_narrower_scope_skips_all_time() -> None:
    bulk = Bulk(batch(50), first_seq=40)
    async with watch(bulk, Scope.prefix("k."), after=3) as one:
        assert await revisions(one) == [50]
    assert bulk.asked == 0


@pytest.mark.parametrize(
    "config",
    [{"max_age": 1}, {"allow_msg_ttl": True}, {"discard": "old", "max_bytes": 9}],
    ids=["age", "ttl", "full"],
)
@pytest.mark.parametrize("is_listed", [False, True])
async def test_narrower_scope_of_bucket_that_drops_values_does_not_skip_what_it_dropped(
    config: dict[str, Any], is_listed: bool
) -> None:
    begins = (batch(3), StreamCaughtUp()) if is_listed else ()
    bulk = Bulk(*begins, batch(20), batch(50), first_seq=21, config=config)
    async with watch(bulk, Scope.prefix("k."), after=None if is_listed else 3) as one:
        for _ in begins:
            await one.next_events()
        bulk.first_seq = 4
        assert await revisions(one) == [20]
        bulk.first_seq = 22
        with pytest.raises(CursorExpired) as expired:
            await one.next_events()
    assert (expired.value.first_seq, expired.value.cursor) == (22, WatchCursor.of(20))


async def test_heartbeat_moves_frontier() -> None:
    bulk = Bulk(Idle(20), batch(21), first_seq=20)
    async with watch(bulk, after=3) as one:
        assert await one.next_events() == (Bookmark(WatchCursor.of(20)),)
        assert await revisions(one) == [21]
    assert bulk.asked == 0


async def test_heartbeat_without_news_is_no_bookmark() -> None:
    async with watch(Bulk(Idle(3), batch(4)), after=3) as one:
        assert await revisions(one) == [4]


async def test_bucket_recreated_while_listing_began_is_reset() -> None:
    bulk = Bulk()

    async def begin() -> None:
        bulk.created = 2

    bulk.begin = begin  # type: ignore[method-assign]
    with pytest.raises(LogReset):
        async with watch(bulk):
            pass


async def test_silent_server_is_asked_whether_it_still_has_log() -> None:
    bulk = Bulk(batch(4), Quiet(), batch(5), Quiet())
    async with watch(bulk, after=3) as one:
        assert await revisions(one) == [4]
        heard = one.heard_at
        assert await revisions(one) == [5]
        assert (bulk.asked, one.heard_at != heard) == (1, True)
        bulk.created = 2
        with pytest.raises(LogReset):
            await one.next_events()


async def test_watch_that_breaks_reports_how_far_it_came() -> None:
    async with watch(Bulk(batch(4), ConnectionLost("gone")), after=3) as one:
        await one.next_events()
        with pytest.raises(WatchError) as broken:
            await one.next_events()
    assert (broken.value.cursor, broken.value.bucket) == (WatchCursor.of(4), "b")


# -- where the server reports its losses


def telling(loss_floor: int, incarnation: str = "ab") -> dict[str, Any]:
    return {"incarnation": incarnation, "loss_floor": loss_floor}


async def test_log_that_begins_after_skip_without_losses_is_harmless() -> None:
    bulk = Bulk(batch(4, 9), first_seq=8, penstock=telling(0))
    async with watch(bulk, after=3) as one:
        assert await revisions(one) == [4, 9]
    assert bulk.asked == 1


async def test_loss_after_skip_expires_cursor_wherever_log_begins() -> None:
    bulk = Bulk(batch(4), batch(5, 9), penstock=telling(3))
    async with watch(bulk, after=3) as one:
        assert await revisions(one) == [4]
        bulk.penstock = telling(6)
        with pytest.raises(CursorExpired, match="lost 6"):
            await one.next_events()


async def test_loss_at_the_end_expires_cursor_before_it_moves_there() -> None:
    bulk = Bulk(batch(4), Idle(4), Idle(7), penstock=telling(3))
    async with watch(bulk, after=3) as one:
        assert await revisions(one) == [4]
        bulk.penstock = telling(7)
        with pytest.raises(CursorExpired):
            await one.next_events()
    assert one.cursor == WatchCursor.of(4)


async def test_of_other_keys_many_may_be_lost() -> None:
    bulk = Bulk(batch(50), penstock=telling(3), config={"max_age": 1})
    async with watch(bulk, Scope.prefix("k."), after=3) as one:
        bulk.penstock = telling(49)
        assert await revisions(one) == [50]


async def test_bucket_put_back_from_backup_is_another_one() -> None:
    bulk = Bulk(batch(4), penstock=telling(0))
    async with watch(bulk, after=3) as one:
        had = one.identity
    bulk.penstock = telling(0, "cd")
    made: Any = bulk
    with pytest.raises(LogReset):
        async with NatsWatcher("b", made).watch(Scope.all(), after=WatchCursor.of(3), identity=had):
            pass
