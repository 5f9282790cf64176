"""Pings from the server, and what becomes of a client that does not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.wire import Wire

if TYPE_CHECKING:
    from support.servers import Implementation, ServerPool, ServerUnderTest

CONFIG = 'ping_interval: "80ms"\nping_max: {}\n'


@pytest.fixture
def impatient(pool: ServerPool, implementation: Implementation) -> ServerUnderTest:
    """A server that pings often and gives up after two."""
    return pool.get(implementation, CONFIG.format(2))


def test_client_without_pong_is_stale(impatient: ServerUnderTest) -> None:
    with Wire(impatient.address, answers_pings=False) as wire:
        wire.connect()
        wire.expect("PING", "PING", "-ERR 'Stale Connection'")
        wire.expect_closed()


def test_client_without_connect_is_pinged_too(impatient: ServerUnderTest) -> None:
    with Wire(impatient.address, answers_pings=False) as wire:
        wire.expect("PING", "PING", "-ERR 'Stale Connection'")
        wire.expect_closed()


def test_ping_max_pings_may_be_outstanding(
    pool: ServerPool, implementation: Implementation
) -> None:
    server = pool.get(implementation, CONFIG.format(4))
    with Wire(server.address, answers_pings=False) as wire:
        wire.connect()
        wire.expect(*["PING"] * 4, "-ERR 'Stale Connection'")
        wire.expect_closed()


def test_pong_keeps_connection(impatient: ServerUnderTest) -> None:
    with Wire(impatient.address, answers_pings=False) as wire:
        wire.connect()
        for _ in range(5):
            wire.expect("PING")
            wire.send("PONG\r\n")
        wire.expect_quiet()


def test_one_pong_answers_all_outstanding_pings(impatient: ServerUnderTest) -> None:
    with Wire(impatient.address, answers_pings=False) as wire:
        wire.connect()
        wire.expect("PING", "PING")
        wire.send("PONG\r\n")
        wire.expect("PING", "PING", "-ERR 'Stale Connection'")
        wire.expect_closed()
