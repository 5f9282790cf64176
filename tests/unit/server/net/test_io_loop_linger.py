"""However brisk a conversation is, the plane leaves the event loop its time, and serves others."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from penstock.broker.router import Router
from penstock.server.net.io_loop import IoLoop
from penstock.subjects.trie import SubList
from support.patience import PATIENCE_SECONDS
from support.peers import Embedded

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.sockets

RALLY = 3000
#: Far more than the fastest peer can say while a turn may last.
WORDS_PER_TURN_MAX = 1000
WORD = b"PUB talk 0\r\n\r\n"
NEWCOMERS = 30


class Deaf:
    """Judges nothing: the conversation below needs no judgement."""

    def __getattr__(self, name: str) -> object:
        return lambda *_: None


def rally(peer: socket.socket, words: int) -> None:
    """Answers every delivery with the next word, as fast as can be."""
    with contextlib.suppress(OSError):
        for _ in range(words):
            peer.sendall(WORD)
            if not peer.recv(4096):
                return


@contextlib.contextmanager
def rallying(peer: socket.socket, words: int) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=rally, args=(peer, words))
    thread.start()
    try:
        yield thread
    finally:
        with contextlib.suppress(OSError):
            peer.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def io_loop() -> IoLoop:
    return IoLoop(router=Router(seed=1), arm=lambda *_: None, write_deadline_ns=10**10)


def test_turn_ends_although_peer_keeps_answering(io_loop: IoLoop) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    interest = SubList(seed=1)
    io_loop.add_interest(interest)
    link = io_loop.attach(ours.detach(), 1, Deaf(), interest)  # type: ignore[arg-type]
    link.set_limits(
        max_control_line=4096, max_payload=4096, max_pending=1 << 20, max_subs=0, max_sub_tokens=0
    )
    link.set_options(verbose=False, pedantic=False, echo=True, headers=False, no_responders=False)
    theirs.sendall(b"SUB talk 1\r\n")
    io_loop.turn()
    longest = 0
    with theirs, rallying(theirs, RALLY):
        while link.in_msgs < RALLY:
            before = link.in_msgs
            assert select.select([io_loop], [], [], PATIENCE_SECONDS)[0], "the rally went quiet"
            io_loop.turn()
            longest = max(longest, link.in_msgs - before)
    io_loop.close_all("Test")
    assert longest < WORDS_PER_TURN_MAX


def test_newcomers_are_served_while_others_converse() -> None:
    with Embedded() as server, server.peer().connect() as talker:
        talker.send("SUB talk 1\r\n")
        talker.fence()
        with rallying(talker.socket, 1 << 30):
            for _ in range(NEWCOMERS):
                with server.peer().connect() as newcomer:
                    assert newcomer.deliveries() == []
