"""A server with JetStream is killed with SIGKILL while clients use it in every way: what it
promised them holds when it is back, and it always comes back."""

from __future__ import annotations

import os
import re
import signal
import time
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from faults.jetledger import Existence, Ledger
from faults.jetload import KEYS, WORKED, Load, set_up
from faults.killed_server import serving
from support.assets import JetStream, ack_fields
from support.patience import PATIENCE_SECONDS
from support.servers import until

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable
    from pathlib import Path

    from support.servers import ServerUnderTest

LONG_ROUNDS = 7
KILLS = 2
ANSWERS_MAX = 1_500
READ_BATCH = 1_000_000
RECOVERED = r"recovered account \S+: \d+ streams, \d+ consumers, \d+ messages"
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("", {}),
    "lazy": ('sync_interval: "2m"', {}),
    "compressed": ("", {"compression": "s2"}),
    "encrypted": ('key: "correct horse battery staple"', {}),
}


def live_and_die(server: ServerUnderTest, ledger: Ledger, seed: str) -> None:
    """One life, ended when it has promised as much as the seed says."""
    ledger.begin_life()
    load = Load(server, ledger, seed)
    enough = Random(seed).randrange(1, ANSWERS_MAX)
    until(lambda: ledger.answers >= enough or not load.is_running, "answers")
    ledger.end_life()
    os.kill(server.pid, signal.SIGKILL)
    load.wait()
    ledger.note_death()


def judge(server: ServerUnderTest, ledger: Ledger) -> None:
    """Holds what is there against what was promised."""
    assert re.search(RECOVERED, server.log), server.log[-2000:]
    with JetStream(server) as client:
        ledger.judge_stream("LOG", contents(client, "LOG"))
        ledger.judge_stream("JOBS", contents(client, "JOBS"), ledger.acks[WORKED])
        streams = set(client.done("STREAM.NAMES")["streams"])
        consumers = set(client.done("CONSUMER.NAMES.LOG")["consumers"])
        ledger.judge_existence(streams | consumers)
        ledger.judge_text("LOG", client.done("STREAM.INFO.LOG")["config"].get("description", ""))
        for key in (f"k{number}" for number in range(KEYS)):
            if key in ledger.values:
                answer = client.request(f"$JS.API.DIRECT.GET.KV_B.$KV.B.{key}")
                ledger.judge_value(key, b"" if answer.status else answer.payload)


def contents(client: JetStream, stream: str) -> dict[int, bytes]:
    """All messages of a stream, read without a consumer so that a work queue allows it."""
    state = client.done(f"STREAM.INFO.{stream}")["state"]
    found = {}
    if state["messages"]:
        inbox = client.subscribe()
        body = f'{{"seq": {state["first_seq"]}, "batch": {READ_BATCH}}}'.encode()
        client.publish(f"$JS.API.DIRECT.GET.{stream}", body, reply=inbox.subject)
        for message in inbox.until_status(60)[:-1]:
            found[int(message.headers["Nats-Sequence"])] = message.payload
        inbox.close()
    assert len(found) == state["messages"], f"{stream}: {len(found)} of {state}"
    return found


def drain(client: JetStream, ledger: Ledger) -> None:
    """Works off the queue: every job that was not acknowledged comes, and then it is empty."""
    acks = ledger.acks[WORKED]
    deadline = time.monotonic() + PATIENCE_SECONDS
    left = client.done("STREAM.INFO.JOBS")["state"]["messages"]
    while left:
        inbox = client.pull("JOBS", "worker", {"batch": left, "expires": 4_000_000_000})
        for _ in range(left):
            message = inbox.next()
            if message.status:
                break
            seq = ack_fields(message)[1]
            ledger.note_delivered(WORKED, seq)
            client.request(message.reply, b"+ACK")
            acks.confirm(seq)
        inbox.close()
        now = client.done("STREAM.INFO.JOBS")["state"]["messages"]
        if now < left:
            deadline = time.monotonic() + PATIENCE_SECONDS
        assert time.monotonic() < deadline, f"never come: {contents(client, 'JOBS')}"
        left = now


@pytest.mark.parametrize("kind", KINDS)
def test_killed_server_keeps_its_promises(
    kind: str, tmp_path: Path, rounds: int, tried: Counter[str]
) -> None:
    options, config = KINDS[kind]
    ledger = Ledger()
    with serving(tmp_path, options) as server:
        with JetStream(server) as client:
            set_up(client, allow_direct=True, **config)
        for life in range(KILLS * rounds):
            live_and_die(server, ledger, f"{kind} {life}")
            assert ledger.wrong == []
            server.restart()
            judge(server, ledger)
            assert ledger.wrong == []
            tried["servers with JetStream killed under load"] += 1
        with JetStream(server) as client:
            drain(client, ledger)
        assert ledger.wrong == []
    tried["messages acknowledged by servers that were killed"] += sum(
        len(messages) for messages in ledger.stored.values()
    )


BROKEN_PROMISES: dict[str, Callable[[Ledger], None]] = {
    "lost": lambda ledger: ledger.judge_stream("S", {}),
    "changed": lambda ledger: ledger.judge_stream("S", {1: b"other"}),
    "given twice": lambda ledger: ledger.note_stored("S", 1, b"other"),
    "purged": lambda ledger: ledger.judge_stream("P", {1: b"one"}),
    "kept though done with": lambda ledger: ledger.judge_stream("Q", {1: b"one"}, ledger.acks["c"]),
    "lost though not done with": lambda ledger: ledger.judge_stream("S", {}, ledger.acks["d"]),
    "delivered again": lambda ledger: ledger.note_delivered("c", 1),
    "delivered again, sent before one that counts": lambda ledger: ledger.note_delivered("c", 2),
    "not there": lambda ledger: ledger.judge_existence(set()),
    "there": lambda ledger: ledger.judge_existence({"made", "deleted"}),
    "undone": lambda ledger: ledger.judge_text("S", "before"),
    "put back": lambda ledger: ledger.judge_value("k", b"before"),
}


@pytest.mark.parametrize("how", BROKEN_PROMISES)
def test_promise_that_is_not_kept_is_seen(how: str) -> None:
    ledger = Ledger()
    for stream in "SPQ":
        ledger.tried[stream] |= {b"one", b"other"}
    ledger.note_stored("S", 1, b"one")
    ledger.acks["c"].sent.add(2)
    ledger.acks["c"].confirm(1)
    ledger.purged_below["P"] = 2
    ledger.existence.update(made=Existence.THERE, deleted=Existence.ABSENT)
    ledger.texts["S"] = ("after", "after")
    ledger.values["k"] = (b"after", b"after")
    ledger.note_death()
    assert ledger.wrong == []
    BROKEN_PROMISES[how](ledger)
    assert ledger.wrong
