"""A stream on either server, and two ways to read it: the bulk reader and nats-py."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import nats
import pytest

from penstock.bulk import BulkReader
from support.bulk import Made

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client
    from nats.js import JetStreamContext

    from support.servers import Implementation, ServerPool, ServerUnderTest

STORE_FLAGS = ("-js", "-sd", "store")
_numbers = itertools.count(1)


@pytest.fixture
def server(pool: ServerPool, implementation: Implementation) -> ServerUnderTest:
    """The shared server with JetStream."""
    return pool.get(implementation, flags=STORE_FLAGS)


@pytest.fixture
async def client(server: ServerUnderTest) -> AsyncIterator[Client]:
    connected = await nats.connect(server.url)
    yield connected
    await connected.close()


@pytest.fixture
def jetstream(client: Client) -> JetStreamContext:
    return client.jetstream()


@pytest.fixture
def reader(server: ServerUnderTest) -> BulkReader:
    return BulkReader.to(server.url)


@pytest.fixture
async def stream(jetstream: JetStreamContext) -> AsyncIterator[Made]:
    name = f"BULK{next(_numbers)}"
    await jetstream.add_stream(name=name, subjects=[f"{name}.>"])
    yield Made(name, jetstream)
    await jetstream.delete_stream(name)
