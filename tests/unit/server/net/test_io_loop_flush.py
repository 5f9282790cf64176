"""Large messages for many clients do not delay short replies; readers get time to take them.

The plane is driven by hand over pairs of local sockets: each call of `turn` is one turn.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

from penstock.broker.router import Router
from penstock.server.net.io_loop import IoLoop
from penstock.subjects.trie import SubList
from support.peers import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.server.net.client_link import ClientLink

MIB = 1 << 20
READERS = 500
SUBSCRIPTIONS = 20_000
MAX_PENDING = 8 * MIB
SOME_BYTES = 200_000
LARGE = b"PUB big %d\r\n%b\r\n" % (MIB, b"x" * MIB)
SMALL = b"PUB many 1\r\nx\r\n"


class Deaf:
    """A handler that accepts everything."""

    def __getattr__(self, name: str) -> object:
        return lambda *_: None


class Bench:
    """A plane with clients on local sockets, and the calls that it asked for."""

    def __init__(self) -> None:
        self.armed: list[object] = []
        self.interest = SubList()
        self.io_loop = IoLoop(
            router=Router(), arm=lambda _, call: self.armed.append(call), write_deadline_ns=10**12
        )
        self.io_loop.add_interest(self.interest)
        self.clients: list[socket.socket] = []

    def client(self, said: bytes = b"") -> tuple[ClientLink, socket.socket]:
        theirs, ours = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.clients.append(theirs)
        link = self.io_loop.attach(ours.detach(), len(self.clients), Deaf(), self.interest)  # type: ignore[arg-type]
        link.set_limits(
            max_control_line=4096,
            max_payload=2 * MIB,
            max_pending=MAX_PENDING,
            max_subs=0,
            max_sub_tokens=0,
        )
        link.set_options(
            verbose=False, pedantic=False, echo=True, headers=True, no_responders=False
        )
        self.say(theirs, said)
        return link, theirs

    def say(self, client: socket.socket, data: bytes) -> None:
        """Has the plane read all of it."""
        while data:
            with contextlib.suppress(BlockingIOError):
                data = data[client.send(data) :]
            self.io_loop.turn()

    def close(self) -> None:
        self.io_loop.close_all("over")
        for client in self.clients:
            client.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def taken(client: socket.socket) -> int:
    """How many bytes the client can read now."""
    count = 0
    with contextlib.suppress(BlockingIOError):
        while more := client.recv(MIB):
            count += len(more)
    return count


def test_reply_does_not_wait_for_large_messages_to_others(bench: Bench) -> None:
    readers = [bench.client(b"SUB big 1\r\n") for _ in range(READERS)]
    _, asking = bench.client()
    publisher, publishing = bench.client()
    bench.say(publishing, LARGE)
    while publisher.in_msgs == 0:
        bench.io_loop.turn()
    # Far more than one turn sends waits for the readers by now.
    assert any(link.pending_bytes > MIB // 2 for link, _ in readers)
    asking.send(b"PING\r\n")
    bench.io_loop.turn()
    assert asking.recv(100) == b"PONG\r\n"


def test_large_messages_reach_every_reader_although_replies_come_first(bench: Bench) -> None:
    readers = [bench.client(b"SUB big 1\r\n") for _ in range(50)]
    _, asking = bench.client()
    _, publishing = bench.client()
    bench.say(publishing, LARGE)
    got = dict.fromkeys(range(len(readers)), 0)

    def all_arrived() -> bool:
        asking.send(b"PING\r\n" * 50)
        bench.io_loop.turn()
        bench.io_loop.continue_work()
        for number, (_, client) in enumerate(readers):
            got[number] += taken(client)
        taken(asking)
        return set(got.values()) == {len(LARGE) + 2}  # MSG big 1, instead of PUB big

    until(all_arrived, "the message at every reader")


def test_publisher_waits_while_receiver_takes_what_it_was_sent(bench: Bench) -> None:
    """One message to very many subscriptions of one client takes that client a while to read."""
    receiver, receiving = bench.client()
    many = b"".join(b"SUB many %d\r\n" % sid for sid in range(SUBSCRIPTIONS))
    bench.say(receiving, many)
    while receiver.subscriptions < SUBSCRIPTIONS:
        bench.io_loop.turn()
        bench.io_loop.continue_work()
    _, publishing = bench.client()

    def held_longer_than_one_stall() -> bool:
        before = bench.io_loop.stalled_clients
        while bench.io_loop.stalled_clients == before:
            with contextlib.suppress(BlockingIOError):
                receiving.recv(SOME_BYTES)  # so it reads, if slowly
            publishing.send(SMALL)
            bench.io_loop.turn()
            bench.io_loop.continue_work()
            assert receiver.close_reason is None
        publishing.send(b"PING\r\n")
        bench.io_loop.resume_stalled()
        bench.io_loop.turn()
        held = taken(publishing) == 0
        while receiver.pending_bytes:
            taken(receiving)
            bench.io_loop.turn()
            bench.io_loop.continue_work()
        bench.io_loop.resume_stalled()
        bench.io_loop.turn()
        assert taken(publishing) == (6 if held else 0)
        return held

    until(held_longer_than_one_stall, "a publisher that is held while its receiver reads")
    assert receiver.close_reason is None
