"""Direct get: one message, ranges, the last of many subjects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.effects import Fetch, Send
from penstock.base.message import Inbound
from penstock.jetstream.account.direct_get import PIECE_BYTES_MAX, SUBJECTS_MAX, direct_get
from penstock.store.memstore import MemStore
from support.forgetful_store import START_NS, STEP_NS, ForgetfulStore, answers, filled

if TYPE_CHECKING:
    from penstock.store.contract import Store

SUBJECTS = ("a", "b", "", "b", "c", "a")
LEVEL = b"NATS/1.0\r\nNats-Required-Api-Level: %b\r\n\r\n"


@pytest.fixture
def store() -> Store:
    return filled(*SUBJECTS)


def asked(store: Store, **body: Any) -> list[Send]:
    return answers(store, json.dumps(body).encode())


def fields(sent: Send) -> dict[str, str]:
    lines = sent.header.decode().split("\r\n")[1:-2]
    return dict(line.split(": ", 1) for line in lines)


def sequences(sent: list[Send]) -> list[int]:
    return [int(fields(one)["Nats-Sequence"]) for one in sent if "Nats-Sequence" in fields(one)]


def statuses(sent: list[Send]) -> list[str]:
    return [one.header.split(b"\r\n")[0].decode()[9:] for one in sent]


# -- one message


def test_origin_fields_follow_own_headers() -> None:
    store = MemStore()
    store.append("a.b", b"NATS/1.0\r\nB:2\r\nA: 1\r\n\r\n", b"x", START_NS + 5)
    [sent] = asked(store, seq=1)
    assert sent == Send(
        "reply",
        b"x",
        b"NATS/1.0\r\nB:2\r\nA: 1\r\nNats-Stream: S\r\nNats-Subject: a.b\r\nNats-Sequence: 1\r\n"
        b"Nats-Time-Stamp: 2023-11-14T22:13:20.000000005Z\r\n\r\n",
    )
    assert asked(store, seq=1, no_hdr=True) == [Send("reply", b"x")]


def test_subject_of_request_names_subject(store: Store) -> None:
    assert sequences(answers(store, subject="b")) == [4]
    assert sequences(answers(store, subject="*")) == [6]
    assert answers(store, b'{"no_hdr":true}', subject="b") == [Send("reply", b"m4")]


def test_subject_that_is_no_text_comes_back_as_it_was() -> None:
    subject = b"a.\xff".decode(errors="surrogateescape")
    [one] = answers(filled(subject), subject=subject)
    assert b"\r\nNats-Subject: a.\xff\r\n" in one.header


def test_nothing_is_read_without_requester(store: Store) -> None:
    reading = direct_get(store, "S", Inbound("$JS.API.DIRECT.GET.S.a", "", b"", b""))
    assert (reading.effects, reading.again) == ([], None)


@pytest.mark.parametrize(
    ("body", "subject", "status"),
    [
        (b"", "", "408 Empty Request"),
        (b"{}", "", "408 Empty Request"),
        (b"null", "", "408 Empty Request"),
        (b'{"batch":3,"up_to_seq":1}', "", "408 Empty Request"),
        (b"garbage", "", "408 Malformed Request"),
        (b'{"seq":1}{}', "", "408 Malformed Request"),
        (b'{"seq":-1}', "", "408 Malformed Request"),
        (b'{"seq":9}', "", "404 Message Not Found"),
        (b'{"seq":3}', "", "404 Message Not Found"),
        (b"", "nope", "404 Message Not Found"),
        (b'{"seq":2}', "a", "408 Bad Request"),
        (b'{"up_to_seq":2}', "a", "408 Bad Request"),
        (b"x", "a", "408 Malformed Request"),
        (b'{"seq":1,"last_by_subj":"a"}', "", "408 Bad Request"),
        (b'{"batch":1,"last_by_subj":"a"}', "", "408 Bad Request"),
        (b'{"multi_last":["a"],"last_by_subj":"a"}', "", "408 Bad Request"),
        (b'{"multi_last":["a"],"next_by_subj":"a"}', "", "408 Bad Request"),
        (
            b'{"seq":1,"up_to_seq":2,"up_to_time":"2020-01-01T00:00:00Z"}',
            "",
            "408 Bad Request",
        ),
        (b'{"multi_last":["nope"]}', "", "404 No Results"),
        (b'{"multi_last":["a"],"up_to_time":"2020-01-01T00:00:00Z"}', "", "404 No Results"),
        (b'{"batch":2,"seq":9}', "", "404 Message Not Found"),
    ],
)
def test_request_without_answer_gets_status(
    store: Store, body: bytes, subject: str, status: str
) -> None:
    assert answers(store, body, subject=subject) == [
        Send("reply", b"", f"NATS/1.0 {status}\r\n\r\n".encode())
    ]


@pytest.mark.parametrize(("level", "is_refused"), [(b"5", False), (b"6", True), (b"x", True)])
def test_level_we_do_not_have_is_refused(store: Store, level: bytes, is_refused: bool) -> None:
    sent = answers(store, subject="a", header=LEVEL % level)
    assert (statuses(sent) == ["412 Required Api Level"]) == is_refused


# -- ranges


@pytest.mark.parametrize(
    ("body", "expected", "pending"),
    [
        ({"seq": 1, "batch": 3}, [1, 2, 4], 2),
        ({"seq": 1, "batch": 99}, [1, 2, 4, 5, 6], 0),
        ({"seq": 5, "batch": 1}, [5], 1),
        ({"next_by_subj": "b", "batch": 1}, [2], 1),
        ({"next_by_subj": "b", "seq": 3, "batch": 9}, [4], 0),
        ({"start_time": "2020-01-01T00:00:00Z", "batch": 2}, [1, 2], 3),
    ],
)
def test_range_counts_what_is_left_and_ends(
    store: Store, body: dict[str, Any], expected: list[int], pending: int
) -> None:
    *messages, end = asked(store, **body)
    assert sequences(messages) == expected
    left = range(pending + len(expected) - 1, pending - 1, -1)
    assert [int(fields(one)["Nats-Num-Pending"]) for one in messages] == [*left]
    before = [int(fields(one)["Nats-Last-Sequence"]) for one in messages]
    assert before == [0, *expected[:-1]]
    assert end.header == (
        f"NATS/1.0 204 EOB\r\nNats-Num-Pending: {pending}\r\n"
        f"Nats-Last-Sequence: {expected[-1]}\r\n\r\n".encode()
    )


def test_range_ends_with_message_that_crosses_its_bytes() -> None:
    store = filled("a", "a", "a", payload=b"x" * 1000)
    assert sequences(asked(store, seq=1, batch=9, max_bytes=1001)) == [1]
    assert sequences(asked(store, seq=1, batch=9, max_bytes=1002)) == [1, 2]
    assert sequences(answers(store, b'{"seq":1,"batch":9}', bytes_max=1)) == [1]


def test_range_without_headers_is_payloads_and_end(store: Store) -> None:
    *messages, end = asked(store, seq=4, batch=2, no_hdr=True)
    assert messages == [Send("reply", b"m4"), Send("reply", b"m5")]
    assert fields(end) == {"Nats-Num-Pending": "3", "Nats-Last-Sequence": "5"}


def test_large_range_comes_in_pieces_and_sees_what_happens_between_them() -> None:
    store = filled(*"aaaaaa", payload=b"x" * (PIECE_BYTES_MAX // 2))
    request = Inbound("$JS.API.DIRECT.GET.S", "reply", b"", b'{"seq":1,"batch":9}')
    first = direct_get(store, "S", request)
    assert len(first.effects) == 2
    assert first.again is not None
    store.remove(3)
    store.append("a", b"", b"late", START_NS + 7 * STEP_NS)
    second = first.again()
    assert second.again is not None
    third = second.again()
    sent = [effect for effect in second.effects + third.effects if isinstance(effect, Send)]
    assert sequences(sent) == [4, 5, 6, 7]
    assert third.again is None
    assert fields(sent[-1]) == {"Nats-Num-Pending": "0", "Nats-Last-Sequence": "7"}


# -- the last of many


@pytest.mark.parametrize(
    ("body", "expected", "pending", "up_to"),
    [
        ({"multi_last": ["*"]}, [4, 5, 6], 0, 6),
        ({"multi_last": ["a", "*", "nope"]}, [4, 5, 6], 0, 6),
        ({"multi_last": ["*"], "batch": 2}, [4, 5], 1, 6),
        ({"multi_last": ["*"], "up_to_seq": 5}, [1, 4, 5], 0, 5),
        ({"multi_last": ["*"], "up_to_seq": 3}, [1, 2], 0, 3),
        ({"multi_last": ["*"], "up_to_seq": 99}, [4, 5, 6], 0, 99),
        ({"multi_last": ["*"], "seq": 5}, [5, 6], 0, 6),
        ({"multi_last": ["b"], "max_bytes": 1}, [4], 0, 6),
        ({"multi_last": ["*"], "max_bytes": 1}, [4], 2, 6),
    ],
)
def test_last_of_many_come_by_sequence_as_of_some_sequence(
    store: Store, body: dict[str, Any], expected: list[int], pending: int, up_to: int
) -> None:
    *messages, end = asked(store, **body)
    assert sequences(messages) == expected
    assert fields(end) == {
        "Nats-Num-Pending": str(pending),
        "Nats-Last-Sequence": str(expected[-1]),
        "Nats-UpTo-Sequence": str(up_to),
    }


def test_last_of_many_can_all_be_too_old(store: Store) -> None:
    [end] = asked(store, multi_last=["b"], seq=5)
    assert fields(end)["Nats-Last-Sequence"] == "0"


def test_too_many_subjects_are_refused_now_and_as_of_earlier() -> None:
    subjects = [f"s.{number}" for number in range(SUBJECTS_MAX + 1)]
    store = filled(*subjects, *subjects)
    for body in ({}, {"up_to_seq": SUBJECTS_MAX + 2}):
        assert statuses(asked(store, multi_last=["s.*"], **body)) == ["413 Too Many Results"]
    fits = asked(store, multi_last=["s.*"], up_to_seq=SUBJECTS_MAX)
    assert len(fits) == SUBJECTS_MAX + 1


# -- cold blocks

BODIES = st.fixed_dictionaries(
    {},
    optional={
        "seq": st.integers(0, 8),
        "batch": st.integers(-1, 4),
        "next_by_subj": st.sampled_from(["a", "*", "z"]),
        "last_by_subj": st.sampled_from(["a", "b", ">"]),
        "multi_last": st.lists(st.sampled_from(["a", "b", "c", ">"]), max_size=2),
        "up_to_seq": st.integers(0, 8),
        "max_bytes": st.integers(0, 10),
        "no_hdr": st.booleans(),
    },
)


@given(BODIES)
def test_cold_messages_get_the_same_reply(body: dict[str, Any]) -> None:
    forgetful = ForgetfulStore()
    filled(*SUBJECTS, store=forgetful)
    assert asked(forgetful, **body) == asked(filled(*SUBJECTS), **body)


def test_nothing_is_sent_twice_when_blocks_are_fetched() -> None:
    store = ForgetfulStore()
    filled(*SUBJECTS, store=store)
    sent = asked(store, seq=1, batch=9)
    assert sequences(sent) == [1, 2, 4, 5, 6]
    assert store.fetches == 5
    reading = direct_get(store, "S", Inbound("$JS.API.DIRECT.GET.S.a", "reply", b"", b""))
    assert isinstance(reading.effects[-1], Fetch)
