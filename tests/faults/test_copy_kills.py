"""A server is killed with SIGKILL while streams are copied: copies have neither gaps nor doubles.

A mirror has what its origin has, under the same sequences. A stream that gathers several origins
has every message of each once, in its origin's order; each copy notes where it comes from. A lazy
server shows messages that a kill may take back: those may be in a copy only, and their sequences
are never given to others.
"""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING

import pytest

from faults.killed_server import serving
from support.assets import JetStream
from support.jetstream import encode
from support.servers import until

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

    from support.jetstream import Message
    from support.servers import ServerUnderTest

LONG_ROUNDS = 13
KILLS = 2
BURST = 2_000
READ_BATCH = 1_000_000
ORIGINS = ("FIRST", "SECOND")
KINDS = {"default": "", "lazy": 'sync_interval: "2m"'}

Contents = dict[int, bytes]
Gathered = dict[str, list[tuple[int, bytes]]]


def set_up(client: JetStream) -> None:
    for name in ORIGINS:
        client.stream(name, allow_direct=True)
    client.stream("MIRROR", mirror={"name": "FIRST"}, allow_direct=True)
    client.stream("GATHERED", sources=[{"name": name} for name in ORIGINS], allow_direct=True)


def last_seq(client: JetStream, stream: str) -> int:
    seq: int = client.done(f"STREAM.INFO.{stream}")["state"]["last_seq"]
    return seq


def read(client: JetStream, stream: str) -> list[Message]:
    """All messages of a stream."""
    state = client.done(f"STREAM.INFO.{stream}")["state"]
    if not state["messages"]:
        return []
    inbox = client.subscribe()
    body = f'{{"seq": {state["first_seq"]}, "batch": {READ_BATCH}}}'.encode()
    client.publish(f"$JS.API.DIRECT.GET.{stream}", body, reply=inbox.subject)
    return inbox.until_status()[:-1]


def contents(client: JetStream, stream: str) -> Contents:
    found = [(int(one.headers["Nats-Sequence"]), one.payload) for one in read(client, stream)]
    assert len(dict(found)) == len(found), f"{stream} gives a sequence twice"
    return dict(found)


def gathered(client: JetStream, stream: str) -> Gathered:
    """The copies by origin, each with the sequence it had there, in the order they are stored."""
    found: Gathered = defaultdict(list)
    for one in read(client, stream):
        origin, seq, *_ = one.headers["Nats-Stream-Source"].split(" ")
        found[origin].append((int(seq), one.payload))
    return found


def wrong_with(origin: Contents, copies: list[tuple[int, bytes]], *, is_lazy: bool = False) -> str:
    """A copy is as far as it is, and until there it has what its origin has."""
    seqs = [seq for seq, _ in copies]
    if seqs != sorted(set(seqs)):
        return "copied twice, or not in order"
    for seq, payload in copies:
        if origin.get(seq, payload if is_lazy else None) != payload:
            return f"{seq} is {payload[:40]!r} here and {origin.get(seq)!r} at the origin"
    missing = sorted({seq for seq in origin if seqs and seq < seqs[-1]} - set(seqs))
    return f"not copied: {missing[:5]}" if missing else ""


def live_and_die(server: ServerUnderTest, life: int, chance: Random) -> None:
    """Origins get a burst of messages; the server dies before all of them are copied."""
    with JetStream(server) as client:
        enough = last_seq(client, "MIRROR") + chance.randrange(1, BURST)
        frames = [
            encode(f"{name}.a", f"{name} {life} {number}".encode() + b"." * chance.randrange(200))
            for number in range(BURST)
            for name in ORIGINS
        ]
        client.send(b"".join(frames))
        until(lambda: last_seq(client, "MIRROR") >= enough, f"copy {enough}")
        os.kill(server.pid, signal.SIGKILL)


def judge(client: JetStream, kind: str) -> None:
    # Copies are read before their origins, for copying goes on meanwhile.
    mirror, copies = contents(client, "MIRROR"), gathered(client, "GATHERED")
    origins = {name: contents(client, name) for name in ORIGINS}
    is_lazy = kind == "lazy"
    assert wrong_with(origins["FIRST"], sorted(mirror.items()), is_lazy=is_lazy) == ""
    for name in ORIGINS:
        assert wrong_with(origins[name], copies[name], is_lazy=is_lazy) == "", name


def catch_up(client: JetStream, life: int) -> None:
    """Waits until the last message of each origin is in every copy of it."""
    last = b"last of life %d" % life
    for name in ORIGINS:
        assert "error" not in client.publish_ack(f"{name}.last", last)
    for copy, name in (("MIRROR", "FIRST"), ("GATHERED", "FIRST"), ("GATHERED", "SECOND")):
        subject = f"$JS.API.DIRECT.GET.{copy}.{name}.last"
        until(lambda ask=subject: client.request(ask).payload == last, f"{name} in {copy}")


@pytest.mark.parametrize("kind", KINDS)
def test_kill_leaves_no_gap_and_no_double_in_copy(
    kind: str, tmp_path: Path, rounds: int, tried: Counter[str]
) -> None:
    chance = Random(kind)
    with serving(tmp_path, KINDS[kind]) as server:
        with JetStream(server) as client:
            set_up(client)
        for life in range(KILLS * rounds):
            live_and_die(server, life, chance)
            server.restart()
            with JetStream(server) as client:
                judge(client, kind)
                if chance.random() < 0.5:
                    catch_up(client, life)
                    judge(client, kind)
            tried["servers killed while streams were copied"] += 1
        with JetStream(server) as client:
            catch_up(client, KILLS * rounds)
            judge(client, kind)


ORIGIN: Contents = {1: b"one", 2: b"two", 4: b"four"}


@pytest.mark.parametrize(
    "seqs",
    [[1, 4], [2, 4], [1, 1], [1, 2, 1], [2, 1], [1, 2, 3]],
    ids=["gap", "no beginning", "twice", "again", "order", "invented"],
)
def test_wrong_copy_is_seen(seqs: list[int]) -> None:
    assert wrong_with(ORIGIN, []) == ""
    assert wrong_with(ORIGIN, [(1, b"one"), (2, b"two")]) == ""
    assert wrong_with(ORIGIN, [(seq, ORIGIN.get(seq, b"three")) for seq in seqs])


def test_lazy_origin_may_lose_what_was_copied_but_never_gives_its_sequence_away() -> None:
    copies = [(1, b"one"), (2, b"two"), (3, b"lost"), (4, b"four")]
    assert wrong_with(ORIGIN, copies, is_lazy=True) == ""
    assert wrong_with(ORIGIN, [*copies[:3], (4, b"other")], is_lazy=True)
    assert wrong_with(ORIGIN, [copies[0], *copies[2:]], is_lazy=True)
