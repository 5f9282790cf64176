"""Ranges read without a consumer are the ranges read with one, and nothing is consumed by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from nats.js.api import RetentionPolicy

from penstock.bulk import BulkReader, NotPermitted, Refused
from support.bulk import Made

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.js import JetStreamContext

    from penstock.bulk import Batch
    from support.servers import Starter

Row = tuple[str, int, int, bytes, bytes]


async def rows_of(batches: AsyncIterator[Batch]) -> list[Row]:
    return [row async for batch in batches for row in batch.rows()]


async def fill(stream: Made, count: int) -> None:
    for number in range(count):
        headers = {"Kind": "odd", "Nats-Sequence": "7"} if number % 2 else None
        await stream.publish(f"{number % 3}.x", b"%d" % number, headers=headers)


@pytest.fixture
async def direct(jetstream: JetStreamContext) -> AsyncIterator[Made]:
    await jetstream.add_stream(name="DIRECT", subjects=["DIRECT.>"], allow_direct=True)
    yield Made("DIRECT", jetstream)
    await jetstream.delete_stream("DIRECT")


@pytest.mark.parametrize("batched", [True, False])
async def test_direct_reads_what_consumer_reads(
    direct: Made, jetstream: JetStreamContext, reader: BulkReader, batched: bool
) -> None:
    await fill(direct, 300)
    for seq in (1, 5, 6, 300):
        await jetstream.delete_msg("DIRECT", seq)
    for filters in ([], ["DIRECT.1.>"], ["DIRECT.0.x", "DIRECT.2.*"], ["DIRECT.none"]):
        wanted = await rows_of(reader.range("DIRECT", start=2, stop=290, filters=filters))
        found = await rows_of(
            reader.direct("DIRECT", start=2, stop=290, filters=filters, batched=batched)
        )
        assert found == wanted


@pytest.mark.parametrize("batched", [True, False])
async def test_reading_work_queue_removes_nothing(
    jetstream: JetStreamContext, reader: BulkReader, batched: bool
) -> None:
    await jetstream.add_stream(
        name="QUEUE",
        subjects=["QUEUE.>"],
        retention=RetentionPolicy.WORK_QUEUE,
        allow_direct=batched,
    )
    queue = Made("QUEUE", jetstream)
    await fill(queue, 10)
    rows = await rows_of(reader.direct("QUEUE", start=1, stop=11, batched=batched))
    assert [row[1] for row in rows] == list(range(1, 11))
    assert (await reader.stream_state("QUEUE")).messages == 10
    await jetstream.delete_stream("QUEUE")


async def test_read_starts_at_the_first_record_since_time(direct: Made, reader: BulkReader) -> None:
    await fill(direct, 5)
    times = [row[2] for row in await rows_of(reader.range("DIRECT"))]
    assert await reader.first_since("DIRECT", 1) == 1
    assert await reader.first_since("DIRECT", times[2]) == 3
    assert await reader.first_since("DIRECT", times[2] + 1) == 4
    assert await reader.first_since("DIRECT", times[4] + 1) is None


async def test_missing_stream_is_refused(reader: BulkReader) -> None:
    with pytest.raises(Refused, match="10059"):
        await reader.first_since("NONE", 1)


async def test_missing_permission_is_reported_at_once(start: Starter) -> None:
    one = start(
        """
        jetstream: { store_dir: "store" }
        authorization: { users: [
          { user: a, password: a, permissions: {
              publish: { deny: ["$JS.API.STREAM.INFO.>"] } } }
          { user: b, password: b, permissions: { subscribe: { deny: ["_INBOX.>"] } } }
        ] }
        """
    )
    for user in ("a", "b"):
        reader = BulkReader.to(one.url.replace("//", f"//{user}:{user}@"))
        with pytest.raises(NotPermitted):
            await reader.stream_state("ANY")
