"""How headers are spelled; features and limits that meet in one message or one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.assets import MILLISECOND, SECOND
from support.jetstream import Refusal, encode_headers

if TYPE_CHECKING:
    from support.assets import JetStream

FULL = Refusal(503, 10077, "maximum messages exceeded")


@pytest.mark.parametrize(
    ("header", "known"),
    [
        (b"Nats-Msg-Id:x", True),
        (b"Nats-Msg-Id: x", True),
        (b"Nats-Msg-Id:   x", True),
        (b"Nats-Msg-Id: x  ", False),
        (b"nats-msg-id: x", False),
        (b"NATS-MSG-ID: x", False),
        (b"Nats-Msg-Id : x", False),
        (b"Nats-Msg-Id: y\r\nNats-Msg-Id: x", False),
        (b"Nats-Msg-Id: x\r\nNats-Msg-Id: y", True),
        (b"A-Nats-Msg-Id: z\r\nNats-Msg-Id: x", True),
        (b"X: Nats-Msg-Id: x", False),
        (b"Nats-Msg-Idx: x", False),
    ],
)
def test_header_is_found_by_its_exact_name_and_the_first_one_counts(
    jetstream: JetStream, header: bytes, known: bool
) -> None:
    stream = jetstream.stream()
    stream.publish("a", Nats_Msg_Id="x")
    block = b"NATS/1.0\r\n" + header + b"\r\n\r\n"
    answer = jetstream.publish_ack(stream.subject("a"), b"", block)
    assert answer.get("duplicate", False) is known


def test_empty_header_is_kept(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    jetstream.publish_ack(stream.subject("a"), b"x", b"NATS/1.0\r\n\r\n")
    assert stream.state()["messages"] == 1


@pytest.mark.parametrize(
    ("config", "rollup", "refusal"),
    [
        (
            {"max_msgs_per_subject": 1, "discard_new_per_subject": True},
            "sub",
            None,
        ),
        ({"max_msgs": 1}, "all", FULL),
    ],
)
def test_rollup_is_accepted_in_full_stream(
    jetstream: JetStream, config: dict[str, Any], rollup: str, refusal: Refusal | None
) -> None:
    stream = jetstream.stream(discard="new", allow_rollup_hdrs=True, **config)
    stream.publish("a")
    if refusal is not None:
        assert stream.refused("a", b"", {"Nats-Rollup": rollup}) == refusal
        return
    assert stream.publish("a", Nats_Rollup=rollup)["seq"] == 2
    assert stream.sequences() == [2]


def test_duplicate_is_reported_before_full_stream(jetstream: JetStream) -> None:
    stream = jetstream.stream(discard="new", max_msgs=1)
    stream.publish("a", Nats_Msg_Id="1")
    assert stream.publish("a", Nats_Msg_Id="1")["duplicate"] is True
    assert stream.refused("a", b"", {"Nats-Msg-Id": "2"}) == FULL
    stream.purge()
    assert stream.publish("a", Nats_Msg_Id="2")["seq"] == 2


def test_oversized_message_is_reported_before_full_stream(jetstream: JetStream) -> None:
    stream = jetstream.stream(discard="new", max_msgs=1, max_msg_size=10)
    stream.publish("a")
    assert stream.refused("a", b"x" * 11).err_code == 10054


def test_sizes_count_header_as_sent(jetstream: JetStream) -> None:
    block = encode_headers({"A": "1"})
    stream = jetstream.stream(max_msg_size=len(block))
    jetstream.publish_ack(stream.subject("a"), b"", block)
    assert stream.refused("a", b"x", block).err_code == 10054


# -- requests that meet limits


def test_no_wait_request_is_kept_at_max_ack_pending(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    consumer = stream.consumer(ack_policy="explicit", max_ack_pending=1)
    stream.fill("a", "b")
    [message] = consumer.fetch(1)
    inbox = consumer.pull(batch=1, no_wait=True)
    consumer.info()
    assert inbox.waiting() == []
    consumer.answer(message)
    assert inbox.next().payload == b"m2"


def test_expiry_ends_request_at_max_ack_pending(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    consumer = stream.consumer(ack_policy="explicit", max_ack_pending=1)
    stream.fill("a", "b")
    consumer.fetch(1)
    status = consumer.pull(batch=1, no_wait=True, expires=50 * MILLISECOND).next()
    assert status.status == "408 Request Timeout"


def test_unserved_no_wait_request_is_not_queued(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    consumer = stream.consumer(ack_policy="explicit")
    first = consumer.pull(batch=5, expires=10 * SECOND)
    assert consumer.pull(batch=1, no_wait=True).next().status == "404 No Messages"
    stream.publish("a", b"x")
    assert first.next().payload == b"x"


def test_max_bytes_without_batch_ends_after_one_message(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.publish("a", b"x" * 100)
    consumer = stream.consumer()
    message, status = consumer.pull(max_bytes=1000, expires=SECOND).until_status()
    size = len(message.subject) + len(message.reply) + 100
    assert status.status == "409 Batch Completed"
    assert status.fields == [
        ("Nats-Pending-Messages", "-1"),
        ("Nats-Pending-Bytes", str(1000 - size)),
    ]
