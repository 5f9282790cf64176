"""Two lanes, one meaning: what the compiled lane stores and answers, the Python lane does too.

The same burst of publishes goes to two servers, one of which has no fast lanes. Acknowledgements,
totals and every stored message must agree; only times may differ. Some messages of a burst are
for the Python lane in either case, so order across the lanes is part of what is compared.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.servers import until
from support.twins import clients_of, twins

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock import ThreadedServer
    from support.jetstream import Client


NAMES = itertools.count()
PER_TURN = 4
"""Messages sent together: behind one that is left to the Python lane the others are, too."""

configs = st.fixed_dictionaries(
    {
        "storage": st.sampled_from(["memory", "file"]),
        "discard": st.sampled_from(["old", "new"]),
        "max_msgs": st.sampled_from([-1, -1, 1, 3]),
        "max_bytes": st.sampled_from([-1, -1, 100, 300]),
        "max_msgs_per_subject": st.sampled_from([-1, -1, 1, 2]),
        "max_msg_size": st.sampled_from([-1, -1, 10]),
        "no_ack": st.sampled_from([False, False, False, True]),
        "retention": st.sampled_from(["limits", "limits", "workqueue", "interest"]),
        "allow_msg_ttl": st.booleans(),
        "max_age": st.sampled_from([0, 0, 3600 * 10**9]),
        "allow_rollup_hdrs": st.booleans(),
        "duplicate_window": st.sampled_from([120 * 10**9, 3600 * 10**9]),
    }
)
lines = st.one_of(
    st.just("Key: value"),
    st.just("KV-Operation: DEL"),
    st.sampled_from("abc").map("Nats-Msg-Id: {}".format),
    st.integers(0, 5).map("Nats-Expected-Last-Sequence: {}".format),
    st.integers(0, 5).map("Nats-Expected-Last-Subject-Sequence:{}".format),
    st.sampled_from(["STREAM", "other"]).map("Nats-Expected-Stream: {}".format),
    st.sampled_from("abc").map("Nats-Expected-Last-Msg-Id: {}".format),
    st.sampled_from(
        [
            "Nats-TTL: 1000s",
            "Nats-Rollup: sub",
            "Nats-Msg-Id:",
            "Nats-Msg-Id",
            "Nats-Unknown: 1",
            "Nats-Expected-Last-Sequence: 1 ",
            "Nats-Expected-Last-Subject-Sequence-Subject: a",
            "Nats-Request-Info: {}",
            "",
            "a\nNats-Msg-Id: a",
            "a\r\r\nNats-Msg-Id: a",
        ]
    ),
)
blocks = st.lists(lines, max_size=3).map(
    lambda some: "".join(["NATS/1.0\r\n", *(f"{line}\r\n" for line in some), "\r\n"]).encode()
)
headers = st.one_of(
    st.just(b""),
    st.sampled_from("abcdef").map(
        lambda one: b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % one.encode()
    ),
    blocks,
    blocks,
    st.just(b"NATS/1.0 100 Idle\r\n\r\n"),
    st.just(b"NATS/1.0\r\nNats-Msg-Id: a"),
)
publishes = st.tuples(
    st.sampled_from(["a", "b", "c.d"]),
    headers,
    st.binary(max_size=40),
    st.booleans(),
)


@st.composite
def batch_scripts(draw: st.DrawFn) -> list[Any]:
    """Atomic batches side by side, most of them in good order, and other messages between."""
    scripts: list[list[Any]] = [draw(st.lists(publishes, max_size=4))]
    for name in "xyz"[: draw(st.integers(1, 3))]:
        count = draw(st.integers(1, 6))
        scripts.append([draw(members(name, number, count)) for number in range(1, count + 1)])
    burst: list[Any] = []
    while any(scripts):
        burst.append(draw(st.sampled_from([one for one in scripts if one])).pop(0))
    return burst


@st.composite
def members(draw: st.DrawFn, name: str, number: int, count: int) -> tuple[str, bytes, bytes, bool]:
    told = number + draw(st.sampled_from([0] * 15 + [1]))
    said = [f"Nats-Batch-Id: {name}", f"Nats-Batch-Sequence: {told}"]
    if number == count:
        said.append(f"Nats-Batch-Commit: {draw(st.sampled_from(['1', '1', '1', 'eob']))}")
    if draw(st.sampled_from([False] * 5 + [True])):
        said.append(draw(lines))
    block = "".join(["NATS/1.0\r\n", *(f"{one}\r\n" for one in said), "\r\n"]).encode()
    wants_ack = number == count or draw(st.sampled_from([False, False, True]))
    return draw(st.sampled_from(["a", "b", "c.d"])), block, draw(st.binary(max_size=40)), wants_ack


@pytest.fixture(scope="module", params=["always", "2m"])
def servers(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[ThreadedServer, ThreadedServer]]:
    """A server with lanes, and one without."""
    with twins(tmp_path_factory, lazy=request.param != "always") as pair:
        yield pair


@pytest.fixture(scope="module")
def clients(servers: tuple[ThreadedServer, ThreadedServer]) -> Iterator[tuple[Client, Client]]:
    with clients_of(servers) as pair:
        yield pair


def play(client: Client, name: str, config: dict[str, Any], burst: list[Any]) -> list[Any]:
    """The acknowledgements of a burst, what the stream holds afterwards, and all messages."""
    wanted = {"name": name, "subjects": [f"{name}.>"], **config}
    client.done(f"STREAM.CREATE.{name}", wanted)
    inbox = client.subscribe()
    sent = bytearray()
    for number, (subject, block, payload, wants_ack) in enumerate(burst, 1):
        header = block.replace(b"STREAM", name.encode())
        reply = f" {inbox.subject}" if wants_ack else ""
        line = f"{name}.{subject}{reply}"
        if header:
            sent += f"HPUB {line} {len(header)} {len(header) + len(payload)}\r\n".encode()
        else:
            sent += f"PUB {line} {len(payload)}\r\n".encode()
        sent += header + payload + b"\r\n"
        if number % PER_TURN == 0 or number == len(burst):
            client.send(bytes(sent))
            client.done(f"STREAM.INFO.{name}")
            sent.clear()
    client.done(f"STREAM.CREATE.{name}", wanted)  # answered when all before it is durable
    info = client.done(f"STREAM.INFO.{name}", {"deleted_details": True, "subjects_filter": ">"})
    acks = [message.payload for message in inbox.waiting()]
    state = {key: value for key, value in info["state"].items() if not key.endswith("_ts")}
    messages = []
    for seq in range(info["state"]["first_seq"], info["state"]["last_seq"] + 1):
        answer = client.call(f"STREAM.MSG.GET.{name}", {"seq": seq})
        stored = answer.get("message", {})
        messages.append({key: value for key, value in stored.items() if key != "time"})
    client.call(f"STREAM.DELETE.{name}")
    return [acks, state, messages]


@pytest.mark.sockets
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(config=configs, burst=st.lists(publishes, min_size=1, max_size=25))
def test_both_lanes_store_and_answer_the_same(
    clients: tuple[Client, Client], config: dict[str, Any], burst: list[Any]
) -> None:
    name = f"L{next(NAMES)}"
    fast, slow = (play(client, name, config, burst) for client in clients)
    # Acknowledgements of the two lanes may overtake each other, their contents may not differ.
    assert sorted(fast[0]) == sorted(slow[0])
    assert fast[1:] == slow[1:]


@pytest.mark.sockets
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(config=configs, burst=batch_scripts())
def test_batches_are_the_same_whether_or_not_their_messages_are_packed(
    clients: tuple[Client, Client], config: dict[str, Any], burst: list[Any]
) -> None:
    name = f"B{next(NAMES)}"
    atomic = config | {"allow_atomic": True}
    fast, slow = (play(client, name, atomic, burst) for client in clients)
    assert sorted(fast[0]) == sorted(slow[0])
    assert fast[1:] == slow[1:]


@pytest.mark.sockets
@pytest.mark.parametrize("storage", ["memory", "file"])
def test_batch_that_fast_lane_began_is_given_up(
    servers: tuple[ThreadedServer, ThreadedServer], clients: tuple[Client, Client], storage: str
) -> None:
    """Its deadline is known, though no message of it was seen by anybody else."""
    server, client = servers[0], clients[0]
    config = {"name": "G", "subjects": ["g"], "storage": storage, "allow_atomic": True}
    client.done("STREAM.CREATE.G", config)
    runtime = server._server.service.jetstream
    assert runtime is not None
    host = runtime.accounts["$G"].assets.hosts["G"]
    header = b"NATS/1.0\r\nNats-Batch-Id: x\r\nNats-Batch-Sequence: 1\r\n\r\n"
    client.send(b"HPUB g %d %d\r\n%b\r\n" % (len(header), len(header), header))
    until(lambda: len(host.stream.staged_batches.batches) == 1, "the batch has begun")
    assert host.stream.staged_batches.batches[b"x"].packer.count == 1
    until(lambda: host.next_deadline_ns is not None, "the batch has a deadline")
    client.call("STREAM.DELETE.G")


@pytest.mark.sockets
def test_only_one_of_two_takes_fast_lane(
    servers: tuple[ThreadedServer, ThreadedServer], clients: tuple[Client, Client]
) -> None:
    """Or the comparison would compare nothing."""
    for server, client, is_fast in zip(servers, clients, (True, False), strict=True):
        client.done("STREAM.CREATE.T", {"name": "T", "subjects": ["taken"]})
        assert client.publish_ack("taken", b"x")["seq"] == 1
        runtime = server._server.service.jetstream
        assert runtime is not None
        assert (runtime.accounts["$G"].assets.hosts["T"].lane is not None) is is_fast


@pytest.mark.sockets
def test_messages_of_publish_lane_expire(clients: tuple[Client, Client]) -> None:
    """A message that comes while others are older is not reported: their time is noted."""
    fast, _ = clients
    fast.done("STREAM.CREATE.D", {"name": "D", "subjects": ["due"], "max_age": 100_000_000})
    for seq in range(1, 31):
        assert fast.publish_ack("due", b"x")["seq"] == seq
    until(lambda: fast.done("STREAM.INFO.D")["state"]["messages"] == 0, "all are due")
    assert fast.publish_ack("due", b"x")["seq"] == 31
    until(lambda: fast.done("STREAM.INFO.D")["state"]["messages"] == 0, "all are due")
    fast.call("STREAM.DELETE.D")


@pytest.mark.sockets
@pytest.mark.parametrize("storage", ["memory", "file"])
def test_ids_fast_lane_took_are_forgotten(
    servers: tuple[ThreadedServer, ThreadedServer], clients: tuple[Client, Client], storage: str
) -> None:
    """Although most messages are not reported, and no later one comes."""
    server, client = servers[0], clients[0]
    config = {"name": "W", "subjects": ["seen"], "storage": storage, "duplicate_window": 10**8}
    client.done("STREAM.CREATE.W", config)
    runtime = server._server.service.jetstream
    assert runtime is not None
    ids = runtime.accounts["$G"].assets.hosts["W"].stream.ids
    for number in range(1, 6):
        client.publish_ack("seen", b"x")
        stored = client.publish_ack("seen", b"x", {"Nats-Msg-Id": f"{number}"})
        assert stored["seq"] == 2 * number
        until(lambda: len(ids) == 0, "all are forgotten")
    client.call("STREAM.DELETE.W")
