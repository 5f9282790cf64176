"""Ack subjects and payloads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.ack_protocol import UNREADABLE, Ack, AckRef, Verb, parse_ack, parse_ack_subject

NAMES = st.text(st.characters(exclude_characters=".*> \t\r\n\f", codec="utf-8"), min_size=1)
NUMBERS = st.tuples(*[st.integers(0, 2**64 - 1)] * 5)
REFS = st.builds(
    lambda stream, consumer, five: AckRef(stream, consumer, *five), NAMES, NAMES, NUMBERS
)


def v1(ref: AckRef) -> str:
    return ".".join(("$JS", "ACK", *map(str, ref[:7])))


@given(REFS)
def test_delivery_reads_back_from_its_subject(ref: AckRef) -> None:
    assert parse_ack_subject(v1(ref)) == ref


@given(REFS, NAMES, st.lists(NAMES, max_size=3))
def test_longer_form_reports_domain_and_account_and_may_continue(
    ref: AckRef, domain: str, more: list[str]
) -> None:
    tail = ".".join((*v1(ref).split(".")[2:], *more))
    expected = ref._replace(scope=f"{domain}.h4sh")
    assert parse_ack_subject(f"$JS.ACK.{domain}.h4sh.{tail}") == expected


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "$JS.ACK",
        "$JS.ACK.S.C.1.2.3.4",
        "$JS.ACK.S.C.1.2.3.4.5.6",
        "$JS.NAK.S.C.1.2.3.4.5",
        "x.ACK.S.C.1.2.3.4.5",
    ],
)
def test_subject_of_another_shape_is_no_ack(subject: str) -> None:
    assert parse_ack_subject(subject) is None


@pytest.mark.parametrize("number", ["", "x", "-1", "+1", "1_0", "\u0664", "9" * 21, "9" * 9000])
def test_number_above_seq_max_is_beyond_all_sequences(number: str) -> None:
    ref = parse_ack_subject(f"$JS.ACK.S.C.1.{number}.3.4.5")
    assert ref is not None
    assert ref.stream_seq == UNREADABLE


@given(st.text())
def test_any_subject_is_read_or_is_none(subject: str) -> None:
    ref = parse_ack_subject(subject)
    assert ref is None or subject.startswith("$JS.ACK.")


@pytest.mark.parametrize(
    ("payload", "ack"),
    [
        (b"", Ack(Verb.ACK)),
        (b"+ACK", Ack(Verb.ACK)),
        (b"+OK", Ack(Verb.ACK)),
        (b"+WPI", Ack(Verb.PROGRESS)),
        (b"-NAK", Ack(Verb.NAK)),
        (b"-NAK   ", Ack(Verb.NAK)),
        (b'-NAK {"delay": 5}', Ack(Verb.NAK, delay_ns=5)),
        (b'-NAK{"Delay":5,"more":1}', Ack(Verb.NAK, delay_ns=5)),
        (b"-NAK {}", Ack(Verb.NAK, delay_ns=0)),
        (b"-NAK 1.5s", Ack(Verb.NAK, delay_ns=1_500_000_000)),
        (b"-NAK -1s", Ack(Verb.NAK, delay_ns=-1_000_000_000)),
        (b"-NAK soon", Ack(Verb.NAK)),
        (b"-NAK 5", Ack(Verb.NAK)),
        (b'-NAK {"delay": "5s"}', Ack(Verb.NAK)),
        (b'-NAK {"delay": 5', Ack(Verb.NAK)),
        (b"-NAKed", Ack(Verb.NAK)),
        (b"+NXT", Ack(Verb.NEXT)),
        (b'+NXT {"batch":2}', Ack(Verb.NEXT, pull=b' {"batch":2}')),
        (b"+NXT 3", Ack(Verb.NEXT, pull=b" 3")),
        (b"+TERM", Ack(Verb.TERM)),
        (b"+TERM  no such order ", Ack(Verb.TERM, reason="no such order")),
        (b"+ACK ", Ack(Verb.OTHER)),
        (b"+WPI ", Ack(Verb.OTHER)),
        (b"+ack", Ack(Verb.OTHER)),
        (b"anything", Ack(Verb.OTHER)),
    ],
)
def test_payload_is_verb_and_what_it_takes(payload: bytes, ack: Ack) -> None:
    assert parse_ack(payload) == ack


@given(
    st.binary()
    | st.builds(lambda verb, rest: verb + rest, st.sampled_from((b"-NAK ", b"+TERM ")), st.binary())
)
def test_any_payload_is_ack(payload: bytes) -> None:
    assert isinstance(parse_ack(payload), Ack)
