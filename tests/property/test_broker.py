"""A real server over real sockets sends every client what the naive model says, and no more.

One step at a time: a client says something, everybody is fenced with PING, and what each client
has read is compared. Where the server has a choice, the choice must be one of those the model
offers, and is then taken over into the model.
"""

from __future__ import annotations

import collections
import json
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from models import broker as model
from support.peers import Delivery, Embedded, Peer

pytestmark = pytest.mark.sockets

CLIENTS_MAX = 4
subjects = st.sampled_from(["a", "b", "a.b", "a.b.c", "b.a"])
patterns = st.sampled_from(["a", "b", "a.b", "a.*", "*.b", "*", ">", "a.>", "a.*.c", "b*"])
odd_subjects = st.sampled_from(["a..b", ".a", "a.", "a.>.b", "a.*", "a.>"])
replies = st.sampled_from(["", "", "r", "r.x", "a"])
queues = st.sampled_from([None, None, "q", "q", "p"])
sids = st.sampled_from(["1", "2", "3", "4", "s"])
sizes = st.sampled_from([0, 1, 11, 200, 4070, 4096, 65480, 65536, 70000])
headers = st.sampled_from([b"", b"", b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nK: v\r\n\r\n", b"junk"])
spacing = st.sampled_from([(" ", "\r\n"), (" ", "\r\n"), ("\t ", "\r\n"), (" ", "\n")])
options = st.fixed_dictionaries(
    {
        "verbose": st.sampled_from([False, False, True]),
        "pedantic": st.sampled_from([False, False, True]),
        "echo": st.booleans(),
    }
)
header_options = st.sampled_from([(False, False), (True, False), (True, True)])
places = st.integers(0, CLIENTS_MAX - 1)


class BrokerLife(RuleBasedStateMachine):
    """Clients come, speak and go; `transports` and `cache` differ by subclass."""

    transports = ("plain",)
    server_options: dict[str, Any] = {}  # noqa: RUF012 - hypothesis owns the class body

    def __init__(self) -> None:
        super().__init__()
        self.server = Embedded(**self.server_options).__enter__()
        self.model = model.BrokerModel()
        self.peers: dict[model.Client, Peer] = {}

    def teardown(self) -> None:
        for peer in self.peers.values():
            peer.close()
        self.server.stop()

    # -- clients come and go

    @initialize()
    def first_clients(self) -> None:
        for _ in range(3):
            self.join()

    @precondition(lambda self: len(self.peers) < CLIENTS_MAX)
    @rule()
    def join(self) -> None:
        transport = self.transports[len(self.peers) % len(self.transports)]
        self.peers[self.model.join()] = self.server.peer(transport)

    @precondition(lambda self: len(self.peers) > 1)
    @rule(place=places)
    def leave(self, place: int) -> None:
        client = self.client(place)
        self.model.leave(client)
        self.peers.pop(client).leave()
        self.settle(model.Outcome())

    @rule(place=places, chosen=options, known=header_options)
    def connect(self, place: int, chosen: dict[str, bool], known: tuple[bool, bool]) -> None:
        wanted = {**chosen, "headers": known[0], "no_responders": known[1]}
        client = self.client(place)
        self.model.connect(client, wanted)
        self.say(client, f"CONNECT {json.dumps(wanted)}\r\n".encode())

    # -- what they say

    @rule(place=places, subject=patterns | odd_subjects, queue=queues, sid=sids, space=spacing)
    def subscribe(
        self, place: int, subject: str, queue: str | None, sid: str, space: tuple[str, str]
    ) -> None:
        client = self.client(place)
        self.model.subscribe(client, subject, queue, sid)
        words = ["SUB", subject, *([queue] if queue else []), sid]
        self.say(client, (space[0].join(words) + space[1]).encode())

    @rule(place=places, subject=patterns, queue=queues, sid=sids)
    def subscribe_more(self, place: int, subject: str, queue: str | None, sid: str) -> None:
        self.subscribe(place, subject, queue, sid, (" ", "\r\n"))

    @rule(place=places, sid=sids, maximum=st.sampled_from([None, 1, 1, 2, 3]))
    def unsubscribe(self, place: int, sid: str, maximum: int | None) -> None:
        client = self.client(place)
        self.model.unsubscribe(client, sid, maximum)
        limit = "" if maximum is None else f" {maximum}"
        self.say(client, f"UNSUB {sid}{limit}\r\n".encode())

    @rule(
        place=places,
        subject=subjects | subjects | odd_subjects,
        reply=replies,
        header=headers,
        size=sizes,
        space=spacing,
    )
    def publish(
        self,
        place: int,
        subject: str,
        reply: str,
        header: bytes,
        size: int,
        space: tuple[str, str],
    ) -> None:
        client = self.client(place)
        header = header if client.headers else b""
        payload = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        outcome = self.model.publish(client, model.Message(subject, reply, header, payload))
        words = ["HPUB" if header else "PUB", subject, *([reply] if reply else [])]
        words += [str(len(header))] if header else []
        words.append(str(len(header) + size))
        line = (space[0].join(words) + space[1]).encode()
        self.say(client, line + header + payload + b"\r\n", outcome)

    @rule(place=places, subject=subjects, reply=replies)
    def publish_plainly(self, place: int, subject: str, reply: str) -> None:
        self.publish(place, subject, reply, b"", 5, (" ", "\r\n"))

    # -- comparing

    def client(self, place: int) -> model.Client:
        return self.model.clients[place % len(self.model.clients)]

    def say(self, client: model.Client, data: bytes, outcome: model.Outcome | None = None) -> None:
        self.peers[client].send(data)
        read = {client: self.peers[client].fence()}
        self.settle(outcome or model.Outcome(), read)

    def settle(
        self, outcome: model.Outcome, read: dict[model.Client, list[Any]] | None = None
    ) -> None:
        """Everybody has read exactly what the outcome says."""
        read = read or {}
        unread: dict[model.Client, collections.Counter[Any]] = {}
        for client, peer in self.peers.items():
            events = read.get(client) or []
            events += [] if client in read else peer.fence()
            lines = [event for event in events if not isinstance(event, Delivery)]
            assert sorted(lines) == sorted(client.lines)
            client.lines.clear()
            unread[client] = collections.Counter(e for e in events if isinstance(e, Delivery))
        for sent in outcome.certain:
            self.take(unread, sent)
            sent.sub.count()
        for candidates in outcome.choices:
            chosen = self.take_one(unread, candidates)
            chosen.sub.count()
        if outcome.notices:
            self.take_one(unread, outcome.notices)
        left = {client: +count for client, count in unread.items() if +count}
        assert not left, f"sent to a client that should not have had it: {left}"

    def take(self, unread: dict[model.Client, collections.Counter[Any]], sent: model.Sent) -> None:
        seen = Delivery(*sent.seen)
        assert unread[sent.sub.client][seen] > 0, f"{seen} is missing"
        unread[sent.sub.client][seen] -= 1

    def take_one(
        self, unread: dict[model.Client, collections.Counter[Any]], candidates: list[model.Sent]
    ) -> model.Sent:
        chosen = [one for one in candidates if unread[one.sub.client][Delivery(*one.seen)] > 0]
        assert len(chosen) == 1, f"one of {[one.seen for one in candidates]}, got {len(chosen)}"
        self.take(unread, chosen[0])
        return chosen[0]


class UncachedLife(BrokerLife):
    """Without the match cache, and with WebSocket clients among the others."""

    transports = ("plain", "ws")
    server_options = {"disable_sublist_cache": True}  # noqa: RUF012


TestBrokerLife = BrokerLife.TestCase
TestBrokerLife.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestUncachedLife = UncachedLife.TestCase
TestUncachedLife.settings = settings(max_examples=25, stateful_step_count=50, deadline=None)
