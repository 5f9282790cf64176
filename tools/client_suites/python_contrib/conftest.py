"""The fixtures that the archives of nats-micro, nats-request-many and nats-connect-opts lack.

The server is started by `nats-test-server`, which finds `nats-server` in the `PATH` and hands it a
configuration with everything it knows. The port is the one the clients dial by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from nats_contrib.request_many import Client
from nats_contrib.test_server import NATSD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

START_SECONDS_MAX = 20.0


@pytest.fixture
def nats_server() -> Iterator[NATSD]:
    server = NATSD(port=4222, address="localhost", start_timeout=START_SECONDS_MAX)
    server.start(wait=True)
    try:
        yield server
    finally:
        server.stop()


@pytest_asyncio.fixture
async def nats_client(request: pytest.FixtureRequest, nats_server: NATSD) -> AsyncIterator[Client]:
    client = Client()  # the client of nats-py, with one more kind of request
    # The tests of nats-connect-opts connect by themselves: how is what they test.
    if "connect_opts" not in request.module.__name__:
        await client.connect()
    yield client
    await client.close()
