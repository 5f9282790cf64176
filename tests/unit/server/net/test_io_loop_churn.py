"""Connections and subscriptions that come and go leave nothing behind."""

from __future__ import annotations

import gc
import os
import weakref
from typing import TYPE_CHECKING

import pytest

from support.peers import TRANSPORTS, Embedded, several, until
from support.tls import certificates

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.tls import Certificates

pytestmark = pytest.mark.sockets

__all__ = ["certificates"]

MIB = 1 << 20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * PAGE_BYTES


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def growth(once: Callable[[], None], *, warm: int = 2, times: int = 5) -> int:
    """How much memory a repetition keeps, once pools and arenas are filled."""
    for _ in range(warm):
        once()
    gc.collect()
    before = resident_bytes()
    for _ in range(times):
        once()
    gc.collect()
    return (resident_bytes() - before) // times


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_connections_leave_neither_files_nor_subscriptions(
    certificates: Certificates, transport: str
) -> None:
    with Embedded(certificates if transport == "tls" else None) as server:
        interest = server.service.accounts["$G"].interest
        before, subscriptions = open_files(), len(interest)
        for turn in range(10):
            with several(30, lambda: server.peer(transport)) as peers:
                for at, peer in enumerate(peers):
                    peer.connect()
                    peer.send(f"SUB a.{at} 1\r\nSUB a.* q 2\r\nPUB a.{at} 2\r\nhi\r\n")
                peers[turn].reset()
            server.wait_for_connections(0)
        assert len(interest) == subscriptions
        assert open_files() <= before
        assert len(server.service.sessions) == 0


def test_thousand_connections_at_once_all_speak_and_go() -> None:
    with Embedded() as server:
        before = open_files()
        with several(1000, server.peer) as peers:
            for peer in peers:
                peer.send('CONNECT {"verbose":false}\r\nSUB all 1\r\n')
            for peer in peers:
                peer.fence()
            peers[0].send("PUB all 3\r\nyes\r\n")
            peers[0].send("PING\r\n")
            for peer in peers:
                assert [one.payload for one in peer.deliveries()[:1]] == [b"yes"]
        server.wait_for_connections(0)
        assert open_files() <= before


def test_ten_thousand_subscriptions_of_one_connection_go_at_once() -> None:
    with Embedded() as server, server.peer().connect() as publisher:
        interest = server.service.accounts["$G"].interest
        before = len(interest)

        def once() -> None:
            with server.peer().connect() as peer:
                lines = (f"SUB churn.{n}.{'*' if n % 3 else 'x'} {n}\r\n" for n in range(10_000))
                peer.send("".join(lines))
                peer.fence()
                assert len(interest) == before + 10_000
                publisher.send("PUB churn.7.x 0\r\n\r\nPUB churn.9.x 0\r\n\r\n" * 3)
                publisher.fence()
                assert len(peer.deliveries()) == 6
                peer.leave()
            server.wait_for_connections(1)
            # Many subscriptions are dropped in slices, over several turns.
            until(lambda: len(interest) == before, "all subscriptions dropped")

        assert growth(once) < MIB


def test_unfinished_frames_are_forgotten_with_their_connection() -> None:
    with Embedded() as server:

        def once() -> None:
            for _ in range(10):
                with server.peer().connect() as peer:
                    peer.send(b"PUB a 1000000\r\n" + b"x" * 900_000)
                    peer.leave()
            server.wait_for_connections(0)

        assert growth(once) < 2 * MIB


def test_stopped_server_is_forgotten_with_all_it_had() -> None:
    """Its parts know each other, and some know it through the trie, which is not Python."""
    before = open_files()
    with Embedded() as server, server.peer().connect() as peer:
        peer.send("SUB > 1\r\nPUB a 2\r\nhi\r\n")
        assert len(peer.deliveries()) == 1
        service = weakref.ref(server.service)
    del server, peer
    gc.collect()
    assert service() is None
    assert open_files() <= before
