"""The lane of acks takes what its model calls plain, reads it right, and leaves the rest alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.ack_protocol import Verb, parse_ack, parse_ack_subject
from support.lanes import LaneSubscribers

SEQ_MAX = 10**19 - 1

tokens = st.sampled_from(
    ["S", "C", "_", "hub", "X9", "1", "2", "07", "0", "18446744073709551616", "-1", "1x", "\u00e9"]
)
subjects = st.one_of(
    st.lists(tokens, min_size=5, max_size=12).map(lambda rest: ".".join(("$JS.ACK", *rest))),
    st.tuples(
        st.sampled_from(["", "_.hash.", "hub.hash.", "_.X9."]),
        st.sampled_from(["S.C", "S.D", "T.C"]),
        st.lists(st.integers(0, 10**20).map(str) | tokens, min_size=5, max_size=6),
    ).map(lambda parts: f"$JS.ACK.{parts[0]}{parts[1]}.{'.'.join(parts[2])}"),
)
payloads = st.sampled_from(
    [b"", b"+ACK", b"+OK", b"+ack", b"+ACK ", b"-NAK", b"+WPI", b"+NXT", b"+TERM", b"junk"]
)


def plain(subject: str, payload: bytes) -> tuple[int, int, int] | None:
    """What the lane should collect for consumer C of stream S."""
    ref = parse_ack_subject(subject)
    if ref is None or parse_ack(payload).verb is not Verb.ACK:
        return None
    if (ref.stream, ref.consumer) != ("S", "C") or ref.scope not in ("", "_.hash"):
        return None
    if not 0 < ref.stream_seq <= SEQ_MAX or not 0 < ref.consumer_seq <= SEQ_MAX:
        return None
    return ref.stream_seq, ref.stream_seq, ref.consumer_seq


@given(subjects, payloads, st.sampled_from(["", "", "r"]))
def test_it_takes_what_is_plain_and_passes_on_the_rest(
    subject: str, payload: bytes, reply: str
) -> None:
    subscribers = LaneSubscribers(())
    subscribers.acknowledge(subject, payload, reply)
    expected = None if reply else plain(subject, payload)
    if expected is None:
        assert (subscribers.collected(), subscribers.refused) == ([], [subject])
    else:
        assert (subscribers.collected(), subscribers.refused) == ([expected], [])


@pytest.mark.parametrize("scope", ["", "_.hash."])
def test_acks_that_follow_each_other_become_one_span(scope: str) -> None:
    subscribers = LaneSubscribers(())
    for seq, consumer_seq in ((5, 1), (6, 2), (7, 3), (9, 4), (8, 5), (9, 7)):
        subscribers.acknowledge(f"$JS.ACK.{scope}S.C.1.{seq}.{consumer_seq}.99.0")
    assert subscribers.collected() == [(5, 7, 3), (9, 9, 4), (8, 8, 5), (9, 9, 7)]
    assert subscribers.collected() == []


def test_ack_with_headers_is_passed_on() -> None:
    subscribers = LaneSubscribers(())
    subscribers.acknowledge("$JS.ACK.S.C.1.1.1.9.0", header=b"NATS/1.0\r\nA: b\r\n\r\n")
    assert subscribers.refused


def test_consumer_that_is_closed_is_passed_on_and_leaves_nothing() -> None:
    subscribers = LaneSubscribers(())
    subject = "$JS.ACK.S.C.1.1.1.9.0"
    subscribers.acknowledge(subject)
    subscribers.acks.close("S", "C")
    subscribers.acknowledge(subject)
    assert (subscribers.refused, len(subscribers.acks)) == ([subject], 0)
    assert subscribers.collected() == [(1, 1, 1)]
