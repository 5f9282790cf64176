"""Choosing, sorting and showing connections, on records of clients that have gone."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.config.options import AccountOptions, Options
from penstock.server.monitor.connz import ALL, CLOSED, LIMIT_DEFAULT, ConnzOptions, connz_steps
from penstock.server.monitor.connz_order import SORTS
from penstock.server.monitor.query_string import BadQuery, Query
from penstock.server.monitor.sliced_pages import pieces_of
from penstock.server.net.client_record import ClientRecord, Now
from penstock.server.server_state import ServerState

NOW = Now(wall_ns=1_000_000_000_000, monotonic_ns=0)
CLOSED_CLIENT = ClientRecord(
    cid=0,
    kind="STANDARD",
    ip="127.0.0.1",
    port=1,
    start_ns=0,
    last_activity_ns=0,
    rtt_ns=0,
    pending_bytes=0,
    in_msgs=0,
    out_msgs=0,
    in_bytes=0,
    out_bytes=0,
    stalls=0,
    num_subscriptions=0,
    name="",
    lang="",
    version="",
    user="",
    account="$G",
    name_tag="$G",
    stop_ns=2_000_000_000,
    reason="Client Closed",
)


def service_of(*records: ClientRecord) -> ServerState:
    options = Options(accounts=(AccountOptions(name="A"),))
    service = ServerState(options, asyncio.new_event_loop())
    service.loop.close()
    service.closed.extend(records)
    return service


def connz(service: ServerState, options: ConnzOptions, now: Now) -> dict[str, Any]:
    page: dict[str, Any] = json.loads(b"".join(pieces_of(connz_steps(service, options, now))))
    return page


def cids(service: ServerState, **asked: Any) -> list[int]:
    options = ConnzOptions(**{"state": CLOSED, **asked})
    return [row["cid"] for row in connz(service, options, NOW)["connections"]]


@pytest.mark.parametrize(
    ("sort", "field", "order"),
    [
        ("start", "start_ns", [3, 1, 2]),
        ("subs", "num_subscriptions", [2, 1, 3]),
        ("pending", "pending_bytes", [2, 1, 3]),
        ("msgs_to", "out_msgs", [2, 1, 3]),
        ("msgs_from", "in_msgs", [2, 1, 3]),
        ("bytes_to", "out_bytes", [2, 1, 3]),
        ("bytes_from", "in_bytes", [2, 1, 3]),
        ("last", "last_activity_ns", [2, 1, 3]),
        ("idle", "last_activity_ns", [3, 1, 2]),
        ("uptime", "stop_ns", [3, 1, 2]),
        ("uptime", "start_ns", [2, 1, 3]),
        ("stop", "stop_ns", [2, 1, 3]),
        ("rtt", "rtt_ns", [2, 1, 3]),
    ],
)
def test_each_order_sorts_by_its_own_field(sort: str, field: str, order: list[int]) -> None:
    values = {1: 20, 2: 30, 3: 10}
    records = [replace(CLOSED_CLIENT, cid=cid, **{field: value}) for cid, value in values.items()]
    assert cids(service_of(*records), sort=sort) == order


def test_reasons_sort_by_alphabet() -> None:
    records = [
        replace(CLOSED_CLIENT, cid=cid, reason=reason)
        for cid, reason in enumerate(["b", "c", "a"], start=1)
    ]
    assert cids(service_of(*records), sort="reason") == [3, 1, 2]


@pytest.mark.parametrize("sort", sorted(SORTS))
def test_ties_keep_order_of_ids(sort: str) -> None:
    same = service_of(*(replace(CLOSED_CLIENT, cid=cid) for cid in (3, 1, 2)))
    assert cids(same, sort=sort) == [1, 2, 3]


@pytest.mark.parametrize("sort", ["stop", "reason"])
@pytest.mark.parametrize("state", [0, ALL])
def test_orders_of_the_end_need_closed_connections(sort: str, state: int) -> None:
    with pytest.raises(BadQuery, match=f"sort by {sort} only valid on closed connections"):
        cids(service_of(), sort=sort, state=state)


def test_unknown_order_is_refused() -> None:
    with pytest.raises(BadQuery, match="invalid sorting option: CID"):
        cids(service_of(), sort="CID")


@given(
    count=st.integers(0, 30),
    offset=st.integers(-3, 35),
    limit=st.integers(-3, 35),
)
def test_pages_are_cut_from_whole(count: int, offset: int, limit: int) -> None:
    service = service_of(*(replace(CLOSED_CLIENT, cid=cid) for cid in range(1, count + 1)))
    page = connz(service, ConnzOptions(state=CLOSED, offset=offset, limit=limit), NOW)
    start, size = max(offset, 0), limit if limit > 0 else LIMIT_DEFAULT
    assert [row["cid"] for row in page["connections"]] == list(range(1, count + 1))[start:][:size]
    assert (page["total"], page["offset"], page["limit"]) == (count, start, size)


def test_total_counts_account_but_not_the_other_filters() -> None:
    service = service_of(
        replace(CLOSED_CLIENT, cid=1, account="A", name_tag="A", user="amy"),
        replace(CLOSED_CLIENT, cid=2, account="A", user="bob"),
        replace(CLOSED_CLIENT, cid=3, account="$G", user="amy"),
    )
    page = connz(service, ConnzOptions(state=CLOSED, acc="A", user="amy"), NOW)
    assert ([row["cid"] for row in page["connections"]], page["total"]) == ([1], 2)


def test_account_that_is_not_there_has_no_list_at_all() -> None:
    answer = connz(service_of(CLOSED_CLIENT), ConnzOptions(state=CLOSED, acc="NOPE"), NOW)
    assert answer["connections"] is None
    assert answer["server_id"] == ""


def test_id_is_page_of_one() -> None:
    service = service_of(*(replace(CLOSED_CLIENT, cid=cid) for cid in (1, 2, 3)))
    answer = connz(service, ConnzOptions(state=CLOSED, cid=2, offset=5), NOW)
    assert [row["cid"] for row in answer["connections"]] == [2]
    assert (answer["offset"], answer["limit"], answer["total"]) == (0, 1, 3)


@pytest.mark.parametrize(
    ("subject", "found"), [("foo.1", [1]), ("foo.*", [1]), ("bar", [2]), ("baz", []), ("..", [])]
)
def test_subject_filter_keeps_sessions_that_would_receive_it(
    subject: str, found: list[int]
) -> None:
    service = service_of(
        replace(CLOSED_CLIENT, cid=1, subscriptions=(("1", "foo.>", None, 0, 0),)),
        replace(CLOSED_CLIENT, cid=2, subscriptions=(("1", "bar", "q", 0, 0),)),
    )
    assert cids(service, acc="$G", filter_subject=subject) == found
    assert cids(service, filter_subject=subject) == [1, 2]  # subjects of which account?


def test_users_and_accounts_are_shown_only_when_asked_for() -> None:
    service = service_of(replace(CLOSED_CLIENT, cid=1, account="A", name_tag="A", user="amy"))
    plain = connz(service, ConnzOptions(state=CLOSED), NOW)["connections"][0]
    asked = connz(service, ConnzOptions(state=CLOSED, auth=True), NOW)["connections"][0]
    names = ("authorized_user", "account", "name_tag")
    assert [name for name in names if name in plain] == []
    assert [asked[name] for name in names] == ["amy", "A", "A"]


def test_subscriptions_come_as_subjects_or_in_detail() -> None:
    subscriptions = (("7", "foo", "q", 3, 5),)
    service = service_of(replace(CLOSED_CLIENT, cid=1, account="A", subscriptions=subscriptions))
    listed = connz(service, ConnzOptions(state=CLOSED, subscriptions=True), NOW)
    detailed = connz(service, ConnzOptions(state=CLOSED, subscriptions_detail=True), NOW)
    assert listed["connections"][0]["subscriptions_list"] == ["foo"]
    detail = detailed["connections"][0]["subscriptions_list_detail"][0]
    assert (detail["subject"], detail["qgroup"], detail["sid"]) == ("foo", "q", "7")
    assert [detail[name] for name in ("msgs", "max", "cid", "account")] == [3, 5, 1, "A"]


def test_name_that_is_no_text_is_shown_with_replacement() -> None:
    service = service_of(replace(CLOSED_CLIENT, subscriptions=(("1", "a\udcff", None, 0, 0),)))
    answer = connz(service, ConnzOptions(state=CLOSED, subscriptions=True), NOW)
    assert answer["connections"][0]["subscriptions_list"] == ["a�"]


@pytest.mark.parametrize(
    ("raw", "state"), [("", 0), ("state=OPEN", 0), ("state=closed", 1), ("state=all", 2)]
)
def test_states_are_read_in_any_case(raw: str, state: int) -> None:
    assert ConnzOptions.from_query(Query(raw)).state == state


def test_unknown_state_is_refused() -> None:
    with pytest.raises(BadQuery, match="Error decoding state for foo"):
        ConnzOptions.from_query(Query("state=foo"))


def test_subs_is_flag_or_word_detail() -> None:
    assert ConnzOptions.from_query(Query("subs=1")).subscriptions
    assert ConnzOptions.from_query(Query("subs=detail")).subscriptions_detail
    with pytest.raises(BadQuery, match="Error decoding boolean for 'subs'"):
        ConnzOptions.from_query(Query("subs=all"))
