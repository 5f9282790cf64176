"""A connection to either server, and a bucket of a test's own on it: fixtures for a conftest."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

import nats
import pytest

from penstock.kv.contract import BucketConfig
from penstock.kv.kv_connection import NatsConfig, NatsConnection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.js import JetStreamContext

    from penstock.kv.bucket import NatsBucket
    from support.kv import Maker
    from support.servers import Implementation, ServerPool, ServerUnderTest

__all__ = ["bucket", "connection", "jetstream", "make", "server"]

STORE_FLAGS = ("-js", "-sd", "store")
_numbers = itertools.count(1)


@pytest.fixture
def server(pool: ServerPool, implementation: Implementation) -> ServerUnderTest:
    """The shared server with JetStream."""
    return pool.get(implementation, flags=STORE_FLAGS)


@pytest.fixture
async def connection(server: ServerUnderTest) -> AsyncIterator[NatsConnection]:
    async with NatsConnection(NatsConfig.of(server.url)) as connected:
        yield connected


@pytest.fixture
async def jetstream(server: ServerUnderTest) -> AsyncIterator[JetStreamContext]:
    """The ecosystem's client, for what operators and other programs do."""
    client = await nats.connect(server.url)
    yield client.jetstream()
    await client.close()


@pytest.fixture
async def make(connection: NatsConnection, jetstream: JetStreamContext) -> AsyncIterator[Maker]:
    made: list[str] = []

    async def maker(config: BucketConfig | None = None) -> NatsBucket:
        name = f"kv{next(_numbers)}"
        made.append(name)
        return await connection.bucket(name, config or BucketConfig())

    yield maker
    for name in made:
        with contextlib.suppress(nats.js.errors.NotFoundError):
            await jetstream.delete_stream(f"KV_{name}")


@pytest.fixture
async def bucket(make: Maker) -> NatsBucket:
    return await make()
