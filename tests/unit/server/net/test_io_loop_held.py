"""A link that is held while a decision is pending is not read from and keeps its bytes.

Here the plane is driven by hand over a pair of local sockets, so that what the kernel hands out,
and when, is no matter of chance.
"""

from __future__ import annotations

import fcntl
import socket
import sys
import termios
from typing import TYPE_CHECKING, Any

import pytest

from penstock.broker.router import Router
from penstock.server.net.io_loop import IoLoop
from penstock.subjects.trie import SubList

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.server.net.client_link import ClientLink

READ_BYTES = 131_072
CONNECT = b"CONNECT {}\r\n"


class Undecided:
    """A handler that holds its link at every CONNECT."""

    def __init__(self, io_loop: IoLoop) -> None:
        self.io_loop = io_loop
        self.link: ClientLink
        self.connects = 0
        self.closed_with = ""

    def connect(self, _: bytes) -> None:
        self.connects += 1
        self.io_loop.hold(self.link)

    def closed(self, reason: str) -> None:
        self.closed_with = reason

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "link":
            raise AttributeError(name)
        return lambda *_: None


@pytest.fixture
def io_loop() -> Iterator[IoLoop]:
    made = IoLoop(router=Router(), arm=lambda *_: None, write_deadline_ns=10**10)
    yield made
    made.close_all("over")


def attach(io_loop: IoLoop) -> tuple[Undecided, socket.socket]:
    """A held-at-CONNECT link, and the client's end of it."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    theirs.setblocking(False)
    interest = SubList()
    io_loop.add_interest(interest)
    handler = Undecided(io_loop)
    handler.link = io_loop.attach(theirs.detach(), 1, handler, interest)
    handler.link.set_limits(
        max_control_line=4096,
        max_payload=1 << 20,
        max_pending=1 << 20,
        max_subs=0,
        max_sub_tokens=0,
    )
    handler.link.set_options(
        verbose=False, pedantic=False, echo=True, headers=True, no_responders=False
    )
    return handler, ours


def test_commands_received_meanwhile_run_after_release(io_loop: IoLoop) -> None:
    handler, client = attach(io_loop)
    with client:
        client.sendall(CONNECT + b"SUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\n")
        io_loop.turn()
        assert handler.link.subscriptions == 0
        io_loop.release(handler.link)
        assert client.recv(100) == b"MSG a 1 2\r\nhi\r\nPONG\r\n"


def test_held_link_is_not_read_from(io_loop: IoLoop) -> None:
    handler, client = attach(io_loop)
    with client:
        client.sendall(CONNECT)
        io_loop.turn()
        for _ in range(5):
            client.sendall(b"PING\r\n" * 1000)
            io_loop.turn()
        assert handler.link.pending_bytes == 0
        io_loop.release(handler.link)
        while handler.link.last_written_ns == 0:
            io_loop.turn()
        assert client.recv(12) == b"PONG\r\nPONG\r\n"


def test_peer_that_goes_while_its_link_is_held_is_not_read_any_more(io_loop: IoLoop) -> None:
    """The read buffer has room behind an unfinished frame, not behind all a held link may keep."""
    handler, client = attach(io_loop)
    client.sendall(CONNECT + b"X" * (READ_BYTES - len(CONNECT)))
    io_loop.turn()
    client.sendall(b"Y" * 150_000)
    client.close()
    io_loop.turn()
    assert handler.closed_with == "Client Closed"
    assert len(io_loop) == 0


def test_link_that_is_held_is_not_read_again_in_the_same_turn(io_loop: IoLoop) -> None:
    """A publisher to several is read three times in a turn; the buffer has no room for that."""
    handler, client = attach(io_loop)
    with client:
        client.sendall(b"".join(b"SUB a %d\r\n" % sid for sid in range(400)))
        io_loop.turn()
        publishes = b"PUB a 1000\r\n" + b"x" * 1000 + b"\r\n"
        client.sendall(publishes + CONNECT + b"X" * (READ_BYTES - len(publishes) - len(CONNECT)))
        client.sendall(b"Y" * 150_000)
        io_loop.turn()
        assert handler.connects == 1
        unread = fcntl.ioctl(handler.link.fileno, termios.FIONREAD, b"1234")
        assert int.from_bytes(unread, sys.byteorder) == 150_000


def test_link_held_twice_continues_where_it_was(io_loop: IoLoop) -> None:
    handler, client = attach(io_loop)
    with client:
        client.sendall((CONNECT + b"PING\r\n") * 3)
        io_loop.turn()
        for held in range(1, 4):
            assert handler.connects == held
            io_loop.release(handler.link)
        assert client.recv(100) == b"PONG\r\n" * 3


def test_releasing_closed_link_does_nothing(io_loop: IoLoop) -> None:
    handler, client = attach(io_loop)
    client.sendall(CONNECT)
    io_loop.turn()
    client.close()
    io_loop.turn()
    io_loop.release(handler.link)
    assert handler.closed_with == "Client Closed"
