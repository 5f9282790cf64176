"""The queue between a connection and its reader: order, and bounds."""

from __future__ import annotations

import asyncio

import pytest

from penstock.bulk import subscription_feed as feeds
from penstock.bulk.record_batch import Batch
from penstock.bulk.subscription_feed import CaughtUpMark, Status, SubscriptionFeed
from penstock.bulk.wire_reader import WireReader
from support.deliveries import delivery

SID = 7


class Source:
    """An intake with a feed on it."""

    def __init__(self, *, whole_batches: bool = False) -> None:
        self.intake = WireReader(frame_bytes_max=1 << 20, records_max=100, bytes_max=1 << 20)
        self.intake.follow(SID)
        self.rooms = 0
        self.feed = SubscriptionFeed(self.intake, self._room, whole_batches=whole_batches)
        self._seq = 0

    def _room(self) -> None:
        self.rooms += 1

    def record(self, payload: bytes) -> None:
        self._seq += 1
        data = delivery("a", payload, seq=self._seq, consumer_seq=self._seq)
        self.intake.space()[: len(data)] = data
        self.intake.filled(len(data))
        assert self.intake.next() is None


def payloads(item: object) -> list[bytes]:
    assert isinstance(item, Batch)
    return [row[4] for row in item.rows()]


async def test_records_come_together_until_something_is_reported_between_them() -> None:
    source = Source()
    source.record(b"1")
    source.record(b"2")
    source.feed.put(CaughtUpMark())
    source.record(b"3")
    assert payloads(await source.feed.next(1)) == [b"1", b"2"]
    assert await source.feed.next(1) == CaughtUpMark()
    assert payloads(await source.feed.next(1)) == [b"3"]


async def test_reader_that_waits_is_woken() -> None:
    source = Source()
    waiting = asyncio.ensure_future(source.feed.next(10))
    await asyncio.sleep(0)
    source.feed.wake()
    assert not waiting.done()
    source.record(b"1")
    source.feed.wake()
    assert payloads(await waiting) == [b"1"]


async def test_batch_is_awaited_until_later_record() -> None:
    source = Source(whole_batches=True)
    waiting = asyncio.ensure_future(source.feed.next(10))
    for payload in (b"1", b"2"):
        await asyncio.sleep(0)
        source.record(payload)
        source.feed.wake()
    await asyncio.sleep(0)
    assert not waiting.done()
    source.feed.put(CaughtUpMark())
    source.feed.wake()
    assert payloads(await waiting) == [b"1", b"2"]
    assert await source.feed.next(1) == CaughtUpMark()


async def test_batch_that_does_not_fill_is_passed_on_when_waiting_ends() -> None:
    source = Source(whole_batches=True)
    source.record(b"1")
    assert payloads(await source.feed.next(0.001)) == [b"1"]
    with pytest.raises(TimeoutError):
        await source.feed.next(0.001)


async def test_waiting_ends_in_time() -> None:
    with pytest.raises(TimeoutError):
        await Source().feed.next(0.001)


async def test_unread_feed_is_full_and_has_room_once_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feeds, "FEED_BYTES_MAX", 100)
    source = Source()
    source.record(bytes(60))
    source.feed.flush()
    assert not source.feed.is_full
    source.record(bytes(60))
    source.feed.flush()
    assert source.feed.is_full
    await source.feed.next(1)
    assert (source.feed.is_full, source.rooms) == (False, 1)


@pytest.mark.parametrize(
    ("header", "code", "text"),
    [
        (b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 7\r\n\r\n", 100, "Idle Heartbeat"),
        (b"NATS/1.0 409 Consumer Deleted\r\n\r\n", 409, "Consumer Deleted"),
        (b"NATS/1.0\r\nA: b\r\n\r\n", 0, ""),
        (b"", 0, ""),
    ],
)
def test_status_is_read_off_the_first_line(header: bytes, code: int, text: str) -> None:
    status = Status.read(header, "")
    assert (status.code, status.text) == (code, text)


def test_numbers_of_status_are_found_or_missing() -> None:
    status = Status.read(b"NATS/1.0 100 Idle\r\nA: 7\r\nB: x\r\n\r\n", "")
    assert [status.number(key) for key in (b"A", b"B", b"C")] == [7, -1, -1]
