"""What a read costs on the wire, on both servers: no message beyond the rows, no unread payload."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from penstock.bulk import BulkReader
from support.patience import PATIENCE_SECONDS
from support.proxy import Proxy

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext

    from support.bulk import Made
    from support.servers import ServerUnderTest

COUNT = 20_000
DELETED_EACH = 7
MESSAGES_PER_ROW_MAX = 1.1
AT_ONCE = 8
MARK = b"$JS.ACK."


class Wire:
    """Counts what a server sends through a proxy: bytes, and deliveries of consumers."""

    def __init__(self) -> None:
        self.byte_count = 0
        self.deliveries = 0
        self._tails: dict[int, bytes] = {}

    def __call__(self, connection: int, data: bytes) -> bytes:
        seen = self._tails.get(connection, b"") + data
        self.byte_count += len(data)
        self.deliveries += seen.count(MARK)
        self._tails[connection] = seen[-(len(MARK) - 1) :]
        return data


async def fill(client: Client, stream: Made, count: int, payload: bytes) -> None:
    for number in range(count):
        await client.publish(f"{stream.name}.{number % 5}", payload)
        if number % 1000 == 0:
            await client.flush()
    await until_stored(client, stream, count)


async def until_stored(client: Client, stream: Made, count: int) -> None:
    jetstream = client.jetstream()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await jetstream.stream_info(stream.name)).state.messages < count:
            await client.flush()


async def read_in_parts(reader: BulkReader, stream: str, parts: int, **more: object) -> list[int]:
    """Every range of so many; the sequences that came."""
    slots = asyncio.Semaphore(AT_ONCE)
    cuts = [1 + COUNT * number // parts for number in range(parts + 1)]

    async def read(start: int, stop: int) -> list[int]:
        async with slots:
            batches = reader.range(stream, start=start, stop=stop, **more)  # type: ignore[arg-type]
            return [row[1] async for batch in batches for row in batch.rows()]

    found = await asyncio.gather(*map(read, cuts[:-1], cuts[1:]))
    return [seq for part in found for seq in part]


@pytest.mark.parametrize("parts", [1, 50, 200])
async def test_server_sends_no_more_than_ranges_hold(
    server: ServerUnderTest, client: Client, jetstream: JetStreamContext, stream: Made, parts: int
) -> None:
    await fill(client, stream, COUNT, bytes(40))
    wire = Wire()
    async with Proxy(server.port, wire, chunk_bytes=1 << 16) as proxy:
        reader = BulkReader.to(proxy.url)
        assert await read_in_parts(reader, stream.name, parts) == list(range(1, COUNT + 1))
        assert wire.deliveries <= COUNT

        wire.deliveries = 0
        filters = [f"{stream.name}.1", f"{stream.name}.3"]
        rows = await read_in_parts(reader, stream.name, parts, filters=filters)
        assert rows == [seq for seq in range(1, COUNT + 1) if seq % 5 in (2, 4)]
        assert wire.deliveries <= MESSAGES_PER_ROW_MAX * len(rows)


async def test_gaps_cause_no_extra_traffic(
    server: ServerUnderTest, client: Client, jetstream: JetStreamContext, stream: Made
) -> None:
    await fill(client, stream, COUNT, bytes(40))
    gone = set(range(3000, 9000, DELETED_EACH)) | {COUNT}
    for seq in gone:
        await jetstream.delete_msg(stream.name, seq)
    wire = Wire()
    async with Proxy(server.port, wire, chunk_bytes=1 << 16) as proxy:
        rows = await read_in_parts(BulkReader.to(proxy.url), stream.name, 50)
    assert rows == [seq for seq in range(1, COUNT + 1) if seq not in gone]
    assert wire.deliveries <= MESSAGES_PER_ROW_MAX * len(rows)


async def test_headers_only_transfers_no_payload(
    server: ServerUnderTest, client: Client, stream: Made
) -> None:
    await fill(client, stream, 500, bytes(8192))
    wire = Wire()
    async with Proxy(server.port, wire) as proxy:
        batches = BulkReader.to(proxy.url).range(stream.name, headers_only=True)
        assert sum([batch.count async for batch in batches]) == 500
    assert wire.byte_count < 0.05 * 500 * 8192


async def test_messages_of_very_different_sizes_arrive(
    client: Client, stream: Made, reader: BulkReader
) -> None:
    """The mean size says that thousands fit into a request, and then each is large."""
    for number in range(3000):
        await client.publish(f"{stream.name}.a", b"%d" % number)
    for _ in range(60):
        await client.publish(f"{stream.name}.b", bytes(900_000))
    await until_stored(client, stream, 3060)
    sizes = [len(row[4]) async for batch in reader.range(stream.name) for row in batch.rows()]
    assert len(sizes) == 3060
    assert sizes.count(900_000) == 60
