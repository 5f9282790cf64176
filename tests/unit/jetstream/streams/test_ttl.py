"""Messages that end by themselves: TTLs, age, and the markers they may leave."""

from __future__ import annotations

import pytest

from penstock.api import refusals
from penstock.jetstream.streams.ttl import parse_ttl
from penstock.store.contract import TTL_NEVER
from support.stream_run import SECOND, Run, ack

MARKER = b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: %b\r\nNats-Rollup: sub\r\n\r\n"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"5", 5),
        (b"1.9s", 1),
        (b"1h", 3600),
        (b"never", TTL_NEVER),
        (b"NEVER", TTL_NEVER),
        (b"00", 0),
        (b"0", None),
        (b"0s", None),
        (b"500ms", None),
        (b"-1", None),
        (b"+5", None),
        (b"soon", None),
        (b"99999999999999999999", 7766279631452241919),
        (b"18446744073709551615", None),
        (b"9" * 500, None),
    ],
)
def test_ttl_is_whole_seconds_or_never(value: bytes, seconds: int | None) -> None:
    assert parse_ttl(value) == seconds


def test_message_ends_with_its_ttl() -> None:
    run = Run(allow_msg_ttl=True)
    run.publish("s.a", header={"Nats-TTL": "2"})
    run.publish("s.b")
    assert run.stream.next_deadline_ns() is not None
    run.tick(2 - 1e-9)
    assert run.seqs() == [1, 2]
    (applied,) = run.tick(1e-9)
    assert applied.removed.seqs == ((1, 1),)
    assert run.seqs() == [2]
    assert run.stream.next_deadline_ns() is None


def test_age_ends_all_but_those_that_never_end() -> None:
    run = Run(allow_msg_ttl=True, max_age=10 * SECOND)
    run.publish("s.a", header={"Nats-TTL": "never"})
    run.publish("s.b")
    run.publish("s.c", header={"Nats-TTL": "99999999999"})
    run.tick(10)
    assert run.seqs() == [1]


def test_ttl_needs_stream_that_has_them() -> None:
    run = Run()
    assert run.refusal("s.a", b"", {"Nats-TTL": "5"}) == refusals.MESSAGE_TTL_DISABLED
    assert run.refusal("s.a", b"", {"Nats-TTL": "never"}) == refusals.MESSAGE_TTL_DISABLED
    assert run.refusal("s.a", b"", {"Nats-TTL": "soon"}) == refusals.MESSAGE_TTL_INVALID
    assert run.publish("s.a", header={"Nats-TTL": "00"}) == ack(1)


# -- markers


def marking(ttl_s: int = 3, **fields: object) -> Run:
    return Run(
        allow_msg_ttl=True,
        allow_rollup_hdrs=True,
        subject_delete_marker_ttl=ttl_s * SECOND,
        **{"max_age": 10 * SECOND, **fields},
    )


def test_subject_that_ages_out_leaves_marker_for_while() -> None:
    run = marking()
    run.publish("s.a", b"1")
    run.publish("s.a", b"2")
    run.tick(10)
    ((seq, marker),) = run.messages().items()
    assert (seq, marker.subject, marker.payload) == (3, "s.a", b"")
    assert marker.header == MARKER % b"3s"
    assert {gone for applied in run.applied for gone in applied.removed.seqs} == {(1, 2)}
    run.tick(3)
    assert run.seqs() == []
    assert run.store.state().last_seq == 3


def test_time_of_marker_is_written_as_duration() -> None:
    run = marking(90)
    run.publish("s.a")
    run.tick(10)
    assert run.messages()[2].header == MARKER % b"1m30s"


def test_only_the_last_message_of_subject_leaves_marker() -> None:
    run = marking()
    run.publish("s.a", b"old")
    run.now_ns += SECOND
    run.publish("s.a", b"new")
    run.tick(9)
    assert {seq: record.payload for seq, record in run.messages().items()} == {2: b"new"}


@pytest.mark.parametrize("header", [{"KV-Operation": "PURGE"}, {"Nats-Marker-Reason": "Remove"}])
def test_delete_markers_leave_no_further_marker(header: dict[str, str]) -> None:
    run = marking()
    run.publish("s.a", header=header)
    run.tick(10)
    assert run.seqs() == []


def test_ttl_ends_with_marker_too() -> None:
    run = marking(max_msgs_per_subject=1, max_age=0)
    run.publish("s.a", header={"Nats-TTL": "1"})
    run.tick(1)
    assert run.messages()[2].header == MARKER % b"3s"


def test_ttl_is_at_least_that_of_marker() -> None:
    run = marking(5)
    run.publish("s.a", header={"A": "b", "Nats-TTL": "2"})
    run.publish("s.b", header={"Nats-TTL": "7"})
    assert run.messages()[1].header == b"NATS/1.0\r\nA: b\r\nNats-TTL: 5\r\n\r\n"
    assert run.messages()[2].header == b"NATS/1.0\r\nNats-TTL: 7\r\n\r\n"
    single = marking(5, max_msgs_per_subject=1)
    single.publish("s.a", header={"Nats-TTL": "2"})
    assert single.messages()[1].header == b"NATS/1.0\r\nNats-TTL: 2\r\n\r\n"


def test_explicit_removal_leaves_no_marker() -> None:
    run = marking()
    run.publish("s.a")
    planned = run.stream.plan_remove(1, run.now_ns)
    run.apply(planned)  # type: ignore[arg-type]
    run.tick(100)
    assert run.seqs() == []
    assert run.store.state().last_seq == 1


def test_marker_that_is_refused_does_not_keep_its_message() -> None:
    room = [True]

    def may_store(size: int) -> refusals.ApiError | None:
        return None if room[0] else refusals.INSUFFICIENT_RESOURCES

    run = Run(
        {"may_store": may_store},
        allow_msg_ttl=True,
        allow_rollup_hdrs=True,
        subject_delete_marker_ttl=3 * SECOND,
        max_age=10 * SECOND,
    )
    run.publish("s.a")
    room[0] = False
    run.tick(10)
    assert run.seqs() == []
    assert run.stream.next_deadline_ns() is None
