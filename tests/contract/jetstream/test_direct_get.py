"""Direct get: single messages, ranges, and the last of many subjects, header by header.

Which single message a request chooses is in test_messages.py for both ways of reading.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from support.jetstream import API, encode_body

if TYPE_CHECKING:
    from support.assets import JetStream, Stream
    from support.jetstream import Message

PAST = "2020-01-01T00:00:00Z"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z"


@pytest.fixture(params=["file", "memory"])
def stream(request: pytest.FixtureRequest, jetstream: JetStream) -> Stream:
    """Messages a b - b c a: the third is deleted."""
    made = jetstream.stream(storage=request.param, allow_direct=True)
    made.fill("a", "b", "a", "b", "c", "a")
    made.remove(3)
    return made


def direct(stream: Stream, body: object = None, rest: str = "") -> list[Message]:
    """All answers to a request: one, or everything up to the end of the batch."""
    inbox = stream.client.subscribe()
    subject = f"{API}DIRECT.GET.{stream.name}{rest}"
    stream.client.publish(subject, encode_body(body), reply=inbox.subject)
    several = isinstance(body, dict) and ("batch" in body or "multi_last" in body)
    answers = inbox.until_status() if several else [inbox.next()]
    assert inbox.waiting() == []
    inbox.close()
    return answers


def sequences(answers: list[Message]) -> list[int]:
    return [int(one.headers["Nats-Sequence"]) for one in answers if not one.status]


# -- single messages


def test_origin_headers_follow_messages_own_headers(jetstream: JetStream) -> None:
    stream = jetstream.stream(allow_direct=True)
    jetstream.publish_ack(stream.subject("a"), b"x", b"NATS/1.0\r\nB:2\r\nA: 1\r\n\r\n")
    [answer] = direct(stream, {"seq": 1})
    name = re.escape(stream.name)
    assert re.fullmatch(
        rf"NATS/1\.0\r\nB:2\r\nA: 1\r\nNats-Stream: {name}\r\nNats-Subject: {name}\.a\r\n"
        rf"Nats-Sequence: 1\r\nNats-Time-Stamp: {TIME}\r\n\r\n",
        answer.header.decode(),
    )
    assert answer.payload == b"x"
    assert answer.reply == ""


def test_message_without_header_gets_one(jetstream: JetStream) -> None:
    stream = jetstream.stream(allow_direct=True)
    stream.publish("a", b"x")
    [answer] = direct(stream, {"seq": 1})
    assert [key for key, _ in answer.fields] == [
        "Nats-Stream",
        "Nats-Subject",
        "Nats-Sequence",
        "Nats-Time-Stamp",
    ]
    assert answer.headers["Nats-Time-Stamp"] == stream.get(seq=1)["time"]


def test_request_can_exclude_headers(jetstream: JetStream) -> None:
    stream = jetstream.stream(allow_direct=True)
    stream.publish("a", b"x", Key="value")
    [answer] = direct(stream, {"seq": 1, "no_hdr": True})
    assert (answer.header, answer.payload) == (b"", b"x")


@pytest.mark.parametrize(("rest", "seq"), [("a", 6), ("*", 6), ("b", 4), (">", 6)])
def test_last_message_of_subject_is_asked_for_by_subject(
    stream: Stream, rest: str, seq: int
) -> None:
    [answer] = direct(stream, None, f".{stream.subject(rest)}")
    assert sequences([answer]) == [seq]


@pytest.mark.parametrize(
    ("body", "rest", "status"),
    [
        (b"", "", "408 Empty Request"),
        (b"{}", "", "408 Empty Request"),
        (b"null", "", "408 Empty Request"),
        (b'{"seq":0}', "", "408 Empty Request"),
        (b'{"x":1}', "", "408 Empty Request"),
        (b'{"no_hdr":true}', "", "408 Empty Request"),
        (b'{"batch":3}', "", "408 Empty Request"),
        (b"garbage", "", "408 Malformed Request"),
        (b"[]", "", "408 Malformed Request"),
        (b'{"seq":-1}', "", "408 Malformed Request"),
        (b'{"start_time":"x"}', "", "408 Malformed Request"),
        (b'{"seq":9}', "", "404 Message Not Found"),
        (b"", ".{s}.nope", "404 Message Not Found"),
        (b'{"seq":2}', ".{s}.a", "408 Bad Request"),
        (b"garbage", ".{s}.a", "408 Malformed Request"),
        (b'{"multi_last":["{s}.a"],"seq":1,"last_by_subj":"{s}.a"}', "", "408 Bad Request"),
        (b'{"batch":1,"last_by_subj":"{s}.a"}', "", "408 Bad Request"),
        (b'{"multi_last":["{s}.nope"]}', "", "404 No Results"),
        (b'{"batch":2,"seq":9}', "", "404 Message Not Found"),
        (b'{"batch":2,"next_by_subj":"{s}.nope"}', "", "404 Message Not Found"),
    ],
)
def test_request_without_match_gets_status(
    stream: Stream, body: bytes, rest: str, status: str
) -> None:
    request = body.replace(b"{s}", stream.name.encode())
    [answer] = direct(stream, request, rest.format(s=stream.name))
    assert answer.header == f"NATS/1.0 {status}\r\n\r\n".encode()
    assert answer.payload == b""


def test_stream_without_allow_direct_has_no_responders(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.publish("a")
    [answer] = direct(stream, {"seq": 1})
    assert answer.status == "503"
    stream.update(allow_direct=True)
    [answer] = direct(stream, {"seq": 1})
    assert sequences([answer]) == [1]


# -- batches


@pytest.mark.parametrize(
    ("body", "expected", "pending"),
    [
        ({"seq": 1, "batch": 3}, [1, 2, 4], 2),
        ({"seq": 1, "batch": 99}, [1, 2, 4, 5, 6], 0),
        ({"seq": 5, "batch": 1}, [5], 1),
        ({"seq": 3, "batch": 2}, [4, 5], 1),
        ({"next_by_subj": "a", "batch": 9}, [1, 6], 0),
        ({"next_by_subj": "b", "seq": 2, "batch": 1}, [2], 1),
        ({"next_by_subj": "b", "seq": 3, "batch": 9}, [4], 0),
        ({"start_time": PAST, "batch": 2}, [1, 2], 3),
    ],
)
def test_batch_is_range_that_skips_deleted_messages(
    stream: Stream, body: dict[str, Any], expected: list[int], pending: int
) -> None:
    if "next_by_subj" in body:
        body = {**body, "next_by_subj": stream.subject(body["next_by_subj"])}
    *messages, end = direct(stream, body)
    assert sequences(messages) == expected
    left = range(pending + len(expected) - 1, pending - 1, -1)
    assert [int(one.headers["Nats-Num-Pending"]) for one in messages] == [*left]
    before = [int(one.headers["Nats-Last-Sequence"]) for one in messages]
    assert before == [0, *expected[:-1]]
    assert end.status == "204 EOB"
    assert end.fields == [
        ("Nats-Num-Pending", str(pending)),
        ("Nats-Last-Sequence", str(expected[-1])),
    ]


def test_batch_ends_with_message_that_exceeds_max_bytes(jetstream: JetStream) -> None:
    stream = jetstream.stream(allow_direct=True)
    for _ in range(4):
        stream.publish("a", b"x" * 1000)
    *messages, end = direct(stream, {"seq": 1, "batch": 4, "max_bytes": 1500})
    assert sequences(messages) == [1, 2]
    assert end.fields == [("Nats-Num-Pending", "2"), ("Nats-Last-Sequence", "2")]


# -- the last of many


@pytest.mark.parametrize(
    ("body", "expected", "pending", "up_to"),
    [
        ({"multi_last": ["*"]}, [4, 5, 6], 0, 6),
        ({"multi_last": ["a", "b"]}, [4, 6], 0, 6),
        ({"multi_last": ["a", "nope"]}, [6], 0, 6),
        ({"multi_last": ["*"], "batch": 2}, [4, 5], 1, 6),
        ({"multi_last": ["*"], "up_to_seq": 5}, [1, 4, 5], 0, 5),
        ({"multi_last": ["*"], "up_to_seq": 3}, [1, 2], 0, 3),
        ({"multi_last": ["*"], "seq": 5}, [5, 6], 0, 6),
    ],
)
def test_last_messages_of_several_subjects_are_ordered_by_sequence(
    stream: Stream, body: dict[str, Any], expected: list[int], pending: int, up_to: int
) -> None:
    wanted = [stream.subject(rest) for rest in body["multi_last"]]
    *messages, end = direct(stream, {**body, "multi_last": wanted})
    assert sequences(messages) == expected
    assert end.status == "204 EOB"
    assert end.headers["Nats-Num-Pending"] == str(pending)
    assert end.headers["Nats-Last-Sequence"] == str(expected[-1])
    assert end.headers["Nats-UpTo-Sequence"] == str(up_to)


def test_last_messages_can_be_read_as_of_time(stream: Stream) -> None:
    time = stream.get(seq=5)["time"]
    body = {"multi_last": [stream.subject("*")], "up_to_time": time}
    *messages, end = direct(stream, body)
    assert sequences(messages) == [1, 4]
    assert end.headers["Nats-UpTo-Sequence"] == "4"


def test_too_many_subjects_are_refused(jetstream: JetStream) -> None:
    stream = jetstream.stream(allow_direct=True, storage="memory")
    for number in range(1025):
        jetstream.publish(stream.subject(str(number)), b"")
    stream.publish("0")
    [answer] = direct(stream, {"multi_last": [stream.subject("*")]})
    assert answer.header == b"NATS/1.0 413 Too Many Results\r\n\r\n"
