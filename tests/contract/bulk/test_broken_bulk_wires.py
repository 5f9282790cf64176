"""A wire that is cut, and one that swallows deliveries: still every record once, in order."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from penstock.bulk import BulkReader
from support.patience import PATIENCE_SECONDS
from support.proxy import Proxy

if TYPE_CHECKING:
    from support.bulk import Made
    from support.servers import ServerUnderTest

RECORDS = 300
DELIVERY = re.compile(rb"MSG \S+ \d+ \$JS\.ACK\.\S+ 200\r\n.{200}\r\n", re.DOTALL)


async def fill(stream: Made) -> None:
    for number in range(RECORDS):
        await stream.publish(f"s{number % 7}", b"%08d" % number * 25)


async def read(reader: BulkReader, stream: Made) -> list[tuple[int, bytes]]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return [
            (row[1], row[4]) async for batch in reader.range(stream.name) for row in batch.rows()
        ]


EXPECTED = [(number + 1, b"%08d" % number * 25) for number in range(RECORDS)]


@pytest.mark.parametrize("after", [9_000, 17_001, 30_013])
async def test_repeatedly_cut_connection_delivers_every_record_once(
    stream: Made, server: ServerUnderTest, after: int
) -> None:
    await fill(stream)
    passed: Counter[int] = Counter()

    def cut(connection: int, data: bytes) -> bytes | None:
        passed[connection] += len(data)
        return None if passed[connection] > after else data

    async with Proxy(server.port, cut) as proxy:
        assert await read(BulkReader.to(proxy.url), stream) == EXPECTED
        assert proxy.connections > 2


async def test_dropped_delivery_is_detected_and_fetched(
    stream: Made, server: ServerUnderTest
) -> None:
    await fill(stream)
    swallowed: list[bytes] = []

    def swallow(connection: int, data: bytes) -> bytes:
        found = DELIVERY.search(data)
        if found is None or len(swallowed) == 5:
            return data
        swallowed.append(found[0])
        return data[: found.start()] + data[found.end() :]

    async with Proxy(server.port, swallow) as proxy:
        assert await read(BulkReader.to(proxy.url), stream) == EXPECTED
    assert swallowed
