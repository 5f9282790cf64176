"""Clients that ask for much at once: others are served in between, and the order is kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from support.peers import Embedded, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.peers import Peer

API = "$JS.API."
STREAMS = 100
REQUESTS = 1_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Embedded]:
    with Embedded(jetstream=True, store_dir=str(tmp_path)) as server:
        yield server


def request(subject: str, reply: str, body: object = None) -> str:
    raw = "" if body is None else json.dumps(body)
    return f"PUB {API}{subject} {reply} {len(raw)}\r\n{raw}\r\n"


def served(server: Embedded) -> int:
    assert server.service.jetstream is not None
    return server.service.jetstream.accounts["$G"].assets.api_total


def make_streams(server: Embedded, peer: Peer) -> None:
    before = served(server)
    for number in range(STREAMS):
        config = {"name": f"S{number}", "subjects": [f"s.{number}"], "storage": "memory"}
        peer.send(request(f"STREAM.CREATE.S{number}", "made", config))
    until(lambda: served(server) == before + STREAMS, "streams are made")


def test_other_clients_are_served_between_requests_of_one_client(server: Embedded) -> None:
    with server.peer().connect() as greedy, server.peer().connect() as other:
        make_streams(server, greedy)
        before = served(server)
        greedy.send("SUB inbox 1\r\n" + request("STREAM.LIST", "inbox") * REQUESTS)
        until(lambda: served(server) > before, "the first request is served")
        other.fence()
        assert served(server) - before < REQUESTS
        until(lambda: served(server) == before + REQUESTS, "every request is served")


def test_pipelined_requests_are_answered_in_order(server: Embedded) -> None:
    rounds = 200
    with server.peer().connect() as peer:
        peer.send("SUB inbox.* 1\r\n")
        make_streams(server, peer)
        before = served(server)
        config = {"name": "X", "subjects": ["x"], "storage": "memory"}
        piece = "".join(
            request("STREAM.LIST", f"inbox.{at}list")
            + request("STREAM.CREATE.X", f"inbox.{at}create", config)
            + request("STREAM.INFO.X", f"inbox.{at}info")
            + request("STREAM.DELETE.X", f"inbox.{at}delete")
            for at in range(rounds)
        )
        peer.send(piece)
        until(lambda: served(server) == before + 4 * rounds, "every request is served")
        answers = [one for one in peer.deliveries() if one.subject.startswith("inbox.")]
        names = [one.subject.removeprefix("inbox.") for one in answers]
        kinds = ("list", "create", "info", "delete")
        assert names == [f"{at}{kind}" for at in range(rounds) for kind in kinds]
        assert not [one for one in answers if b'"error"' in one.payload]
