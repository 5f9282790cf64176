"""Batches that are stored whole or not at all.

A batch is written down as its messages; each is a subject, a commit value or None, and headers.
Faults in messages are reported at the commit, faults in the batch itself at once.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from support.assets import JetStream, unique
from support.jetstream import Refusal, refusal

if TYPE_CHECKING:
    from support.assets import Stream
    from support.jetstream import Message

INCOMPLETE = Refusal(400, 10176, "atomic publish batch is incomplete")
NO_SEQUENCE = Refusal(400, 10175, "atomic publish sequence is missing")
BAD_COMMIT = Refusal(400, 10200, "atomic publish batch commit is invalid")
DUPLICATE = Refusal(400, 10201, "atomic publish batch contains duplicate message id")
BAD_ID = Refusal(400, 10179, "atomic publish batch ID is invalid")
LEVEL = Refusal(412, 10185, "JetStream minimum api level required")
Headers = dict[str, str]


@pytest.fixture
def stream(jetstream: JetStream) -> Stream:
    return jetstream.stream(allow_atomic=True, allow_rollup_hdrs=True, allow_msg_ttl=True)


def send(
    stream: Stream,
    batch: str,
    seq: object,
    rest: str = "a",
    commit: str | None = None,
    headers: Headers | None = None,
) -> Message:
    """One message of a batch; the answer to it."""
    fields = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(seq)}
    if seq is None:
        del fields["Nats-Batch-Sequence"]
    if commit is not None:
        fields["Nats-Batch-Commit"] = commit
    subject = stream.subject(rest)
    return stream.client.request(subject, b"x", {**fields, **(headers or {})})


def play(stream: Stream, messages: list[tuple[str, Headers]], commit: str = "1") -> Message:
    """A whole batch; the answer to its last message."""
    batch = unique("batch")
    for seq, (rest, headers) in enumerate(messages[:-1], 1):
        assert send(stream, batch, seq, rest, None, headers).payload == b""
    rest, headers = messages[-1]
    return send(stream, batch, len(messages), rest, commit, headers)


# -- stored


def test_messages_are_invisible_until_commit(stream: Stream) -> None:
    for seq in (1, 2):
        answer = send(stream, "b", seq)
        assert (answer.header, answer.payload) == (b"", b"")
        assert stream.state()["messages"] == 0
    answer = send(stream, "b", 3, "a", "1")
    name = stream.name.encode()
    assert answer.payload == b'{"stream":"%s","seq":3,"batch":"b","count":3}' % name
    assert stream.sequences() == [1, 2, 3]


def test_headers_of_batch_are_stored(stream: Stream) -> None:
    play(stream, [("a", {"Key": "1"}), ("b", {})])
    stored = [base64.b64decode(stream.get(seq=seq)["hdrs"]).decode() for seq in (1, 2)]
    assert "Nats-Batch-Sequence: 1\r\nKey: 1\r\n" in stored[0]
    assert "Commit" not in stored[0]
    assert stored[1].endswith("Nats-Batch-Sequence: 2\r\nNats-Batch-Commit: 1\r\n\r\n")


def test_end_of_batch_message_is_not_stored(stream: Stream) -> None:
    answer = play(stream, [("a", {}), ("b", {}), ("a", {})], commit="eob").json
    assert (answer["seq"], answer["count"]) == (2, 2)
    assert stream.sequences() == [1, 2]
    kept = base64.b64decode(stream.get(seq=2)["hdrs"])
    assert kept.endswith(b"Nats-Batch-Sequence: 2\r\nNats-Batch-Commit: 1\r\n\r\n")


def test_batch_may_be_one_message(stream: Stream) -> None:
    answer = send(stream, "b", 1, "a", "1").json
    assert answer == {"stream": stream.name, "seq": 1, "batch": "b", "count": 1}


def test_messages_without_reply_are_part_of_batch(stream: Stream) -> None:
    for seq in ("1", "2"):
        fields = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": seq}
        stream.client.publish(stream.subject("a"), b"x", headers=fields)
    assert send(stream, "b", 3, "a", "1").json["count"] == 3


def test_batches_do_not_mix_and_get_consecutive_sequences(stream: Stream) -> None:
    for seq in (1, 2):
        send(stream, "one", seq, "a")
        send(stream, "two", seq, "b")
        stream.publish("c")
    assert send(stream, "two", 3, "b", "1").json["seq"] == 5
    stream.publish("c")
    assert send(stream, "one", 3, "a", "1").json["seq"] == 9
    subjects = [stream.get(seq=seq)["subject"].rpartition(".")[2] for seq in range(1, 10)]
    assert "".join(subjects) == "ccbbbcaaa"


def test_id_can_be_used_again(stream: Stream) -> None:
    for _ in range(2):
        send(stream, "b", 1)
        send(stream, "b", 2, "a", "1")
    assert stream.state()["messages"] == 4


def test_empty_batch_id_means_no_batch(stream: Stream) -> None:
    assert send(stream, "", 1, "a", "1").json == {"stream": stream.name, "seq": 1}


# -- faults of the batch


@pytest.mark.parametrize(
    ("seq", "commit", "headers", "expected"),
    [
        (None, None, {}, NO_SEQUENCE),
        ("x", None, {}, NO_SEQUENCE),
        (0, None, {}, INCOMPLETE),
        (2, None, {}, INCOMPLETE),
        (2, "1", {}, INCOMPLETE),
        (1, "eob", {}, INCOMPLETE),
        (1, "0", {}, BAD_COMMIT),
        (1, "x", {}, BAD_COMMIT),
        (1, "", {}, BAD_COMMIT),
        (1, None, {"Nats-Required-Api-Level": "9"}, LEVEL),
        (1, "1", {"Nats-Required-Api-Level": "9"}, LEVEL),
    ],
)
def test_batch_with_bad_start_is_refused_at_once(
    stream: Stream, seq: object, commit: str | None, headers: Headers, expected: Refusal
) -> None:
    assert refusal(send(stream, "b", seq, "a", commit, headers).json) == expected
    assert refusal(send(stream, "b", 2, "a", "1").json) == INCOMPLETE
    assert stream.state()["messages"] == 0


@pytest.mark.parametrize(
    ("seq", "commit", "expected"),
    [(3, None, INCOMPLETE), (1, None, INCOMPLETE), (3, "1", INCOMPLETE), (2, "0", BAD_COMMIT)],
    ids=["gap", "again", "gap before the commit", "commit value"],
)
def test_failed_batch_is_abandoned(
    stream: Stream, seq: int, commit: str | None, expected: Refusal
) -> None:
    send(stream, "b", 1)
    assert refusal(send(stream, "b", seq, "a", commit).json) == expected
    assert refusal(send(stream, "b", 2, "a", "1").json) == INCOMPLETE
    assert stream.state()["messages"] == 0


def test_batch_id_has_at_most_64_characters(stream: Stream) -> None:
    assert send(stream, "x" * 64, 1, "a", "1").json["count"] == 1
    assert refusal(send(stream, "x" * 65, 1, "a", "1").json) == BAD_ID


def test_stream_without_atomic_publish_refuses_batches(jetstream: JetStream) -> None:
    answer = send(jetstream.stream(), "b", 1).json
    assert refusal(answer) == Refusal(400, 10174, "atomic publish is disabled")


def test_batch_has_at_most_1000_messages(stream: Stream) -> None:
    client = stream.client
    for seq in range(1, 1001):
        fields = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(seq)}
        client.publish(stream.subject("a"), b"", headers=fields)
    answer = send(stream, "b", 1001, "a", "1").json
    assert refusal(answer)[:2] == (400, 10199)
    assert stream.state()["messages"] == 0


def test_end_of_batch_as_first_message_is_refused_as_too_large(stream: Stream) -> None:
    assert refusal(send(stream, "b", 0, "a", "eob").json)[:2] == (400, 10199)
    assert refusal(send(stream, "b", 0, "a", "1").json)[:2] == (400, 10176)


def test_50_batches_may_be_open(stream: Stream) -> None:
    for number in range(50):
        assert send(stream, f"b{number}", 1).payload == b""
    assert refusal(send(stream, "more", 1).json)[:2] == (429, 10210)
    send(stream, "b7", 2, "a", "1")
    assert send(stream, "more", 1).payload == b""


# -- faults of messages


FAULTY: list[tuple[str, list[tuple[str, Headers]], Refusal]] = [
    (
        "a header that batches cannot have",
        [("a", {"Nats-Expected-Last-Msg-Id": "x"}), ("a", {})],
        Refusal(400, 10177, "atomic publish unsupported header used: Nats-Expected-Last-Msg-Id"),
    ),
    ("an id twice", [("a", {"Nats-Msg-Id": "1"}), ("a", {"Nats-Msg-Id": "1"})], DUPLICATE),
    ("an id that is known", [("a", {"Nats-Msg-Id": "known"}), ("a", {})], DUPLICATE),
    (
        "a wrong last sequence",
        [("a", {"Nats-Expected-Last-Sequence": "7"}), ("a", {})],
        Refusal(400, 10071, "wrong last sequence: 2"),
    ),
    (
        "a last sequence that is not first",
        [("a", {}), ("a", {"Nats-Expected-Last-Sequence": "2"})],
        Refusal(400, 10071, "wrong last sequence: 3"),
    ),
    (
        "a condition on a subject the batch has written",
        [("q", {}), ("q", {"Nats-Expected-Last-Subject-Sequence": "0"})],
        Refusal(400, 10164, "wrong last sequence"),
    ),
    (
        "a wrong sequence of a subject",
        [("q", {}), ("b", {"Nats-Expected-Last-Subject-Sequence": "0"})],
        Refusal(400, 10071, "wrong last sequence: 1"),
    ),
    (
        "a rollup of a subject the batch has written",
        [("q", {}), ("q", {"Nats-Rollup": "sub"})],
        Refusal(500, 10111, "batch rollup sub invalid"),
    ),
    (
        "a rollup of all that is not first",
        [("q", {}), ("r", {"Nats-Rollup": "all"})],
        Refusal(500, 10111, "batch rollup all invalid"),
    ),
    (
        "another stream",
        [("a", {"Nats-Expected-Stream": "x"}), ("a", {})],
        Refusal(400, 10060, "expected stream does not match"),
    ),
    ("a bad ttl", [("a", {"Nats-TTL": "x"}), ("a", {})], Refusal(400, 10165, "")),
    ("a source", [("a", {"Nats-Stream-Source": "x"}), ("a", {})], Refusal(400, 10227, "")),
    ("a schedule", [("a", {"Nats-Schedule": "x"}), ("a", {})], Refusal(400, 10188, "")),
    ("an increment", [("a", {"Nats-Incr": "1"}), ("a", {})], Refusal(400, 10168, "")),
]


@pytest.mark.parametrize(
    ("messages", "expected"), [pytest.param(*rest, id=law) for law, *rest in FAULTY]
)
def test_one_invalid_message_refuses_whole_batch(
    stream: Stream, messages: list[tuple[str, Headers]], expected: Refusal
) -> None:
    stream.publish("b")
    stream.publish("c", Nats_Msg_Id="known")
    got = refusal(play(stream, messages).json)
    assert got[:2] == expected[:2]
    assert expected.description in got.description
    assert stream.state()["last_seq"] == 2


@pytest.mark.parametrize(
    ("messages", "left"),
    [
        ([("a", {"Nats-Expected-Last-Sequence": "2"}), ("a", {})], [1, 2, 3, 4]),
        ([("q", {}), ("b", {"Nats-Expected-Last-Subject-Sequence": "1"})], [1, 2, 3, 4]),
        ([("q", {}), ("b", {"Nats-Rollup": "sub"})], [2, 3, 4]),
        ([("q", {"Nats-Rollup": "all"}), ("b", {})], [3, 4]),
        ([("q", {"Nats-Msg-Id": "1"}), ("q", {"Nats-Msg-Id": "2"})], [1, 2, 3, 4]),
    ],
)
def test_fulfilled_conditions_allow_batch(
    stream: Stream, messages: list[tuple[str, Headers]], left: list[int]
) -> None:
    stream.fill("b", "c")
    answer = play(stream, messages).json
    assert (answer["seq"], answer["count"]) == (4, 2)
    assert stream.sequences() == left


def test_message_ids_of_batch_are_deduplicated_later(stream: Stream) -> None:
    play(stream, [("a", {"Nats-Msg-Id": "1"}), ("b", {})])
    assert stream.publish("c", Nats_Msg_Id="1")["duplicate"] is True


def test_consumer_gets_batch_in_order(stream: Stream) -> None:
    consumer = stream.consumer(ack_policy="explicit")
    waiting = consumer.pull(batch=3, expires=10_000_000_000)
    play(stream, [("a", {}), ("b", {}), ("c", {})])
    subjects = [one.subject.rpartition(".")[2] for one in waiting.take(3)]
    assert subjects == ["a", "b", "c"]
