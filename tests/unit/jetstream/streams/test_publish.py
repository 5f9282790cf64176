"""Publishing into a stream: what is stored, what the publisher hears, which fault comes first."""

from __future__ import annotations

from itertools import combinations

import pytest

from penstock.api import refusals
from penstock.api.stream_config import Republish, SubjectTransform
from penstock.base.effects import Send
from penstock.base.message import Inbound
from penstock.jetstream.streams.entries import Answer, Publish
from penstock.store.contract import MessageRecord
from support.stream_run import INTEREST, NEW, NEW_YEAR, SECOND, Run, ack, refused

EXPECTED = "Nats-Expected-"


def test_message_is_stored_as_it_came_and_acknowledged() -> None:
    run = Run()
    assert run.publish("s.a", b"one") == ack(1)
    assert run.publish("s.b", b"two", {"X": "y"}) == ack(2)
    assert run.messages() == {
        1: MessageRecord(1, NEW_YEAR, "s.a", b"", b"one"),
        2: MessageRecord(2, NEW_YEAR, "s.b", b"NATS/1.0\r\nX: y\r\n\r\n", b"two"),
    }
    assert run.applied[1].stored == ((2, "s.b"),)


def test_planning_changes_nothing() -> None:
    run = Run()
    for header in (b"", b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n"):
        planned = run.stream.plan(Inbound("s.a", "r", header, b"x"), NEW_YEAR)
        assert isinstance(planned, Publish)
    assert run.store.state().last_seq == run.stream.last_seq == 0


def test_no_reply_without_reply_subject_or_on_no_ack_stream() -> None:
    assert Run().publish("s.a", reply="") == []
    silent = Run(no_ack=True)
    assert silent.publish("s.a") == []
    assert silent.publish("s.a", header={EXPECTED + "Stream": "T"}) == []
    assert silent.seqs() == [1]


def test_acknowledgements_name_domain_and_refusals_do_not() -> None:
    run = Run({"domain": "hub"})
    assert run.publish("s.a") == [b'{"stream":"S","domain":"hub","seq":1}']
    assert run.publish("s.a", header={EXPECTED + "Stream": "T"}) == refused(
        400, 10060, "expected stream does not match"
    )


def test_time_of_messages_never_falls() -> None:
    run = Run()
    run.publish("s.a")
    run.now_ns -= 5 * SECOND
    run.publish("s.a")
    run.publish("s.a", header={"X": "y"})
    assert [record.ts_ns for record in run.messages().values()] == [NEW_YEAR] * 3


def test_status_line_and_servers_own_header_are_not_stored() -> None:
    run = Run()
    run.publish("s.a", b"", b"NATS/1.0 503 No\r\n\r\n")
    run.publish("s.a", b"", b"NATS/1.0\r\nNats-Request-Info: {}\r\nA: b\r\n\r\n")
    run.publish("s.a", b"", b"NATS/1.0\r\nNats-Request-Info: {}\r\n\r\n")
    stored = [record.header for record in run.messages().values()]
    assert stored == [b"", b"NATS/1.0\r\nA: b\r\n\r\n", b""]


def test_transform_changes_what_it_matches_and_nothing_else() -> None:
    run = Run(subject_transform=SubjectTransform(src="s.*", dest="t.{{wildcard(1)}}"))
    assert run.publish("s.a") == ack(1)
    assert run.publish("s.a.b") == ack(2)
    assert [record.subject for record in run.messages().values()] == ["t.a", "s.a.b"]


# -- duplicates


def test_id_seen_within_window_is_answered_with_its_sequence() -> None:
    run = Run(duplicate_window=10 * SECOND)
    assert run.publish("s.a", header={"Nats-Msg-Id": "x"}) == ack(1)
    run.publish("s.a")
    assert run.publish("s.b", header={"Nats-Msg-Id": "x"}) == ack(1, ',"duplicate": true')
    run.now_ns += 10 * SECOND - 1
    assert run.publish("s.b", header={"Nats-Msg-Id": "x"}) == ack(1, ',"duplicate": true')
    run.now_ns += 1
    assert run.publish("s.b", header={"Nats-Msg-Id": "x"}) == ack(3)


def test_duplicate_is_distinguished_from_refusal() -> None:
    run = Run()
    run.publish("s.a", header={"Nats-Msg-Id": "x"})
    header = b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n"
    planned = run.stream.plan(Inbound("s.a", "", header, b""), NEW_YEAR)
    assert planned == Answer((), None, is_duplicate=True)


# -- expectations


@pytest.mark.parametrize(
    ("expectation", "holds"),
    [
        ({"Stream": "S"}, True),
        ({"Stream": "T"}, False),
        ({"Stream": ""}, True),
        ({"Last-Sequence": "3"}, True),
        ({"Last-Sequence": "2"}, False),
        ({"Last-Sequence": "three"}, False),
        ({"Last-Sequence": ""}, True),
        ({"Last-Sequence": "9" * 30}, False),
        ({"Last-Subject-Sequence": "2"}, True),
        ({"Last-Subject-Sequence": "3"}, False),
        ({"Last-Subject-Sequence": "0"}, False),
        ({"Last-Subject-Sequence": "3", "Last-Subject-Sequence-Subject": "s.*"}, True),
        ({"Last-Subject-Sequence": "1", "Last-Subject-Sequence-Subject": "s.a"}, True),
        ({"Last-Subject-Sequence": "0", "Last-Subject-Sequence-Subject": "no"}, True),
        ({"Last-Subject-Sequence-Subject": "s.*"}, False),
        ({"Last-Msg-Id": "last"}, True),
        ({"Last-Msg-Id": "first"}, False),
    ],
)
def test_message_is_stored_only_if_what_it_expects_holds(
    expectation: dict[str, str], holds: bool
) -> None:
    run = Run()
    run.publish("s.a", header={"Nats-Msg-Id": "first"})
    run.publish("s.b")
    run.publish("s.c", header={"Nats-Msg-Id": "last"})
    run.publish("s.b", header={EXPECTED + key: value for key, value in expectation.items()})
    assert run.seqs() == ([1, 2, 3, 4] if holds else [1, 2, 3])


def test_wrong_expectation_is_refused_with_actual_value() -> None:
    run = Run()
    run.publish("s.a", header={"Nats-Msg-Id": "first"})
    last = {EXPECTED + "Last-Sequence": "7"}
    assert run.publish("s.a", header=last) == refused(400, 10071, "wrong last sequence: 1")
    of_subject = {EXPECTED + "Last-Subject-Sequence": "7"}
    assert run.publish("s.b", header=of_subject) == refused(400, 10071, "wrong last sequence: 0")
    by_id = {EXPECTED + "Last-Msg-Id": "<x>"}
    assert run.publish("s.b", header=by_id) == refused(400, 10070, "wrong last msg ID: first")


# -- limits


def test_message_above_size_is_refused_header_included() -> None:
    run = Run(max_msg_size=30)
    assert run.publish("s.a", b"x" * 30) == ack(1)
    too_large = refused(400, 10054, "message size exceeds maximum allowed")
    assert run.publish("s.a", b"x" * 31) == too_large
    assert run.publish("s.a", b"x" * 13, {"A": "b"}) == too_large
    assert run.publish("s.a", b"x" * 12, {"A": "b"}) == ack(2)


def test_header_above_64k_is_refused() -> None:
    assert Run().refusal("s.a", b"", {"A": "b" * 65_600}) == refusals.STREAM_HEADER_EXCEEDS_MAXIMUM


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_msgs": 1}, "maximum messages exceeded"),
        ({"max_bytes": 30}, "maximum bytes exceeded"),
        (
            {"max_msgs_per_subject": 1, "discard_new_per_subject": True},
            "maximum messages per subject exceeded",
        ),
    ],
)
def test_full_stream_that_discards_new_messages_refuses(
    fields: dict[str, object], words: str
) -> None:
    run = Run(**NEW, **fields)
    assert run.publish("s.a") == ack(1)
    assert run.publish("s.a") == refused(503, 10077, words)
    assert run.seqs() == [1]


def test_full_subject_takes_rollup() -> None:
    run = Run(**NEW, max_msgs_per_subject=1, discard_new_per_subject=True, allow_rollup_hdrs=True)
    run.publish("s.a")
    assert run.publish("s.a", header={"Nats-Rollup": "sub"}) == ack(2)
    assert run.seqs() == [2]


def test_removals_by_limits_are_reported() -> None:
    run = Run(max_msgs=2)
    for _ in range(3):
        run.publish("s.a")
    assert run.applied[-1].removed.seqs == ((1, 1),)
    assert run.seqs() == [2, 3]


def test_account_and_server_may_refuse_what_message_takes() -> None:
    asked: list[int] = []

    def may_store(size: int) -> refusals.ApiError | None:
        asked.append(size)
        return refusals.ACCOUNT_RESOURCES_EXCEEDED if size > 30 else None

    run = Run({"may_store": may_store})
    assert run.publish("s.a", b"x" * 11) == ack(1)
    words = refused(400, 10002, "resource limits exceeded for account")
    assert run.publish("s.a", b"x" * 12) == words
    assert run.publish("s.a", b"", {"A": "b"}) == words
    assert asked == [30, 31, 37]


def test_sealed_stream_refuses_whatever_else_is_wrong() -> None:
    run = Run(sealed=True, max_msg_size=1)
    fault = refusals.STREAM_SEALED
    assert run.refusal("s.a", b"long", {EXPECTED + "Stream": "T"}) == fault
    assert run.refusal("s.a") == fault


# -- interest


def test_message_without_interest_has_sequence_and_is_not_stored() -> None:
    run = Run(**INTEREST)
    assert run.publish("s.a", b"1", {"Nats-Msg-Id": "x"}) == ack(1)
    run.wanted.add("s.b")
    assert run.publish("s.b", b"2") == ack(2)
    assert run.publish("s.a", b"3") == ack(3)
    assert run.seqs() == [2]
    assert [applied.stored for applied in run.applied] == [(), ((2, "s.b"),), ()]
    assert run.publish("s.b", b"", {"Nats-Msg-Id": "x"}) == ack(1, ',"duplicate": true')


# -- rollup


@pytest.mark.parametrize(("value", "left"), [("sub", [2, 4]), ("SUB", [2, 4]), ("all", [4])])
def test_rollup_takes_place_of_earlier_messages(value: str, left: list[int]) -> None:
    run = Run(allow_rollup_hdrs=True)
    for subject in ("s.a", "s.b", "s.a"):
        run.publish(subject)
    assert run.publish("s.a", header={"Nats-Rollup": value}) == ack(4)
    assert run.seqs() == left
    assert run.applied[-1].removed.msgs == 4 - len(left)


def test_rollups_must_be_allowed_and_make_sense() -> None:
    not_permitted = refused(500, 10111, "rollup not permitted")
    assert Run().publish("s.a", header={"Nats-Rollup": "sub"}) == not_permitted
    denied = Run(allow_rollup_hdrs=True, deny_purge=True)
    assert denied.publish("s.a", header={"Nats-Rollup": "sub"}) == not_permitted
    unknown = Run(allow_rollup_hdrs=True).publish("s.a", header={"Nats-Rollup": "Some"})
    assert unknown == refused(500, 10111, 'rollup value invalid: \\"some\\"')


# -- republish


def test_stored_message_is_published_again_with_its_place() -> None:
    run = Run(republish=Republish(src="s.*", dest="copy.{{wildcard(1)}}"))
    run.publish("s.a", b"one")
    run.publish("s.a", b"two", {"X": "y"})
    run.publish("s.a.b", b"not matched")
    where = (
        "Nats-Stream: S\r\nNats-Subject: s.a\r\nNats-Sequence: {}\r\n"
        "Nats-Time-Stamp: 2026-01-01T00:00:00Z\r\nNats-Last-Sequence: {}\r\n\r\n"
    )
    assert run.effects == [
        Send("copy.a", b"one", f"NATS/1.0\r\n{where.format(1, 0)}".encode()),
        Send("r", b'{"stream":"S","seq":1}'),
        Send("copy.a", b"two", f"NATS/1.0\r\nX: y\r\n{where.format(2, 1)}".encode()),
        Send("r", b'{"stream":"S","seq":2}'),
        Send("r", b'{"stream":"S","seq":3}'),
    ]


def test_only_headers_are_published_again_if_so_wished() -> None:
    run = Run(republish=Republish(src=">", dest="copy.>", headers_only=True))
    run.publish("s.a", b"hello")
    copy = run.effects[0]
    assert isinstance(copy, Send)
    assert (copy.subject, copy.payload) == ("copy.s.a", b"")
    assert copy.header.endswith(b"Nats-Last-Sequence: 0\r\nNats-Msg-Size: 5\r\n\r\n")


# -- which fault comes first

FAULTS = [
    ({"Nats-Incr": "x"}, 10171),
    ({EXPECTED + "Stream": "T"}, 10060),
    ({"Nats-TTL": "5"}, 10166),
    ({EXPECTED + "Last-Subject-Sequence": "9"}, 10071),
    ({"Nats-Schedule": "@daily"}, 10188),
    ({"Nats-Scheduler": "s.x"}, 10212),
    ({"Nats-Stream-Source": "x"}, 10227),
    ({EXPECTED + "Last-Msg-Id": "x"}, 10070),
    ({"Nats-Rollup": "sub"}, 10111),
    ({"Nats-TTL": "soon"}, 10165),
]


PAIRS = [pair for pair in combinations(FAULTS, 2) if not pair[0][0].keys() & pair[1][0].keys()]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_of_two_faults_earlier_check_is_reported(
    first: tuple[dict[str, str], int], second: tuple[dict[str, str], int]
) -> None:
    assert Run().refusal("s.a", b"", second[0]).err_code == second[1]
    assert Run().refusal("s.a", b"", {**second[0], **first[0]}).err_code == first[1]
