"""Single messages through the API: read by sequence, subject or time, and deleted.

Both ways of reading, the JSON one here and direct get, choose the same message; the table of
choices is therefore played on both. What only direct get can do is in test_direct_get.py.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from support.jetstream import API, Refusal

if TYPE_CHECKING:
    from support.assets import JetStream, Stream

NO_MESSAGE = Refusal(404, 10037, "no message found")
BAD_REQUEST = Refusal(400, 10003, "bad request")
PAST = "2020-01-01T00:00:00Z"
FUTURE = "2099-01-01T00:00:00Z"
STORAGES = ["file", "memory"]

CHOICES = [
    ({"seq": 1}, 1),
    ({"seq": 3}, None),
    ({"seq": 9}, None),
    ({"last_by_subj": "a"}, 1),
    ({"last_by_subj": "b"}, 4),
    ({"last_by_subj": "*"}, 5),
    ({"last_by_subj": "nope"}, None),
    ({"next_by_subj": "a"}, 1),
    ({"next_by_subj": "b", "seq": 3}, 4),
    ({"next_by_subj": "b", "seq": 4}, 4),
    ({"next_by_subj": "b", "seq": 5}, None),
    ({"next_by_subj": "*", "seq": 3}, 4),
    ({"next_by_subj": "*", "seq": 99}, None),
    ({"start_time": PAST}, 1),
    ({"start_time": FUTURE}, None),
    ({"start_time": PAST, "next_by_subj": "b"}, 2),
    ({"start_time": FUTURE, "next_by_subj": "b"}, None),
    ({"seq": 1, "up_to_seq": 4}, 1),
    ({"seq": 1, "batch": 0}, 1),
]
CONFLICTS = [
    {"seq": 1, "last_by_subj": "a"},
    {"last_by_subj": "a", "next_by_subj": "a"},
    {"start_time": PAST, "seq": 2},
    {"start_time": PAST, "last_by_subj": "b"},
]
ONLY_DIRECT = [
    {"seq": 0},
    {"no_hdr": True},
    {"batch": 2},
    {"seq": 1, "batch": 1},
    {"seq": 1, "max_bytes": 1},
    {"multi_last": ["a"]},
]


@pytest.fixture(params=STORAGES)
def stream(request: pytest.FixtureRequest, jetstream: JetStream) -> Stream:
    """Messages a b - b c: the third is deleted."""
    made = jetstream.stream(storage=request.param, allow_direct=True)
    made.fill("a", "b", "a", "b", "c")
    made.remove(3)
    return made


def absolute(stream: Stream, body: dict[str, Any]) -> dict[str, Any]:
    """A request's subjects under the stream's name."""
    subjects = ("last_by_subj", "next_by_subj")
    return {key: stream.subject(value) if key in subjects else value for key, value in body.items()}


# -- reading


@pytest.mark.parametrize(("body", "seq"), CHOICES)
def test_message_is_chosen_by_sequence_subject_or_time(
    stream: Stream, body: dict[str, Any], seq: int | None
) -> None:
    request = absolute(stream, body)
    direct = stream.client.request(f"{API}DIRECT.GET.{stream.name}", request)
    if seq is None:
        assert stream.client.refused(f"STREAM.MSG.GET.{stream.name}", request) == NO_MESSAGE
        assert direct.header == b"NATS/1.0 404 Message Not Found\r\n\r\n"
        return
    message = stream.get(**request)
    assert message["seq"] == seq
    assert base64.b64decode(message["data"]) == b"m%d" % seq == direct.payload
    assert direct.headers["Nats-Sequence"] == str(seq)


@pytest.mark.parametrize("body", [*CONFLICTS, *ONLY_DIRECT])
def test_request_that_does_not_choose_one_message_is_bad(
    stream: Stream, body: dict[str, Any]
) -> None:
    request = absolute(stream, body)
    assert stream.client.refused(f"STREAM.MSG.GET.{stream.name}", request) == BAD_REQUEST


@pytest.mark.parametrize("body", CONFLICTS)
def test_contradictory_direct_request_is_bad_request(stream: Stream, body: dict[str, Any]) -> None:
    answer = stream.client.request(f"{API}DIRECT.GET.{stream.name}", absolute(stream, body))
    assert answer.header == b"NATS/1.0 408 Bad Request\r\n\r\n"


def test_start_time_chooses_the_first_message_from_then_on(stream: Stream) -> None:
    time = stream.get(seq=4)["time"]
    assert stream.get(start_time=time)["seq"] == 4
    assert stream.get(start_time=time, next_by_subj=stream.subject("c"))["seq"] == 5


@pytest.mark.parametrize("storage", STORAGES)
def test_message_is_returned_with_header_payload_and_time(
    jetstream: JetStream, storage: str
) -> None:
    stream = jetstream.stream(storage=storage)
    header = b"NATS/1.0\r\nB: 2\r\nA:1\r\nB:  3\r\n\r\n"
    jetstream.publish_ack(stream.subject("a"), b"\x00\xff<>", header)
    message = stream.get(seq=1)
    assert [*message] == ["subject", "seq", "hdrs", "data", "time"]
    assert base64.b64decode(message["hdrs"]) == header
    assert base64.b64decode(message["data"]) == b"\x00\xff<>"
    assert message["subject"] == stream.subject("a")


def test_message_without_header_and_payload_omits_both_fields(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.publish("a")
    assert [*stream.get(seq=1)] == ["subject", "seq", "time"]


def test_headers_can_be_excluded(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.publish("a", b"x", Key="value")
    assert [*stream.get(seq=1, no_hdr=True)] == ["subject", "seq", "data", "time"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"seq":-1}', "number -1 into Go struct field JSApiMsgGetRequest.seq of type uint64"),
        (b'{"start_time":"x"}', 'parsing time "x" as "2006-01-02T15:04:05Z07:00"'),
    ],
)
def test_malformed_choice_is_invalid_json(jetstream: JetStream, body: bytes, text: str) -> None:
    stream = jetstream.stream()
    refusal = jetstream.refused(f"STREAM.MSG.GET.{stream.name}", body)
    assert refusal[:2] == (400, 10025)
    assert text in refusal.description


# -- deleting


@pytest.mark.parametrize("no_erase", [True, False])
def test_deleted_message_cannot_be_read_and_leaves_gap(stream: Stream, no_erase: bool) -> None:
    answer = stream.client.done(
        f"STREAM.MSG.DELETE.{stream.name}", {"seq": 2, "no_erase": no_erase}
    )
    assert answer["success"] is True
    assert stream.sequences() == [1, 4, 5]
    assert stream.client.refused(f"STREAM.MSG.GET.{stream.name}", {"seq": 2}) == NO_MESSAGE
    assert stream.publish("a")["seq"] == 6


def test_deleting_the_first_message_moves_the_first_sequence_past_gaps(stream: Stream) -> None:
    stream.remove(2)
    stream.remove(1)
    state = stream.state(deleted_details=True)
    assert (state["first_seq"], state.get("num_deleted", 0)) == (4, 0)


def test_deleting_reduces_byte_count(stream: Stream) -> None:
    before = stream.state()["bytes"]
    stream.publish("a", b"x" * 1000)
    stream.remove(6)
    assert stream.state()["bytes"] == before


@pytest.mark.parametrize(
    ("storage", "seq", "refusal"),
    [
        ("file", 0, Refusal(500, 10057, "no message found")),
        ("file", 1, Refusal(500, 10057, "no message found")),
        ("file", 3, Refusal(400, 10043, "sequence 3 not found")),
        ("file", 9, Refusal(500, 10057, "stream store EOF")),
        ("memory", 0, Refusal(400, 10043, "sequence 0 not found")),
        ("memory", 1, Refusal(400, 10043, "sequence 1 not found")),
        ("memory", 3, Refusal(400, 10043, "sequence 3 not found")),
        ("memory", 9, Refusal(400, 10043, "sequence 9 not found")),
    ],
)
def test_missing_message_cannot_be_deleted(
    jetstream: JetStream, storage: str, seq: int, refusal: Refusal
) -> None:
    stream = jetstream.stream(storage=storage)
    stream.fill("a", "b", "c", "d")
    stream.remove(1)
    stream.remove(3)
    request = {"seq": seq, "no_erase": True}
    assert jetstream.refused(f"STREAM.MSG.DELETE.{stream.name}", request) == refusal


def test_deletion_can_be_denied(jetstream: JetStream) -> None:
    stream = jetstream.stream(deny_delete=True)
    stream.publish("a")
    refusal = jetstream.refused(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 1})
    assert refusal == Refusal(500, 10057, "message delete not permitted")
