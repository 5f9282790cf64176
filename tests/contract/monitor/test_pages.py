"""What monitoring shows over HTTP, held against what the reference shows of the same scene."""

from __future__ import annotations

import http.client
import re
import ssl
import urllib.request
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from support.monitor import SECRETS, Pair, ordered, shape, without
from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from support.monitor import Scene
    from support.servers import Starter
    from support.tls import Certificates

#: Fields that only one of the two has: ours names itself, the reference its build; and it offers
#: the services every account can ask as imports from the system account. Counted requests depend
#: on who asked before.
ONLY_OURS = {"penstock", "penstock_loop", "http_req_stats"}
ONLY_REFERENCE = {"git_commit", "imports", "exports", "http_req_stats"}

PAGES = [
    "/varz",
    "/connz",
    "/connz?subs=1",
    "/connz?subs=detail&auth=1",
    "/connz?state=closed&subs=1&auth=1&sort=stop",
    "/connz?state=closed&subs=detail&auth=1",
    "/connz?acc=NOPE",
    "/connz?cid=999999",
    "/subsz",
    "/subscriptionsz",
    "/subsz?subs=1&acc=B&test=foo.bar",
    "/subsz?acc=NOPE&subs=1",
    "/healthz",
    "/accountz",
    "/accountz?acc=A",
    "/accountz?acc=SYS",
    "/accstatz",
    "/accstatz?unused=1",
    "/routez",
    "/gatewayz",
    "/leafz",
    "/jsz",
    "/ipqueuesz",
]


@pytest.mark.parametrize("path", PAGES)
def test_page_has_fields_types_and_order_of_reference(pair: Pair, path: str) -> None:
    ours, reference = pair.ours.get(path), pair.reference.get(path)
    assert ours.status == reference.status == 200
    mine = without(shape(ours.json), ONLY_OURS)
    theirs = without(shape(reference.json), ONLY_REFERENCE)
    assert ordered(mine) == ordered(theirs)


@pytest.mark.parametrize("path", [*PAGES, "/nope", "/raftz", "/connz?sort=x"])
def test_page_has_headers_of_reference(pair: Pair, path: str) -> None:
    compared = ("Content-Type", "Access-Control-Allow-Origin", "X-Content-Type-Options")
    ours, reference = pair.ours.get(path), pair.reference.get(path)
    assert [ours.headers.get(name) for name in compared] == [
        reference.headers.get(name) for name in compared
    ]


def test_json_layout_matches_reference(pair: Pair) -> None:
    def layout(text: str) -> str:
        return re.sub(r'": .*?(,?)$', r'": ...\1', text, flags=re.M)

    path = "/jsz"
    assert layout(pair.ours.get(path).text) == layout(pair.reference.get(path).text)
    subjects = [scene.get("/subsz?subs=1&acc=B&test=hidden").text for scene in _both(pair)]
    assert all("<" not in text and ">" not in text for text in subjects)


REFUSED = [
    "/connz?sort=bogus",
    "/connz?sort=CID",
    "/connz?sort=stop",
    "/connz?sort=reason&state=any",
    "/connz?state=foo",
    "/connz?limit=x",
    "/connz?limit=99999999999999999999",
    "/connz?offset=1.5",
    "/connz?cid=x",
    "/connz?cid=-1",
    "/connz?auth=2",
    "/connz?subs=2",
    "/subsz?subs=detail",
    "/subsz?limit=x",
    "/subsz?test=foo.*",
    "/subsz?test=..",
    "/accountz?acc=NOPE",
    "/accstatz?unused=x",
    "/routez?subs=x",
    "/leafz?subs=x",
    "/gatewayz?accs=x",
    "/jsz?accounts=x",
    "/jsz?limit=x",
    "/jsz?leader-only=1",
    "/jsz?leader-only=1&accounts=1",
    "/healthz?details=x",
    "/healthz?js-enabled-only=x",
    "/healthz?stream=s",
    "/healthz?consumer=c",
    "/healthz?stream=s&details=1",
    "/raftz",
    "/nope",
    "/VARZ",
    "/varz/",
]


@pytest.mark.parametrize("path", REFUSED)
def test_bad_request_is_refused_in_the_same_words(pair: Pair, path: str) -> None:
    ours, reference = pair.ours.get(path), pair.reference.get(path)
    assert (ours.status, ours.text) == (reference.status, reference.text)
    assert ours.status >= 400


@pytest.mark.parametrize(
    "path",
    ["//varz", "/./varz", "/x/../varz", "//", "/connz/../", "/varz//", "//varz?x=1&y=<", "/%76arz"],
)
def test_unclean_path_leads_to_its_page(pair: Pair, path: str) -> None:
    ours, reference = (_unfollowed(scene, path) for scene in _both(pair))
    assert ours == reference


def test_redirect_stays_on_server(pair: Pair) -> None:
    for path in ("//example.org/varz", "/%0d%0aX:%201/../%0d%0aX:%201//"):
        _, location, _ = _unfollowed(pair.ours, path)
        assert location is not None
        assert not location.startswith("//")
        assert location.isprintable()


def _unfollowed(scene: Scene, path: str) -> tuple[int, str | None, str | None]:
    address = scene.server.http_url.partition("//")[2]
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Location"), answer.getheader("Content-Type")
    finally:
        connection.close()


QUERIES = [
    "",
    "limit=-1&offset=-1",
    "limit=0",
    "limit=2&limit=1",
    "offset=1",
    "offset=1000",
    "offset=1&limit=1",
    "acc=A",
    "acc=B&state=any",
    "acc=A&limit=1&offset=1",
    "acc=$G&state=any",
    "user=ann",
    "user=ann&state=closed",
    "user=cy&state=any",
    "user=cy&limit=1&offset=1&state=any",
    "user=nobody",
    "mqtt_client=m",
    "state=open",
    "state=CLOSED",
    "state=any",
    "state=all&limit=2&offset=2",
    "state=any&sort=start&limit=2",
    "auth=t",
    "auth=TRUE",
    "auth=0",
]


@pytest.mark.parametrize("query", QUERIES)
def test_filters_and_paging_select_the_same_connections(pair: Pair, query: str) -> None:
    assert _chosen(pair.ours, query) == _chosen(pair.reference, query)


#: Orders by what both servers count alike, and the field that shows it. Ties come as they like.
COUNTED_SORTS = {
    "cid": "name",
    "start": "name",
    "subs": "subscriptions",
    "msgs_to": "out_msgs",
    "msgs_from": "in_msgs",
    "bytes_to": "out_bytes",
    "bytes_from": "in_bytes",
}


@pytest.mark.parametrize("sort", COUNTED_SORTS)
@pytest.mark.parametrize("state", ["open", "closed", "any"])
def test_connection_order_matches_reference(pair: Pair, sort: str, state: str) -> None:
    query, shown = f"sort={sort}&state={state}", COUNTED_SORTS[sort]
    ours, reference = _rows(pair.ours, query), _rows(pair.reference, query)
    assert [row[shown] for row in ours] == [row[shown] for row in reference]


@pytest.mark.parametrize("state", ["open", "closed", "any"])
@pytest.mark.parametrize("sort", ["last", "idle", "uptime"])
def test_connections_sorted_by_time_are_in_order(pair: Pair, sort: str, state: str) -> None:
    """Times differ from server to server, so each is held to what it shows."""
    for scene in _both(pair):
        answer = scene.get(f"/connz?sort={sort}&state={state}").json
        rows, now = answer["connections"], _moment(answer["now"])
        if sort == "uptime":
            spans = [_moment(row["stop"]) if "stop" in row else now for row in rows]
            spans = [stop - _moment(row["start"]) for stop, row in zip(spans, rows, strict=True)]
            assert spans == sorted(spans)
        else:
            moments = [_moment(row["last_activity"]) for row in rows]
            assert moments == sorted(moments, reverse=sort == "last")


def test_connection_closed_last_is_first_by_stop(pair: Pair) -> None:
    for scene in _both(pair):
        assert scene.names(_rows(scene, "state=closed&sort=stop")) == ["fay", "eve", "dan"]


@pytest.mark.parametrize("who", ["ann", "bea", "cy", "dan", "eve", "fay"])
def test_connection_fields_match_reference(pair: Pair, who: str) -> None:
    ours, reference = _row(pair.ours, who), _row(pair.reference, who)
    assert ours == reference


AGREED = [
    "auth_required",
    "auth_timeout",
    "config_digest",
    "connections",
    "cores",
    "feature_flags",
    "http_base_path",
    "in_bytes",
    "in_client_msgs",
    "in_msgs",
    "max_connections",
    "max_control_line",
    "max_payload",
    "max_pending",
    "metadata",
    "out_bytes",
    "out_client_bytes",
    "out_msgs",
    "ping_interval",
    "ping_max",
    "proto",
    "server_name",
    "slow_consumer_stats",
    "slow_consumers",
    "stale_connections",
    "stalled_clients",
    "system_account",
    "tags",
    "tls_timeout",
    "total_connections",
    "version",
    "write_deadline",
]


def test_server_counters_match_reference(pair: Pair) -> None:
    ours, reference = pair.ours.get("/varz").json, pair.reference.get("/varz").json
    for name in AGREED:
        assert ours[name] == reference[name], name


def test_account_traffic_matches_reference(pair: Pair) -> None:
    def traffic(scene: Scene) -> dict[str, Any]:
        stats = scene.get("/accstatz?unused=1").json["account_statz"]
        return {
            stat["acc"]: (stat["conns"], stat["sent"], stat["received"], stat["slow_consumers"])
            for stat in stats
            if stat["acc"] in ("A", "B")
        }

    assert traffic(pair.ours) == traffic(pair.reference)


@pytest.mark.parametrize("test", ["foo.bar", "zip.1", "nowhere"])
def test_test_subject_finds_the_same_subscriptions(pair: Pair, test: str) -> None:
    def found(scene: Scene) -> list[tuple[str, ...]]:
        answer = scene.get(f"/subsz?subs=1&test={test}").json
        listed = answer.get("subscriptions_list", [])
        assert answer["total"] == len(listed)
        return sorted((sub["account"], sub["subject"], sub["sid"]) for sub in listed)

    assert found(pair.ours) == found(pair.reference)


def test_every_counted_subscription_is_listed(pair: Pair) -> None:
    answer = pair.ours.get("/subsz?subs=1").json
    assert answer["total"] == answer["num_subscriptions"] == len(answer["subscriptions_list"])


def test_requests_are_counted_by_page(pair: Pair) -> None:
    for scene in _both(pair):
        before = scene.get("/varz").json["http_req_stats"]
        scene.get("/subscriptionsz")
        scene.get("/nope")
        after = scene.get("/varz").json["http_req_stats"]
        assert after["/subsz"] == before.get("/subsz", 0) + 1
        assert after["/varz"] == before["/varz"] + 1
        assert "/nope" not in after


def test_subject_filter_keeps_connections_that_would_receive_it(pair: Pair) -> None:
    """Over HTTP the reference reads the filter and forgets it; ours applies it."""
    assert pair.ours.names(_rows(pair.ours, "filter_subject=zip.1&acc=A")) == ["bea"]


def test_subject_filter_needs_account(pair: Pair) -> None:
    for scene in _both(pair):
        assert scene.names(_rows(scene, "filter_subject=zip.1")) == scene.names(_rows(scene, ""))


def test_no_page_shows_password(pair: Pair) -> None:
    for path in [*PAGES, "/metrics", "/"]:
        for scene in _both(pair):
            text = scene.get(path).text
            assert not any(secret in text for secret in SECRETS), path


def test_monitoring_over_tls_requests_no_certificate(
    start: Starter, certificates: Certificates
) -> None:
    server = start("https_port: -1\n" + certificates.verifying("verify: true"))
    assert server.http_url.startswith("https://")
    context = ssl.create_default_context(cafile=str(certificates.ca))
    url = f"{server.http_url}/healthz"
    with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS, context=context) as answer:
        assert answer.read() == b'{"status":"ok"}'
    assert "Starting https monitor on 127.0.0.1:" in server.log


def _both(pair: Pair) -> tuple[Scene, Scene]:
    return (pair.ours, pair.reference)


def _moment(text: str) -> int:
    """Nanoseconds of an RFC 3339 time."""
    seconds, _, fraction = text.removesuffix("Z").partition(".")
    whole = int(datetime.fromisoformat(seconds + "+00:00").timestamp())
    return whole * 1_000_000_000 + int(fraction.ljust(9, "0"))


def _rows(scene: Scene, query: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = scene.get(f"/connz?{query}").json["connections"]
    return rows


def _chosen(scene: Scene, query: str) -> tuple[object, ...]:
    answer = scene.get(f"/connz?{query}").json
    counts = [answer[name] for name in ("num_connections", "total", "offset", "limit")]
    return (*counts, scene.names(answer["connections"]))


def _row(scene: Scene, who: str) -> dict[str, Any]:
    query = f"cid={scene.cids[who]}&state=any&auth=1&subs=detail"
    (row,) = _rows(scene, query)
    moments = {"start", "last_activity", "stop", "uptime", "idle"}
    chance = {"cid", "port", "rtt", "pending_bytes"}
    facts = {name: value for name, value in row.items() if name not in moments | chance}
    details = facts.get("subscriptions_list_detail", [])
    for detail in details:
        del detail["cid"]
    details.sort(key=lambda detail: str(detail["sid"]))
    return facts
