"""Fast batches: stored as they come, acknowledged now and then, told apart by reply subjects.

A reply is `<prefix>.<id>.<flow>.<gap policy>.<sequence>.<operation>.$FI`; the server answers to
exactly that subject, so an answer says which message it is for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.assets import unique
from support.jetstream import Refusal, refusal

if TYPE_CHECKING:
    from support.assets import JetStream, Stream
    from support.jetstream import Headers, Message

START, APPEND, COMMIT, END, PING = range(5)
UNKNOWN = Refusal(400, 10208, "batch publish ID unknown")
BAD_PATTERN = Refusal(400, 10206, "batch publish pattern is invalid")
BAD_ID = Refusal(400, 10207, "batch publish ID is invalid")
DISABLED = Refusal(400, 10205, "batch publish is disabled")
FLOW = 2


class Batch:
    """One batch towards a stream, and what is said of it."""

    def __init__(
        self, stream: Stream, gap: str = "ok", flow: object = FLOW, name: str = ""
    ) -> None:
        self.stream = stream
        self.name = name or unique("b")
        self.prefix = unique("RP")
        self.answers = stream.client.subscribe(f"{self.prefix}.>")
        self._gap = gap
        self._flow = flow

    def reply(self, seq: object, operation: int) -> str:
        return f"{self.prefix}.{self.name}.{self._flow}.{self._gap}.{seq}.{operation}.$FI"

    def send(self, seq: object, operation: int, headers: Headers = None) -> None:
        self.stream.client.publish(
            self.stream.subject("a"), b"x", reply=self.reply(seq, operation), headers=headers
        )

    def start(self) -> None:
        """Begin, and take the first acknowledgement."""
        self.send(1, START)
        assert self.said(1, START) == {"type": "ack", "seq": 0, "msgs": FLOW}

    def said(self, seq: object, operation: int) -> Any:
        """The next answer, which is for this message."""
        answer: Message = self.answers.next()
        assert (answer.subject, answer.header) == (self.reply(seq, operation), b"")
        return answer.json

    def ends(self, seq: int, operation: int, *, last: int, count: int) -> None:
        """The next answer is the acknowledgement of the whole, and nothing follows."""
        assert self.said(seq, operation) == {
            "stream": self.stream.name,
            "seq": last,
            "batch": self.name,
            "count": count,
        }
        assert self.answers.waiting() == []


@pytest.fixture
def stream(jetstream: JetStream) -> Stream:
    return jetstream.stream(allow_batched=True)


def test_messages_are_stored_as_they_arrive(stream: Stream) -> None:
    batch = Batch(stream)
    batch.start()
    assert stream.state()["messages"] == 1
    batch.send(2, COMMIT)
    batch.ends(2, COMMIT, last=2, count=2)
    assert "hdrs" not in stream.get(seq=1)


def test_flow_ack_is_sent_every_n_messages(stream: Stream) -> None:
    batch = Batch(stream)
    batch.start()
    for seq in range(2, 8):
        batch.send(seq, APPEND)
    for seq in (2, 4, 6):
        assert batch.said(seq, APPEND) == {"type": "ack", "seq": seq, "msgs": FLOW}
    batch.send(8, COMMIT)
    batch.ends(8, COMMIT, last=8, count=8)


def test_end_of_batch_may_carry_no_message(stream: Stream) -> None:
    batch = Batch(stream)
    batch.start()
    batch.send(2, END)
    batch.ends(2, END, last=1, count=1)
    assert stream.state()["messages"] == 1


def test_batch_may_be_one_message(stream: Stream) -> None:
    batch = Batch(stream)
    batch.send(1, COMMIT)
    batch.ends(1, COMMIT, last=1, count=1)


def test_ping_reply_has_the_last_sequence(stream: Stream) -> None:
    batch = Batch(stream)
    batch.start()
    batch.send(1, PING)
    assert batch.said(1, PING) == {"type": "ack", "seq": 0, "msgs": FLOW}
    assert stream.state()["messages"] == 1


def test_gap_can_be_reported_and_skipped(stream: Stream) -> None:
    batch = Batch(stream, gap="ok")
    batch.start()
    batch.send(4, APPEND)
    assert batch.said(4, APPEND) == {"type": "gap", "last_seq": 2, "seq": 4}
    assert batch.said(4, APPEND) == {"type": "ack", "seq": 4, "msgs": FLOW}
    batch.send(5, COMMIT)
    batch.ends(5, COMMIT, last=3, count=5)


def test_gap_can_end_batch(stream: Stream) -> None:
    batch = Batch(stream, gap="fail")
    batch.start()
    batch.send(4, APPEND)
    assert batch.said(4, APPEND) == {"type": "gap", "last_seq": 2, "seq": 4}
    batch.ends(4, APPEND, last=1, count=1)
    batch.send(5, COMMIT)
    assert refusal(batch.said(5, COMMIT)) == UNKNOWN
    assert stream.state()["messages"] == 1


def test_refused_message_can_be_reported_and_skipped(stream: Stream) -> None:
    batch = Batch(stream, gap="ok")
    batch.start()
    batch.send(2, COMMIT, {"Nats-Expected-Last-Sequence": "7"})
    assert batch.said(2, COMMIT) == {
        "type": "err",
        "seq": 2,
        "error": {"code": 400, "err_code": 10071, "description": "wrong last sequence: 1"},
    }
    batch.ends(2, COMMIT, last=1, count=1)


def test_refused_message_can_end_batch(stream: Stream) -> None:
    batch = Batch(stream, gap="fail")
    batch.send(1, START, {"Nats-Expected-Last-Sequence": "7"})
    assert batch.said(1, START)["type"] == "ack"
    assert refusal(batch.said(1, START)) == Refusal(400, 10071, "wrong last sequence: 0")
    batch.send(2, COMMIT)
    assert refusal(batch.said(2, COMMIT)) == UNKNOWN


@pytest.mark.parametrize(
    ("seq", "operation", "expected"),
    [
        (2, APPEND, UNKNOWN),
        (2, COMMIT, UNKNOWN),
        (2, PING, UNKNOWN),
        (0, PING, BAD_PATTERN),
        (2, START, BAD_PATTERN),
        ("x", START, BAD_PATTERN),
        (1, END, BAD_PATTERN),
        (1, 9, BAD_PATTERN),
    ],
)
def test_message_that_does_not_start_batch_is_refused(
    stream: Stream, seq: object, operation: int, expected: Refusal
) -> None:
    batch = Batch(stream)
    batch.send(seq, operation)
    assert refusal(batch.said(seq, operation)) == expected
    assert stream.state()["messages"] == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [({"gap": "maybe"}, BAD_PATTERN), ({"name": "x" * 65}, BAD_ID)],
)
def test_malformed_reply_subject_is_refused(
    stream: Stream, options: dict[str, str], expected: Refusal
) -> None:
    batch = Batch(stream, **options)
    batch.send(1, START)
    assert refusal(batch.said(1, START)) == expected


@pytest.mark.parametrize("reply", ["$FI", "a.$FI", "a.b.c.$FI"])
def test_short_reply_subject_is_refused(stream: Stream, reply: str) -> None:
    prefix = unique("RP")
    answers = stream.client.subscribe(f"{prefix}.>")
    stream.client.publish(stream.subject("a"), b"x", reply=f"{prefix}.{reply}")
    assert refusal(answers.next().json) == BAD_PATTERN


def test_stream_without_fast_batches_refuses_them(jetstream: JetStream) -> None:
    batch = Batch(jetstream.stream())
    batch.send(1, START)
    assert refusal(batch.said(1, START)) == DISABLED


def test_duplicate_is_skipped(stream: Stream) -> None:
    stream.publish("a", Nats_Msg_Id="1")
    batch = Batch(stream, flow=10)
    batch.send(1, START)
    batch.said(1, START)
    batch.send(2, APPEND, {"Nats-Msg-Id": "1"})
    batch.send(3, COMMIT)
    assert batch.said(3, COMMIT)["count"] == 3
    assert stream.state()["messages"] == 3
