"""Readers that are slow, stuck or closed cost only their own connection."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from support.peers import TRANSPORTS, Embedded, Peer, several, until
from support.tls import certificates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.server.net.client_link import ClientLink
    from support.tls import Certificates

pytestmark = pytest.mark.sockets

__all__ = ["certificates"]

MIB = 1 << 20
MAX_PENDING = 4 * MIB
BLOCK = 64 * 1024
MESSAGE = b"PUB flood %d\r\n%b\r\n" % (BLOCK, b"x" * BLOCK)
SMALL_BUFFER = 4096
DEADLINE_NS = 300_000_000
FOREVER_NS = 3_600_000_000_000


@pytest.fixture
def start() -> Iterator[Callable[..., Embedded]]:
    """Servers with a small bound on what waits; stopped at the end."""
    started: list[Embedded] = []

    def starter(certificates: Certificates | None = None, **options: object) -> Embedded:
        settings = {"max_pending": MAX_PENDING, "write_deadline_ns": FOREVER_NS, **options}
        started.append(Embedded(certificates, **settings).__enter__())
        return started[-1]

    yield starter
    for server in started:
        server.stop()


def stuck_reader(server: Embedded, transport: str = "plain") -> tuple[Peer, ClientLink]:
    """Subscribed, and not reading; with the server's end of it."""
    peer = server.peer(transport, receive_buffer=SMALL_BUFFER).connect()
    peer.send("SUB flood 1\r\n")
    peer.fence()
    link = server.service.sessions[int(peer.info["client_id"])].link
    return peer, link


def fill(publisher: Peer, link: ClientLink, pending: int) -> int:
    """Publishes until that much waits for the link; answers how many messages it took."""
    count = 0
    while link.pending_bytes <= pending and link.close_reason is None:
        publisher.send(MESSAGE)
        publisher.fence()
        count += 1
    return count


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_reader_over_bound_is_cut_off_once_and_others_get_everything(
    start: Callable[..., Embedded], certificates: Certificates, transport: str
) -> None:
    server = start(certificates if transport == "tls" else None)
    publisher = server.peer(transport).connect()
    healthy = server.peer(transport).connect()
    healthy.send("SUB flood 1\r\n")
    healthy.fence()
    stuck, link = stuck_reader(server, transport)
    with publisher, healthy, stuck:
        sent = 0
        while link.close_reason is None:
            publisher.send(MESSAGE)
            publisher.fence()
            sent += 1
            assert len(healthy.deliveries()) == 1
        server.wait_for_connections(2)
        assert link.close_reason == "Slow Consumer (Pending Bytes)"
        assert server.service.io_loop.slow_consumers == 1
        assert link.pending_bytes == 0
        assert sent * BLOCK > MAX_PENDING


def test_stuck_reader_is_given_up_at_write_deadline_and_counted_once(
    start: Callable[..., Embedded],
) -> None:
    server = start(write_deadline_ns=DEADLINE_NS)
    stuck, link = stuck_reader(server)
    with stuck, server.peer().connect() as publisher:
        # Blocked and freed, again and again, it must still be one link on the list of the blocked.
        for _ in range(20):
            sent = fill(publisher, link, BLOCK)
            assert len(stuck.deliveries()) == sent
        fill(publisher, link, BLOCK)
        until(lambda: link.close_reason is not None, "the deadline")
        assert link.close_reason == "Slow Consumer (Write Deadline)"
        server.wait_for_connections(1)
        assert server.service.io_loop.slow_consumers == 1
        assert publisher.deliveries() == []


def test_publisher_ahead_of_reader_that_reads_is_held_back_and_then_received_again(
    start: Callable[..., Embedded],
) -> None:
    server = start()
    reader, link = stuck_reader(server)
    io_loop = server.service.io_loop
    sent, got = 0, 0
    with reader, server.peer().connect() as publisher:

        def pushed_once() -> bool:
            nonlocal sent, got
            sent += fill(publisher, link, MAX_PENDING * 3 // 4 - BLOCK)
            before = link.pending_bytes
            while link.pending_bytes == before and got < sent:  # its socket takes some more
                reader.event()
                got += 1
            sent += fill(publisher, link, MAX_PENDING - 6 * BLOCK)
            got += len(reader.deliveries())
            return io_loop.stalled_clients > 0

        until(pushed_once, "a publisher that is held back")
        assert publisher.deliveries() == []
        assert link.close_reason is None
        assert got == sent


def test_publishers_are_not_held_back_for_reader_that_took_nothing(
    start: Callable[..., Embedded],
) -> None:
    server = start()
    stuck, link = stuck_reader(server)
    with stuck, server.peer().connect() as publisher:
        # All at once: the socket took its last bytes only milliseconds before the limit.
        publisher.send(MESSAGE * (2 * MAX_PENDING // BLOCK))
        publisher.fence()
        assert link.close_reason == "Slow Consumer (Pending Bytes)"
        assert server.service.io_loop.stalled_clients == 0


def test_without_stalling_no_publisher_is_held_back(start: Callable[..., Embedded]) -> None:
    server = start(no_fast_producer_stall=True)
    reader, link = stuck_reader(server)
    with reader, server.peer().connect() as publisher:
        for _ in range(5):
            sent = fill(publisher, link, MAX_PENDING - 6 * BLOCK)
            assert len(reader.deliveries()) == sent
        assert server.service.io_loop.stalled_clients == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("how", ["reset", "close"])
def test_reader_may_vanish_while_much_waits_for_it(
    start: Callable[..., Embedded], certificates: Certificates, transport: str, how: str
) -> None:
    server = start(certificates if transport == "tls" else None)
    with server.peer(transport).connect() as publisher:
        for _ in range(5):
            stuck, link = stuck_reader(server, transport)
            fill(publisher, link, MAX_PENDING // 2)
            getattr(stuck, how)()
            server.wait_for_connections(1)
            assert link.pending_bytes == 0
            assert publisher.deliveries() == []
        assert server.service.io_loop.slow_consumers == 0


def test_subscribers_that_vanish_in_middle_of_fan_out_affects_no_other_client(
    start: Callable[..., Embedded],
) -> None:
    server = start()
    small = b"PUB flood 4\r\nbody\r\n"
    with (
        server.peer().connect() as publisher,
        server.peer().connect() as witness,
        several(40, lambda: stuck_reader(server)[0]) as leavers,
    ):
        witness.send("SUB flood 1\r\nSUB flood q 2\r\n")
        witness.fence()
        for peer in leavers:
            peer.send("SUB flood q 2\r\n")
            publisher.send(small * 500)
            peer.reset()
            publisher.send(small * 500)
        publisher.fence()
        server.wait_for_connections(2)
        publisher.send(small * 100)
        publisher.fence()
        got = witness.deliveries()
    assert len([one for one in got if one.sid == "1"]) == 40 * 1000 + 100
    assert len([one for one in got if one.sid == "2"]) >= 100


def test_many_subscriptions_of_one_connection_do_not_outgrow_its_bound(
    start: Callable[..., Embedded],
) -> None:
    """One small read makes very much output: it is bounded before anybody sends it."""
    server = start()
    with server.peer().connect() as peer, server.peer().connect() as publisher:
        peer.send("".join(f"SUB flood {sid}\r\n" for sid in range(500)))
        peer.fence()
        link = server.service.sessions[int(peer.info["client_id"])].link
        publisher.send(MESSAGE)  # 500 times 64 KiB for one connection, from one message
        publisher.fence()
        assert link.close_reason == "Slow Consumer (Pending Bytes)"
        assert link.out_bytes <= 3 * MAX_PENDING


def test_burst_that_socket_takes_is_no_reason_to_cut_reader_off(
    start: Callable[..., Embedded],
) -> None:
    """What one read makes is sent before more is made, so the bound is for what is not taken."""
    server = start(max_pending=40_000, max_payload=1000)
    with server.peer().connect() as reader, server.peer().connect() as publisher:
        reader.send("".join(f"SUB flood {sid}\r\n" for sid in range(100)))
        reader.fence()
        publisher.send(b"PUB flood 0\r\n\r\n" * 100)
        publisher.fence()
        assert len(reader.deliveries()) == 100 * 100
        assert server.service.io_loop.slow_consumers == 0


def test_server_stops_with_busy_stuck_and_half_open_clients(certificates: Certificates) -> None:
    for transport in TRANSPORTS:
        with Embedded(certificates if transport == "tls" else None) as server:
            stuck, link = stuck_reader(server, transport)
            half_open = server.peer("plain")
            half_open.send("PUB flood 1000\r\nhalf of it")
            publisher = server.peer(transport).connect()
            stop = threading.Event()

            def flood(peer: Peer = publisher, until_set: threading.Event = stop) -> None:
                while not until_set.is_set():
                    try:
                        peer.try_send(MESSAGE)
                    except OSError:
                        return

            busy = threading.Thread(target=flood)
            busy.start()
            until(lambda one=link: one.pending_bytes > BLOCK, "a backlog")
            server.stop()
            stop.set()
            busy.join()
            for peer in (stuck, half_open, publisher):
                peer.close()
