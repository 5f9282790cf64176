"""Accounts: who may use JetStream, how much of it, and under which domain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.assets import JetStream
from support.jetstream import API, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.servers import ServerUnderTest

NOT_ENABLED = Refusal(503, 10039, "JetStream not enabled for account")
USAGE = Refusal(400, 10002, "resource limits exceeded for account")
CONFIG = """
jetstream { store_dir: store, max_mem: 1MB, max_file: 10MB, domain: dom }
accounts {
  LIMITED {
    jetstream {
      max_mem: 10000, max_file: 20000, max_streams: 2, max_consumers: 1
      max_ack_pending: 100, max_bytes_required: true
      mem_max_stream_bytes: 5000, disk_max_stream_bytes: 15000
    }
    users [ { user: limited, password: pwd } ]
  }
  SMALL { jetstream { max_mem: 2000, max_file: 2000 }, users [ { user: small, password: pwd } ] }
  ONE { jetstream: enabled, users [ { user: one, password: pwd } ] }
  TWO { jetstream: enabled, users [ { user: two, password: pwd } ] }
  NONE { users [ { user: none, password: pwd } ] }
  $SYS { users [ { user: sys, password: pwd } ] }
}
"""
GLOBAL_USER = """
jetstream { store_dir: store }
authorization { users [ { user: global, password: pwd } ] }
"""


@pytest.mark.parametrize(
    ("accounts", "is_served"),
    [
        ("", True),
        ("accounts { $SYS { users [ { user: sys, password: pwd } ] } }", True),
        ("accounts { A { users [ { user: a, password: pwd } ] } }", False),
        ("accounts { A { jetstream: on, users [ { user: a, password: pwd } ] } }", False),
    ],
)
def test_global_account_has_jetstream_only_if_it_is_only_account(
    own_server: Callable[..., ServerUnderTest], accounts: str, is_served: bool
) -> None:
    options: Any = {"user": "global", "pass": "pwd"}
    with JetStream(own_server(GLOBAL_USER + accounts), **options) as client:
        if is_served:
            client.done("STREAM.CREATE.X", {"name": "X"})
        else:
            assert client.refused("STREAM.CREATE.X", {"name": "X"}) == NOT_ENABLED


def test_account_without_jetstream_gets_not_enabled(login: Callable[[str], JetStream]) -> None:
    client = login("none")
    for api in ("INFO", "STREAM.NAMES", "STREAM.CREATE.X", "CONSUMER.NAMES.X"):
        assert client.refused(api, {"name": "X"}) == NOT_ENABLED


def test_system_account_gets_system_response_error(login: Callable[[str], JetStream]) -> None:
    client = login("sys")
    assert client.refused("INFO") == NOT_ENABLED
    answer = client.call("STREAM.NAMES")
    assert answer == {
        "type": "io.nats.jetstream.api.v1.system_response",
        "error": {"code": 503, "err_code": 10039, "description": NOT_ENABLED.description},
    }


def test_accounts_do_not_see_each_other(login: Callable[[str], JetStream]) -> None:
    one, two = login("one"), login("two")
    one.stream("S", subjects=["a"])
    assert two.done("STREAM.NAMES")["streams"] is None
    two.stream("S", subjects=["a"])
    one.publish_ack("a")
    assert two.done("STREAM.INFO.S")["state"]["messages"] == 0
    assert (one.done("INFO")["streams"], two.done("INFO")["streams"]) == (1, 1)


def test_info_shows_limits(login: Callable[[str], JetStream]) -> None:
    info = login("limited").done("INFO")
    assert info["limits"] == {
        "max_memory": 10000,
        "max_storage": 20000,
        "max_streams": 2,
        "max_consumers": 1,
        "max_ack_pending": 100,
        "memory_max_stream_bytes": 5000,
        "storage_max_stream_bytes": 15000,
        "max_bytes_required": True,
    }
    assert info["domain"] == "dom"


@pytest.mark.parametrize(
    ("config", "refusal"),
    [
        ({}, Refusal(400, 10113, "account requires a stream config to have max bytes set")),
        (
            {"max_bytes": 15001},
            Refusal(400, 10122, "stream max bytes exceeds account limit max stream bytes"),
        ),
        (
            {"max_bytes": 5001, "storage": "memory"},
            Refusal(400, 10122, "stream max bytes exceeds account limit max stream bytes"),
        ),
        (
            {"max_bytes": 6000},
            Refusal(500, 10047, "insufficient storage resources available"),
        ),
    ],
)
def test_stream_must_fit_into_its_account(
    login: Callable[[str], JetStream], config: dict[str, Any], refusal: Refusal
) -> None:
    client = login("limited")
    client.stream("FIRST", max_bytes=15000)
    assert client.refused("STREAM.CREATE.S", {"name": "S", **config}) == refusal


def test_limits_of_streams_are_reserved(login: Callable[[str], JetStream]) -> None:
    client = login("limited")
    client.stream("A", max_bytes=5000, storage="memory")
    client.stream("B", max_bytes=15000)
    info = client.done("INFO")
    assert (info["reserved_memory"], info["reserved_storage"]) == (5000, 15000)
    more = client.refused("STREAM.CREATE.C", {"name": "C", "max_bytes": 1000})
    assert more == Refusal(400, 10027, "maximum number of streams reached")
    client.done("STREAM.DELETE.B")
    info = client.done("INFO")
    assert (info["reserved_memory"], info["reserved_storage"]) == (5000, 0)


@pytest.mark.parametrize(
    ("config", "refusal"),
    [
        (
            {"max_bytes": 20 * 1024 * 1024},
            Refusal(500, 10047, "insufficient storage resources available"),
        ),
        (
            {"max_bytes": 2 * 1024 * 1024, "storage": "memory"},
            Refusal(500, 10028, "insufficient memory resources available"),
        ),
    ],
)
def test_stream_must_fit_into_server(
    login: Callable[[str], JetStream], config: dict[str, Any], refusal: Refusal
) -> None:
    assert login("one").refused("STREAM.CREATE.S", {"name": "S", **config}) == refusal


def test_consumers_are_limited_per_stream(login: Callable[[str], JetStream]) -> None:
    client = login("limited")
    stream = client.stream("S", max_bytes=1000)
    refusal = stream.consumer_refused(ack_policy="explicit", max_ack_pending=101)
    assert refusal[:2] == (400, 10121)
    consumer = stream.consumer(ack_policy="explicit")
    assert consumer.created["config"]["max_ack_pending"] == 100
    assert stream.consumer_refused() == Refusal(400, 10026, "maximum consumers limit reached")
    client.stream("T", max_bytes=1000).consumer()


@pytest.mark.parametrize("storage", ["memory", "file"])
def test_full_account_refuses_publishes(login: Callable[[str], JetStream], storage: str) -> None:
    client = login("small")
    stream = client.stream("S", storage=storage)
    for _ in range(2):
        stream.publish("a", b"x" * 700)
    assert stream.refused("a", b"x" * 700) == USAGE
    used = client.done("INFO")["memory" if storage == "memory" else "storage"]
    assert used == stream.state()["bytes"]
    stream.purge()
    stream.publish("a", b"x" * 700)


def test_domain_is_part_of_api_and_of_answers(login: Callable[[str], JetStream]) -> None:
    client = login("one")
    stream = client.stream("S")
    names = client.request("$JS.dom.API.STREAM.NAMES").json
    assert names["streams"] == ["S"]
    assert client.request("$JS.other.API.STREAM.NAMES").status == "503"
    ack = client.request(stream.subject("a"))
    assert ack.payload == b'{"stream":"S","domain":"dom","seq":1}'
    assert stream.info()["domain"] == "dom"
    told = client.subscribe("$JS.EVENT.ADVISORY.STREAM.UPDATED.S")
    stream.update(description="x")
    assert told.next().json["domain"] == "dom"


def test_domain_reaches_consumers_and_direct_gets(login: Callable[[str], JetStream]) -> None:
    client = login("one")
    stream = client.stream("S", allow_direct=True)
    stream.publish("a", b"x")
    consumer = stream.consumer(ack_policy="explicit")
    message = client.request(f"$JS.dom.API.CONSUMER.MSG.NEXT.S.{consumer.name}")
    assert message.payload == b"x"
    client.request(message.reply, b"+ACK")
    assert consumer.info()["num_ack_pending"] == 0
    got = client.request("$JS.dom.API.DIRECT.GET.S", {"seq": 1})
    assert got.payload == b"x"


def test_domain_reaches_buckets(login: Callable[[str], JetStream]) -> None:
    client = login("one")
    client.stream("KV_b", subjects=["$KV.b.>"])
    ack = client.request("$JS.dom.API.$KV.b.some.key", b"x")
    assert ack.payload == b'{"stream":"KV_b","domain":"dom","seq":1}'
    got = client.done("STREAM.MSG.GET.KV_b", {"last_by_subj": "$KV.b.some.key"})
    assert got["message"]["seq"] == 1
    assert client.request("$JS.dom.API.$KV.other.key", b"x").status == "503"
    assert client.request("$JS.other.API.$KV.b.some.key", b"x").status == "503"


def test_requests_of_account_are_counted(login: Callable[[str], JetStream]) -> None:
    client = login("one")
    client.request(f"{API}STREAM.NAMES")
    client.request(f"{API}STREAM.INFO.nope")
    assert client.done("INFO")["api"] == {"level": 5, "total": 2, "errors": 1}
