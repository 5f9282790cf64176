"""Publishing to a stream: acknowledgements byte by byte, conditions, duplicates, rollups.

`FAULTS` stands in the order in which a stream checks; every pair of faults is sent together and
the earlier one must answer. Features with headers of their own have files of their own.
"""

from __future__ import annotations

import base64
import itertools
from typing import TYPE_CHECKING

import pytest

from support.assets import MILLISECOND, SECOND, unique
from support.jetstream import Refusal, encode_headers, refusal
from support.servers import until

if TYPE_CHECKING:
    from support.assets import JetStream, Stream

DUPLICATE = "duplicate"
FAULTS: list[tuple[dict[str, str], int | str]] = [
    ({"Nats-Batch-Id": "b"}, 10174),
    ({"Nats-Incr": "1"}, 10168),
    ({"Nats-Expected-Stream": "other"}, 10060),
    ({"Nats-TTL": "1"}, 10166),
    ({"Nats-Expected-Last-Subject-Sequence": "77"}, 10071),
    ({"Nats-Expected-Last-Sequence": "77"}, 10071),
    ({"Nats-Schedule": "x"}, 10188),
    ({"Nats-Stream-Source": "x"}, 10227),
    ({"Nats-Msg-Id": "known"}, DUPLICATE),
    ({"Nats-Expected-Last-Msg-Id": "unknown"}, 10070),
    ({"Nats-Rollup": "sub"}, 10111),
    ({"Nats-TTL": "x"}, 10165),
]
PAIRS = [
    (first, second)
    for first, second in itertools.combinations(FAULTS, 2)
    if first[0].keys() != second[0].keys()
]


def outcome(answer: dict[str, object]) -> int | str:
    if answer.get("duplicate"):
        return DUPLICATE
    return refusal(answer).err_code


# -- acknowledgements


def test_publish_ack_names_stream_and_sequence(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    answer = jetstream.request(stream.subject("a"), b"x")
    assert answer.header == b""
    assert answer.payload == b'{"stream":"%s","seq":1}' % stream.name.encode()


def test_duplicate_is_acked_with_the_first_sequence(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b")
    stream.publish("a", Nats_Msg_Id="1")
    answer = jetstream.request(stream.subject("c"), b"else", {"Nats-Msg-Id": "1"})
    name = stream.name.encode()
    assert answer.payload == b'{"stream":"%s","seq":3,"duplicate": true}' % name
    assert stream.state()["messages"] == 3


def test_refusal_names_stream_and_no_sequence(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    answer = jetstream.request(stream.subject("a"), b"", {"Nats-Expected-Stream": "x"})
    assert answer.payload == (
        b'{"error":{"code":400,"err_code":10060,"description":"expected stream does not match"},'
        b'"stream":"%s","seq":0}' % stream.name.encode()
    )


def test_publish_without_reply_is_stored_and_gets_no_ack(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    jetstream.publish(stream.subject("a"), b"x")
    assert stream.publish("b")["seq"] == 2


def test_stream_with_no_ack_sends_no_publish_ack(jetstream: JetStream) -> None:
    stream = jetstream.stream(no_ack=True)
    inbox = jetstream.subscribe()
    jetstream.publish(stream.subject("a"), b"x", reply=inbox.subject)
    until(lambda: stream.state()["messages"] == 1, "the message is stored")
    assert inbox.waiting() == []


def test_subscribers_receive_stored_message_unchanged(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    heard = jetstream.subscribe(stream.subject(">"))
    header = encode_headers({"Nats-Msg-Id": "1"})
    jetstream.publish_ack(stream.subject("a"), b"x", header)
    message = heard.next()
    assert (message.subject, message.header, message.payload) == (
        stream.subject("a"),
        header,
        b"x",
    )
    assert message.reply.startswith(jetstream.inbox)


def test_refused_message_still_reaches_subscribers(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    heard = jetstream.subscribe(stream.subject(">"))
    stream.refused("a", b"x", {"Nats-Expected-Stream": "x"})
    assert heard.next().payload == b"x"


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_any_bytes_are_stored(jetstream: JetStream, storage: str) -> None:
    stream = jetstream.stream(storage=storage)
    payload = bytes(range(256)) * 40
    stream.publish("a", payload)
    assert base64.b64decode(stream.get(seq=1)["data"]) == payload


@pytest.mark.parametrize(("storage", "overhead", "header"), [("file", 30, 4), ("memory", 16, 0)])
def test_byte_count_depends_on_storage(
    jetstream: JetStream, storage: str, overhead: int, header: int
) -> None:
    stream = jetstream.stream(storage=storage)
    stream.publish("a", b"x" * 100)
    plain = len(stream.subject("a")) + 100 + overhead
    assert stream.state()["bytes"] == plain
    block = encode_headers({"Key": "value"})
    jetstream.publish_ack(stream.subject("a"), b"x" * 100, block)
    assert stream.state()["bytes"] == 2 * plain + len(block) + header


@pytest.mark.parametrize(
    "sent",
    [b"NATS/1.0 200 OK\r\nA: 1\r\n\r\n", b"NATS/1.0 503\r\nA: 1\r\n\r\n"],
)
def test_status_line_is_stripped_from_stored_header(jetstream: JetStream, sent: bytes) -> None:
    stream = jetstream.stream()
    jetstream.publish_ack(stream.subject("a"), b"x", sent)
    assert base64.b64decode(stream.get(seq=1)["hdrs"]) == b"NATS/1.0\r\nA: 1\r\n\r\n"


# -- conditions


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Nats-Expected-Stream": "{s}"}, None),
        ({"Nats-Expected-Stream": ""}, None),
        (
            {"Nats-Expected-Stream": "other"},
            Refusal(400, 10060, "expected stream does not match"),
        ),
        ({"Nats-Expected-Last-Sequence": "4"}, None),
        ({"Nats-Expected-Last-Sequence": "3"}, Refusal(400, 10071, "wrong last sequence: 4")),
        ({"Nats-Expected-Last-Sequence": "0"}, Refusal(400, 10071, "wrong last sequence: 4")),
        ({"Nats-Expected-Last-Sequence": "x"}, Refusal(400, 10071, "wrong last sequence: 4")),
        ({"Nats-Expected-Last-Sequence": "-1"}, Refusal(400, 10071, "wrong last sequence: 4")),
        ({"Nats-Expected-Last-Subject-Sequence": "3"}, None),
        (
            {"Nats-Expected-Last-Subject-Sequence": "4"},
            Refusal(400, 10071, "wrong last sequence: 3"),
        ),
        (
            {"Nats-Expected-Last-Subject-Sequence": "x"},
            Refusal(400, 10071, "wrong last sequence: 3"),
        ),
        (
            {
                "Nats-Expected-Last-Subject-Sequence": "2",
                "Nats-Expected-Last-Subject-Sequence-Subject": "{s}.b",
            },
            None,
        ),
        (
            {
                "Nats-Expected-Last-Subject-Sequence": "0",
                "Nats-Expected-Last-Subject-Sequence-Subject": "{s}.nope",
            },
            None,
        ),
        (
            {
                "Nats-Expected-Last-Subject-Sequence": "9",
                "Nats-Expected-Last-Subject-Sequence-Subject": "{s}.*",
            },
            Refusal(400, 10071, "wrong last sequence: 4"),
        ),
        (
            {"Nats-Expected-Last-Subject-Sequence-Subject": "{s}.b"},
            Refusal(400, 10193, "missing sequence for expected last sequence per subject"),
        ),
        ({"Nats-Expected-Last-Msg-Id": "id"}, None),
        ({"Nats-Expected-Last-Msg-Id": "no"}, Refusal(400, 10070, "wrong last msg ID: id")),
        ({"nats-expected-stream": "other"}, None),
        ({"Nats-Required-Api-Level": "9"}, None),
        ({"Nats-Batch-Sequence": "1"}, None),
        ({"Nats-Schedule-Target": "x"}, None),
        ({"Nats-Marker-Reason": "MaxAge"}, None),
        ({"Nats-Rollup": ""}, None),
        ({"Nats-Msg-Id": ""}, None),
        (
            {"Nats-Scheduler": "x"},
            Refusal(400, 10212, "message schedules invalid scheduler"),
        ),
        (
            {"Nats-Schedule-Next": "purge"},
            Refusal(400, 10212, "message schedules invalid scheduler"),
        ),
        (
            {"Nats-Stream-Source": "x"},
            Refusal(400, 10227, "message stream source header is not allowed"),
        ),
        ({"Nats-Incr": "x"}, Refusal(400, 10171, "message counter increment is invalid")),
    ],
)
def test_failed_expectation_refuses_message(
    jetstream: JetStream, headers: dict[str, str], expected: Refusal | None
) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "a")
    stream.publish("c", Nats_Msg_Id="id")
    filled = {key: value.format(s=stream.name) for key, value in headers.items()}
    answer = jetstream.publish_ack(stream.subject("a"), b"x", filled)
    if expected is None:
        assert answer == {"stream": stream.name, "seq": 5}
    else:
        assert refusal(answer) == expected
        assert stream.state()["last_seq"] == 4


def test_expectation_headers_are_stored(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.publish("a", Nats_Expected_Last_Sequence="0", Nats_Msg_Id="1")
    kept = base64.b64decode(stream.get(seq=1)["hdrs"])
    assert b"Nats-Expected-Last-Sequence: 0\r\n" in kept
    assert b"Nats-Msg-Id: 1\r\n" in kept


@pytest.mark.parametrize(("headers", "expected"), FAULTS)
def test_each_fault_alone_is_refused(
    jetstream: JetStream, headers: dict[str, str], expected: int | str
) -> None:
    stream = jetstream.stream()
    stream.publish("a", Nats_Msg_Id="known")
    assert outcome(jetstream.publish_ack(stream.subject("a"), b"x", headers)) == expected


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_of_two_faults_the_first_in_order_is_reported(
    jetstream: JetStream, first: tuple[dict[str, str], int], second: tuple[dict[str, str], int]
) -> None:
    stream = jetstream.stream()
    stream.publish("a", Nats_Msg_Id="known")
    answer = jetstream.publish_ack(stream.subject("a"), b"x", {**first[0], **second[0]})
    assert outcome(answer) == first[1]


def test_last_sequence_includes_removed_messages(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b")
    stream.purge()
    stream.publish("a", Nats_Expected_Last_Sequence="2")


def test_subject_without_messages_has_last_sequence_zero(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b")
    stream.remove(1)
    stream.publish("a", Nats_Expected_Last_Subject_Sequence="0")


# -- sizes


def test_message_above_streams_size_is_refused(jetstream: JetStream) -> None:
    stream = jetstream.stream(max_msg_size=100)
    stream.publish("a", b"x" * 100)
    too_large = Refusal(400, 10054, "message size exceeds maximum allowed")
    assert stream.refused("a", b"x" * 101) == too_large
    block = encode_headers({"A": "1"})
    stream.client.publish_ack(stream.subject("a"), b"x" * (100 - len(block)), block)
    assert stream.refused("a", b"x" * (101 - len(block)), block) == too_large


def test_header_of_64_kib_is_refused(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    room = 65535 - len(encode_headers({"A": ""}))
    stream.client.publish_ack(stream.subject("a"), b"", {"A": "x" * room})
    refused = stream.refused("a", b"", {"A": "x" * (room + 1)})
    assert refused == Refusal(400, 10097, "header size exceeds maximum allowed of 64k")


# -- duplicates


def test_message_id_is_remembered_for_window(jetstream: JetStream) -> None:
    stream = jetstream.stream(duplicate_window=100 * MILLISECOND)
    stream.publish("a", Nats_Msg_Id="1")

    def stored_again() -> bool:
        return "duplicate" not in stream.publish("a", Nats_Msg_Id="1")

    until(stored_again, "the id is forgotten")
    assert stream.state()["messages"] == 2


def test_message_id_is_remembered_after_its_message_is_removed(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.publish("a", Nats_Msg_Id="1")
    stream.remove(1)
    assert stream.publish("b", Nats_Msg_Id="1") == {
        "stream": stream.name,
        "seq": 1,
        "duplicate": True,
    }


def test_refused_message_does_not_record_its_id(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.refused("a", b"", {"Nats-Msg-Id": "1", "Nats-Expected-Last-Sequence": "7"})
    assert stream.publish("a", Nats_Msg_Id="1") == {"stream": stream.name, "seq": 1}


def test_window_is_two_minutes_or_max_age_if_shorter(jetstream: JetStream) -> None:
    assert jetstream.stream(max_age=SECOND).config["duplicate_window"] == SECOND
    assert jetstream.stream(max_age=600 * SECOND).config["duplicate_window"] == 120 * SECOND


# -- rollups


@pytest.mark.parametrize(
    ("value", "left"), [("sub", [2, 4, 5]), ("SUB", [2, 4, 5]), ("all", [5]), ("All", [5])]
)
def test_rollup_removes_earlier_messages(jetstream: JetStream, value: str, left: list[int]) -> None:
    stream = jetstream.stream(allow_rollup_hdrs=True)
    stream.fill("a", "b", "a", "c")
    assert stream.publish("a", b"sum", Nats_Rollup=value)["seq"] == 5
    assert stream.sequences() == left


def test_unknown_rollup_value_is_refused(jetstream: JetStream) -> None:
    stream = jetstream.stream(allow_rollup_hdrs=True)
    refused = stream.refused("a", b"", {"Nats-Rollup": "xx"})
    assert refused == Refusal(500, 10111, 'rollup value invalid: "xx"')


def test_rollup_needs_allow_rollup(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    refused = stream.refused("a", b"", {"Nats-Rollup": "sub"})
    assert refused == Refusal(500, 10111, "rollup not permitted")


# -- many subjects


@pytest.mark.parametrize(
    ("subjects", "kept", "lost"),
    [
        (["{}.a", "{}.b.*"], ["{}.a", "{}.b.c"], ["{}.c", "{}.b", "{}.b.c.d"]),
        (["{}.*.x"], ["{}.1.x"], ["{}.1.y", "{}.1"]),
        (["{}.b.>"], ["{}.b.c", "{}.b.c.d"], ["{}.b", "{}.a"]),
    ],
)
def test_stream_captures_its_subjects(
    jetstream: JetStream, subjects: list[str], kept: list[str], lost: list[str]
) -> None:
    name = unique("S")
    jetstream.stream(name, subjects=[one.format(name) for one in subjects])
    for seq, subject in enumerate(kept, 1):
        assert jetstream.publish_ack(subject.format(name)) == {"stream": name, "seq": seq}
    for subject in lost:
        assert jetstream.request(subject.format(name)).status == "503"


def test_messages_of_one_publisher_are_stored_in_order(jetstream: JetStream) -> None:
    stream: Stream = jetstream.stream()
    inbox = jetstream.subscribe()
    for number in range(500):
        jetstream.publish(stream.subject(str(number % 7)), b"%d" % number, reply=inbox.subject)
    assert [one.json["seq"] for one in inbox.take(500)] == [*range(1, 501)]
    data = base64.b64decode(stream.get(seq=321)["data"])
    assert data == b"320"
