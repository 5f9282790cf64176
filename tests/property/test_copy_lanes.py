"""Two lanes, one meaning: what a copy's compiled lane stores, the feed stores too.

The same origin with the same gaps is copied on two servers, one of which has no lanes; some of its
messages are for the feed in either case. Both copies hold the same in the end.
"""

from __future__ import annotations

import base64
import itertools
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.jetstream.sources.source_reader import SourceReader
from support.patience import PATIENCE_SECONDS
from support.servers import until
from support.twins import clients_of, twins

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.jetstream import Client

pytestmark = pytest.mark.sockets

NAMES = itertools.count()
MANY = 2000
PLAIN = b"NATS/1.0\r\nKey: value\r\n\r\n"
NOTED = b"NATS/1.0\r\nNats-Stream-Source: X 1 > > y\r\n\r\n"
IDENTITY = re.compile(rb"(Nats-Stream-Source: \S+ \d+ \S+ \S+ \S+) \S+")

configs = st.fixed_dictionaries(
    {
        "storage": st.sampled_from(["memory", "file"]),
        "max_msgs": st.sampled_from([-1, -1, 3]),
        "max_bytes": st.sampled_from([-1, -1, 300]),
        "max_msgs_per_subject": st.sampled_from([-1, -1, 1, 2]),
        "max_age": st.sampled_from([0, 0, 3600 * 10**9]),
        "retention": st.sampled_from(["limits", "limits", "workqueue"]),
    }
)
sources = st.sampled_from(
    [
        {},
        {},
        {"filter_subject": "{}.a"},
        {"subject_transforms": [{"src": "{}.a", "dest": "t.{}"}]},
    ]
)
messages = st.tuples(
    st.sampled_from(["a", "b", "c.d"]),
    st.sampled_from([b"", b"", b"", PLAIN, NOTED, b"NATS/1.0\r\nNats-Msg-Id: same\r\n\r\n"]),
    st.binary(max_size=40),
)


@pytest.fixture(scope="module", params=["always", "2m"])
def clients(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[Client, Client]]:
    """Of a server with lanes and of one without."""
    with (
        twins(tmp_path_factory, lazy=request.param != "always") as servers,
        clients_of(servers) as pair,
    ):
        yield pair


def publish(client: Client, name: str, burst: list[Any]) -> None:
    sent = bytearray()
    for subject, header, payload in burst:
        sizes = f"{len(header)} {len(header) + len(payload)}"
        sent += f"HPUB {name}.{subject} {sizes}\r\n".encode() if header else (
            f"PUB {name}.{subject} {len(payload)}\r\n".encode()
        )  # fmt: skip
        sent += header + payload + b"\r\n"
    client.send(bytes(sent))


def state_of(client: Client, name: str) -> dict[str, Any]:
    asked = {"deleted_details": True, "subjects_filter": ">"}
    state: dict[str, Any] = client.done(f"STREAM.INFO.{name}", asked)["state"]
    return {key: value for key, value in state.items() if not key.endswith("_ts")}


def stored(client: Client, name: str, state: dict[str, Any]) -> list[Any]:
    found = []
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        message = client.call(f"STREAM.MSG.GET.{name}", {"seq": seq}).get("message", {})
        header = IDENTITY.sub(rb"\1", base64.b64decode(message.get("hdrs", "")))
        found.append((seq, message.get("subject"), header, message.get("data")))
    return found


def copied(client: Client, name: str, plan: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Fills an origin, makes its copy, goes on filling; what the copy has when it has it all."""
    client.done(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]})
    publish(client, name, plan["before"])
    for seq in plan["gaps"]:
        client.call(f"STREAM.MSG.DELETE.{name}", {"seq": seq})
    copy = f"{name}C"
    client.done(f"STREAM.CREATE.{copy}", {"name": copy, **plan["config"]})
    publish(client, name, plan["after"])
    publish(client, name, [("last", b"", b"")])
    publish(client, name, [("a", b"", b"last")])
    client.done(f"STREAM.INFO.{name}", {})
    until(lambda: is_complete(client, copy), f"{copy} has everything", PATIENCE_SECONDS)
    state = state_of(client, copy)
    return state, stored(client, copy, state)


def is_complete(client: Client, copy: str) -> bool:
    last = client.done(f"STREAM.INFO.{copy}", {})["state"]["last_seq"]
    message = client.call(f"STREAM.MSG.GET.{copy}", {"seq": last}).get("message", {})
    return bool(message.get("data") == base64.b64encode(b"last").decode())


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    before=st.lists(messages, max_size=25),
    after=st.lists(messages, max_size=25),
    gaps=st.sets(st.integers(1, 20), max_size=5),
    config=configs,
    source=sources,
    mirrored=st.booleans(),
)
def test_both_lanes_store_the_same_copy(
    clients: tuple[Client, Client],
    before: list[Any],
    after: list[Any],
    gaps: set[int],
    config: dict[str, Any],
    source: dict[str, Any],
    mirrored: bool,
) -> None:
    name = f"O{next(NAMES)}"
    of = {"name": name, **filled_in(source, name)}
    config = {**config, **({"mirror": of} if mirrored else {"sources": [of]})}
    plan = {"before": before, "after": after, "gaps": sorted(gaps), "config": config}
    fast, slow = (copied(client, name, plan) for client in clients)
    for client in clients:
        client.done(f"STREAM.DELETE.{name}C")
        client.done(f"STREAM.DELETE.{name}")
    assert fast == slow


def filled_in(source: dict[str, Any], name: str) -> dict[str, Any]:
    return {
        key: value.format(name)
        if isinstance(value, str)
        else [{part: text.format(name) for part, text in each.items()} for each in value]
        for key, value in source.items()
    }


@pytest.mark.parametrize("kind", ["mirror", "sources"])
def test_ordinary_copies_take_compiled_lane(
    clients: tuple[Client, Client], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_feed: list[object] = []
    store = SourceReader._store

    def counted(feed: SourceReader, *how: Any) -> None:
        by_feed.append(how)
        store(feed, *how)

    monkeypatch.setattr(SourceReader, "_store", counted)
    name = f"O{next(NAMES)}"
    of = {"name": name}
    config = {kind: of if kind == "mirror" else [of]}
    plan = {"before": [("a", b"", b"x")], "after": [], "gaps": [], "config": config}
    client = clients[0]
    copied(client, name, plan)
    by_feed.clear()  # deliveries that come before the origin's reply wait for it in Python
    publish(client, name, [("a", b"", b"x")] * MANY)
    until(
        lambda: state_of(client, f"{name}C")["messages"] == MANY + 3,
        f"{name}C has everything",
        PATIENCE_SECONDS,
    )
    assert len(by_feed) < MANY // 2
