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

from penstock import ThreadedServer
from penstock.server.options import Options
from support_jetstream import Client

if TYPE_CHECKING:
    from collections.abc import Iterator


NAMES = itertools.count()
EXPECTED = b"NATS/1.0\r\nNats-Expected-Last-Sequence: %d\r\n\r\n"
PLAIN = b"NATS/1.0\r\nKey: value\r\n\r\n"

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
    }
)
headers = st.one_of(
    st.just(b""),
    st.just(b""),
    st.just(b""),
    st.just(PLAIN),
    st.integers(0, 5).map(lambda seq: EXPECTED % seq),
    st.just(b"NATS/1.0\r\nNats-Msg-Id: same\r\n\r\n"),
    st.just(b"NATS/1.0\r\nNats-TTL: 1000s\r\n\r\n"),
)
publishes = st.tuples(
    st.sampled_from(["a", "b", "c.d"]),
    headers,
    st.binary(max_size=40),
    st.booleans(),
)


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ThreadedServer, ThreadedServer]]:
    """A server with fast lanes, and one without."""
    with (
        started(str(tmp_path_factory.mktemp("fast"))) as fast,
        started(str(tmp_path_factory.mktemp("slow"))) as slow,
    ):
        edge = slow._server.service.jetstream
        assert edge is not None
        edge.has_lanes = False
        yield fast, slow


@pytest.fixture(scope="module")
def clients(servers: tuple[ThreadedServer, ThreadedServer]) -> Iterator[tuple[Client, Client]]:
    """Clients of the two."""
    fast, slow = (Client(address(server)) for server in servers)
    yield fast, slow
    fast.close()
    slow.close()


def started(directory: str) -> ThreadedServer:
    options = Options(host="127.0.0.1", port=-1, jetstream=True, store_dir=directory)
    return ThreadedServer(options=options)


def address(server: ThreadedServer) -> tuple[str, int]:
    host, _, port = server.url.removeprefix("nats://").rpartition(":")
    return host, int(port)


def play(client: Client, name: str, config: dict[str, Any], burst: list[Any]) -> list[Any]:
    """The acknowledgements of a burst, what the stream holds afterwards, and all messages."""
    wanted = {"name": name, "subjects": [f"{name}.>"], **config}
    client.done(f"STREAM.CREATE.{name}", wanted)
    inbox = client.subscribe()
    sent = bytearray()
    for subject, header, payload, wants_ack in burst:
        reply = f" {inbox.subject}" if wants_ack else ""
        line = f"{name}.{subject}{reply}"
        if header:
            sent += f"HPUB {line} {len(header)} {len(header) + len(payload)}\r\n".encode()
        else:
            sent += f"PUB {line} {len(payload)}\r\n".encode()
        sent += header + payload + b"\r\n"
    client.send(bytes(sent))
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


def test_only_one_of_the_two_takes_the_fast_lane(
    servers: tuple[ThreadedServer, ThreadedServer], clients: tuple[Client, Client]
) -> None:
    """Or the comparison would compare nothing."""
    for server, client, is_fast in zip(servers, clients, (True, False), strict=True):
        client.done("STREAM.CREATE.T", {"name": "T", "subjects": ["taken"]})
        assert client.publish_ack("taken", b"x")["seq"] == 1
        edge = server._server.service.jetstream
        assert edge is not None
        assert (edge.accounts["$G"].assets.hosts["T"].lane is not None) is is_fast
