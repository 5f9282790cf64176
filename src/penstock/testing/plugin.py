"""A pytest plugin: a fresh, real server for a test.

Installed with the package; it imports the server only when a test requests a fixture.

    def test_it(penstock_server):
        client = connect(penstock_server.url)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.server.threaded_server import ThreadedServer


@pytest.fixture
def penstock_server() -> Iterator[ThreadedServer]:
    """A server for this test on a free port, in a thread; stopped when the test ends."""
    from penstock.server.threaded_server import ThreadedServer

    with ThreadedServer() as server:
        yield server


@pytest.fixture
def penstock_jetstream(tmp_path: Path) -> Iterator[ThreadedServer]:
    """Like `penstock_server`, with JetStream; its files are in the test's own directory."""
    from penstock.server.threaded_server import ThreadedServer

    with ThreadedServer(jetstream=True, store_dir=str(tmp_path / "penstock")) as server:
        yield server


@pytest.fixture
def make_penstock_server() -> Iterator[Callable[..., ThreadedServer]]:
    """Creates servers with options (the keywords of `penstock.Server`); all stop with the test."""
    from penstock.server.threaded_server import ThreadedServer

    servers: list[ThreadedServer] = []

    def make(**keywords: object) -> ThreadedServer:
        server = ThreadedServer(**keywords)
        server.start()
        servers.append(server)
        return server

    yield make
    for server in servers:
        server.stop()
