"""Limits by number of replicas (`tiered_limits`), as the claims of an account give them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.assets import JetStream
from support.claims import SHOP, SYSTEM, UNLIMITED, Realm, credentials, user_token
from support.jetstream import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.servers import Starter

    Open = Callable[..., JetStream]

R1 = {"mem_storage": 10000, "disk_storage": 20000, "streams": 2, "consumer": 3}
R3 = {
    "mem_storage": 1000,
    "disk_storage": 2000,
    "streams": 1,
    "consumer": 1,
    "max_ack_pending": 7,
    "disk_max_stream_bytes": 500,
    "max_bytes_required": True,
}
NOTHING = {
    "max_memory": 0,
    "max_storage": 0,
    "max_streams": 0,
    "max_consumers": 0,
    "max_ack_pending": 0,
    "memory_max_stream_bytes": 0,
    "storage_max_stream_bytes": 0,
    "max_bytes_required": False,
}
SHOWN_R1 = {
    "max_memory": 10000,
    "max_storage": 20000,
    "max_streams": 2,
    "max_consumers": 3,
    "max_ack_pending": -1,
    "memory_max_stream_bytes": -1,
    "storage_max_stream_bytes": -1,
    "max_bytes_required": False,
}
SHOWN_R3 = {
    "max_memory": 1000,
    "max_storage": 2000,
    "max_streams": 1,
    "max_consumers": 1,
    "max_ack_pending": 7,
    "memory_max_stream_bytes": -1,
    "storage_max_stream_bytes": 500,
    "max_bytes_required": True,
}
UNUSED = {
    "memory": 0,
    "storage": 0,
    "reserved_memory": 0,
    "reserved_storage": 0,
    "streams": 0,
    "consumers": 0,
}
NO_LIMITS = Refusal(400, 10120, "no JetStream default or applicable tiered limit present")
NOT_ENABLED = Refusal(503, 10039, "JetStream not enabled for account")
TOO_MANY_STREAMS = Refusal(400, 10027, "maximum number of streams reached")
TOO_MANY_CONSUMERS = Refusal(400, 10026, "maximum consumers limit reached")
NOT_CLUSTERED = Refusal(500, 10074, "replicas > 1 not supported in non-clustered mode")
NO_STORAGE = Refusal(500, 10047, "insufficient storage resources available")
NO_MEMORY = Refusal(500, 10028, "insufficient memory resources available")
SIZE_REQUIRED = Refusal(400, 10113, "account requires a stream config to have max bytes set")
TOO_LARGE = Refusal(400, 10122, "stream max bytes exceeds account limit max stream bytes")


def config(tiers: dict[str, Any]) -> str:
    limits = {**UNLIMITED, "tiered_limits": tiers}
    persisting = f"jetstream: enabled\nsystem_account: {SYSTEM.public}\n"
    return Realm().add(SYSTEM).add(SHOP, limits=limits).config(persisting)


@pytest.fixture
def open_account(start: Starter, tmp_path: Path) -> Iterator[Open]:
    """A client of an account with these tiers, on a server of its own."""
    opened: list[JetStream] = []

    def open_(**tiers: Any) -> JetStream:
        server = start(config(tiers), "-sd", str(tmp_path))
        opened.append(log_in(server))
        return opened[-1]

    yield open_
    for client in opened:
        client.close()


def log_in(server: Any) -> JetStream:
    token = user_token(SHOP)
    return JetStream(server, login=lambda client: credentials(client, token))


def refused(client: JetStream, **fields: Any) -> Refusal:
    return client.refused("STREAM.CREATE.X", {"name": "X", "subjects": ["x"], **fields})


def test_info_shows_limits_and_use_of_each_tier(open_account: Open) -> None:
    client = open_account(R1=R1, R3=R3)
    info = client.done("INFO")
    assert info["limits"] == NOTHING
    assert info["tiers"] == {
        "R1": {**UNUSED, "limits": SHOWN_R1},
        "R3": {**UNUSED, "limits": SHOWN_R3},
    }
    stream = client.stream("A", max_bytes=3000)
    stream.publish("a", b"x" * 100)
    stream.consumer()
    info = client.done("INFO")
    used = {key: info[key] for key in UNUSED}
    assert used["storage"] > 100
    assert (used["reserved_storage"], used["streams"], used["consumers"]) == (3000, 1, 1)
    assert info["tiers"]["R1"] == {**used, "limits": SHOWN_R1}
    assert info["tiers"]["R3"] == {**UNUSED, "limits": SHOWN_R3}


def test_tier_r1_limits_streams_of_single_server(open_account: Open) -> None:
    client = open_account(R1=R1, R3=R3)
    assert refused(client, max_bytes=20001) == NO_STORAGE
    assert refused(client, max_consumers=4) == TOO_MANY_CONSUMERS
    stream = client.stream("A", max_bytes=2000)
    for number in range(3):
        stream.consumer(f"c{number}")
    assert stream.consumer_refused("c3") == TOO_MANY_CONSUMERS
    assert stream.update_refused(max_bytes=20001) == NO_STORAGE
    client.stream("B")
    assert refused(client) == TOO_MANY_STREAMS


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"num_replicas": 3}, SIZE_REQUIRED),
        ({"num_replicas": 3, "max_bytes": 501}, TOO_LARGE),
        ({"num_replicas": 3, "max_bytes": 1001, "storage": "memory"}, NO_MEMORY),
        ({"num_replicas": 3, "max_bytes": 400, "max_consumers": 2}, TOO_MANY_CONSUMERS),
        # One replica is counted: three of 700 bytes would be more than the tier has.
        ({"num_replicas": 3, "max_bytes": 700, "storage": "memory"}, NOT_CLUSTERED),
        ({"num_replicas": 5, "max_bytes": 1}, NO_LIMITS),
        ({"num_replicas": -1}, NO_LIMITS),
        ({"num_replicas": 5, "subjects": ["a..b"]}, NO_LIMITS),
        (
            {"num_replicas": 5, "sealed": True},
            Refusal(500, 10052, "stream configuration for create can not be sealed"),
        ),
    ],
)
def test_limits_of_its_own_tier_apply_to_stream(
    open_account: Open, fields: dict[str, Any], refusal: Refusal
) -> None:
    assert refused(open_account(R1=R1, R3=R3), **fields) == refusal


def test_limits_of_requested_tier_apply_to_update(open_account: Open) -> None:
    client = open_account(R1=R1, R3=R3)
    stream = client.stream("A", max_bytes=2000)
    assert stream.update_refused(num_replicas=3) == TOO_LARGE
    assert stream.update_refused(num_replicas=5) == NOT_CLUSTERED


def test_stream_without_its_tier_is_refused(open_account: Open) -> None:
    client = open_account(R3=R3)
    assert client.done("INFO")["tiers"] == {"R3": {**UNUSED, "limits": SHOWN_R3}}
    assert refused(client) == NO_LIMITS
    restore = {"config": {"name": "X", "subjects": ["x"]}, "state": {}}
    assert client.refused("STREAM.RESTORE.X", restore) == NO_LIMITS


def test_tiers_without_storage_do_not_enable_jetstream(open_account: Open) -> None:
    client = open_account(R1={**R1, "mem_storage": 0, "disk_storage": 0})
    assert client.refused("INFO") == NOT_ENABLED


def test_storage_limit_of_tier_refuses_publishes(open_account: Open) -> None:
    client = open_account(R1={**R1, "disk_storage": 1000})
    stream = client.stream("A")
    stream.publish("a", b"x" * 700)
    assert stream.refused("a", b"x" * 700) == Refusal(
        400, 10002, "resource limits exceeded for account"
    )


def test_other_tiers_apply_after_reload(start: Starter, tmp_path: Path) -> None:
    server = start(config({"R1": R1}), "-sd", str(tmp_path))
    with log_in(server) as client:
        client.stream("A")
        server.reload(config({"R1": {**R1, "streams": 1}}))
        assert client.done("INFO")["tiers"]["R1"]["limits"]["max_streams"] == 1
        assert refused(client) == TOO_MANY_STREAMS
