"""Two servers that differ in one thing: one has compiled lanes, the other has none.

Whatever is done to both must come out the same. Both sync before they answer, or both later.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock import ThreadedServer
from penstock.server.config.options import JetStreamOptions, Options
from support.jetstream import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

LAZY_SYNC_NS = 120 * 10**9


@contextmanager
def twins(
    directories: pytest.TempPathFactory, *, lazy: bool
) -> Iterator[tuple[ThreadedServer, ThreadedServer]]:
    """The one with lanes, and the one without."""
    with (
        _started(str(directories.mktemp("fast")), lazy=lazy) as fast,
        _started(str(directories.mktemp("slow")), lazy=lazy) as slow,
    ):
        edge = slow._server.service.jetstream
        assert edge is not None
        edge.has_lanes = False
        yield fast, slow


@contextmanager
def clients_of(servers: tuple[ThreadedServer, ThreadedServer]) -> Iterator[tuple[Client, Client]]:
    """A client of each."""
    fast, slow = (Client(_address(server)) for server in servers)
    yield fast, slow
    fast.close()
    slow.close()


def _started(directory: str, *, lazy: bool) -> ThreadedServer:
    syncing = JetStreamOptions(sync_interval_ns=LAZY_SYNC_NS if lazy else 0)
    options = Options(
        host="127.0.0.1", port=-1, jetstream=True, store_dir=directory, jetstream_options=syncing
    )
    return ThreadedServer(options=options)


def _address(server: ThreadedServer) -> tuple[str, int]:
    host, _, port = server.url.removeprefix("nats://").rpartition(":")
    return host, int(port)
