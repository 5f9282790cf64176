"""Following a stream without end: order, heartbeats, and what breaks it, on both servers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import nats
import pytest

from penstock.bulk import Batch, BulkReader, EndReached, Idle, OrderedConsumer, Refused
from support.bulk import Made
from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.js import JetStreamContext

    from penstock.bulk.ordered_consumer import Event
    from support.servers import Starter

QUICK = 0.2


class Followed:
    """What came so far."""

    def __init__(self, following: OrderedConsumer) -> None:
        self.following = following
        self.events: list[Event] = []

    async def until(self, condition: Callable[[Followed], bool]) -> Followed:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition(self):
                self.events.append(await self.following.next())
        return self

    @property
    def payloads(self) -> list[bytes]:
        batches = [event for event in self.events if isinstance(event, Batch)]
        return [row[4] for batch in batches for row in batch.rows()]

    @property
    def caught_up(self) -> int:
        return sum(isinstance(event, EndReached) for event in self.events)


async def test_watch_yields_current_records_then_caught_up_then_new_records(
    stream: Made, reader: BulkReader
) -> None:
    for number in range(4):
        await stream.publish(f"{number % 2}", b"%d" % number)
    following = reader.follow(stream.name)
    await following.begin()
    seen = await Followed(following).until(lambda seen: seen.caught_up == 1)
    assert seen.payloads == [b"2", b"3"]
    assert isinstance(seen.events[-1], EndReached)
    await stream.publish("0", b"new")
    await seen.until(lambda seen: len(seen.payloads) == 3)
    assert (seen.payloads[-1], seen.caught_up) == (b"new", 1)
    await following.close()


async def test_watch_from_sequence_yields_every_later_record(
    stream: Made, reader: BulkReader
) -> None:
    for number in range(1, 6):
        await stream.publish("a", b"%d" % number)
    following = reader.follow(stream.name, after=2)
    await following.begin()
    seen = await Followed(following).until(lambda seen: seen.caught_up == 1)
    assert seen.payloads == [b"3", b"4", b"5"]
    await following.close()


async def test_watch_of_empty_stream_is_caught_up_at_once(stream: Made, reader: BulkReader) -> None:
    following = reader.follow(stream.name)
    await following.begin()
    assert isinstance(await following.next(), EndReached)
    await following.close()


async def test_heartbeats_advance_over_filtered_records(stream: Made, reader: BulkReader) -> None:
    await stream.publish("mine")
    following = reader.follow(stream.name, filters=[f"{stream.name}.mine"], heartbeat=QUICK)
    await following.begin()
    for _ in range(5):
        last = await stream.publish("others")
    seen = await Followed(following).until(lambda seen: Idle(last) in seen.events)
    assert following.position == last
    assert seen.caught_up == 1
    await following.close()


async def test_deleted_consumer_is_recreated_after_the_last_record(
    stream: Made, reader: BulkReader, jetstream: JetStreamContext
) -> None:
    await stream.publish("a", b"1")
    following = reader.follow(stream.name, heartbeat=QUICK)
    await following.begin()
    seen = await Followed(following).until(lambda seen: seen.caught_up == 1)
    (consumer,) = await jetstream.consumers_info(stream.name)
    await jetstream.delete_consumer(stream.name, consumer.name)
    await stream.publish("a", b"2")
    await seen.until(lambda seen: len(seen.payloads) == 2)
    assert (seen.payloads, following.recreated, seen.caught_up) == ([b"1", b"2"], 1, 1)
    await following.close()


async def test_deleted_stream_ends_watch_with_its_code(
    reader: BulkReader, jetstream: JetStreamContext
) -> None:
    await jetstream.add_stream(name="GOING", subjects=["going"])
    following = reader.follow("GOING", heartbeat=QUICK)
    await following.begin()
    await jetstream.delete_stream("GOING")
    with pytest.raises(Refused) as refusal:
        await Followed(following).until(lambda seen: False)
    assert refusal.value.err_code == 10059
    await following.close()


async def test_watch_survives_server_restart_without_repeats(
    start: Starter,
) -> None:
    server = start("", "-js", "-sd", "store")
    client = await nats.connect(server.url)
    jetstream = client.jetstream()
    await jetstream.add_stream(name="S", subjects=["S.>"])
    made = Made("S", jetstream)
    await made.publish("a", b"1")
    following = BulkReader.to(server.url).follow("S", heartbeat=QUICK)
    await following.begin()
    seen = await Followed(following).until(lambda seen: seen.caught_up == 1)
    await client.close()

    await asyncio.to_thread(server.restart)
    client = await nats.connect(server.url)
    made = Made("S", client.jetstream())
    await made.publish("a", b"2")
    await seen.until(lambda seen: len(seen.payloads) == 2)
    assert seen.payloads == [b"1", b"2"]
    assert following.recreated >= 1
    await following.close()
    await client.close()


async def test_slow_reader_slows_server_and_loses_nothing(stream: Made, reader: BulkReader) -> None:
    """More than the largest window of flow control, without further requests."""
    payload = bytes(500_000)
    for number in range(80):
        await stream.publish("big", b"%03d" % number + payload)
    following = reader.follow(stream.name, after=0)
    await following.begin()
    seen = await Followed(following).until(lambda seen: len(seen.payloads) >= 1)
    await reader.stream_state(stream.name)
    await seen.until(lambda seen: seen.caught_up == 1)
    assert [one[:3] for one in seen.payloads] == [b"%03d" % number for number in range(80)]
    assert following.recreated == 0
    await following.close()
