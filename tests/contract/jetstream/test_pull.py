"""Pull requests: what they ask for, when they end, and the status lines that say why.

Messages arrive under the stream's subject with an acknowledgement subject as reply; statuses come
to the request's inbox without reply and payload.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from support.assets import MILLISECOND, SECOND, ack_fields, stream_sequences
from support.jetstream import API
from support.servers import until

if TYPE_CHECKING:
    from support.assets import Consumer, JetStream, Stream
    from support.jetstream import Message

SHORT = 50 * MILLISECOND
NO_MESSAGES = "404 No Messages"
TIMEOUT = "408 Request Timeout"


@pytest.fixture
def stream(jetstream: JetStream) -> Stream:
    return jetstream.stream()


@pytest.fixture
def consumer(stream: Stream) -> Consumer:
    return stream.consumer(ack_policy="explicit")


def raw(consumer: Consumer, body: object) -> Message:
    """The first answer to a request body sent as it stands."""
    subject = f"{API}CONSUMER.MSG.NEXT.{consumer.stream.name}.{consumer.name}"
    return consumer.client.request(subject, body)


def pending(status: Message) -> tuple[int, int]:
    """Messages and bytes a status says were not delivered."""
    assert [key for key, _ in status.fields] == ["Nats-Pending-Messages", "Nats-Pending-Bytes"]
    first, second = (int(value) for _, value in status.fields)
    return first, second


# -- messages


def test_delivery_has_subject_and_reply_with_its_sequences(
    stream: Stream, consumer: Consumer
) -> None:
    stream.publish("a", b"x", Key="value")
    stream.publish("b")
    [message] = consumer.fetch(1)
    assert (message.subject, message.payload) == (stream.subject("a"), b"x")
    assert message.header == b"NATS/1.0\r\nKey: value\r\n\r\n"
    start = re.escape(f"$JS.ACK.{stream.name}.{consumer.name}.")
    assert re.fullmatch(start + r"1\.1\.1\.\d{19}\.1", message.reply)


def test_message_without_header_is_delivered_without(stream: Stream, consumer: Consumer) -> None:
    stream.publish("a", b"x")
    assert consumer.fetch(1)[0].header == b""


@pytest.mark.parametrize(
    "body",
    [b"", b"1", b"0", b"x", b"{}", b'{"batch":0}', b'{"batch":-1}', b'{"batch":1}', b'{"x":1}'],
)
def test_request_without_usable_body_pulls_one_message(
    stream: Stream, consumer: Consumer, body: bytes
) -> None:
    stream.fill("a", "b")
    inbox = consumer.client.pull(stream.name, consumer.name, body)
    assert stream_sequences([inbox.next()]) == [1]
    assert consumer.info()["num_waiting"] == 0
    assert inbox.waiting() == []


@pytest.mark.parametrize("body", [b"3", b'{"batch":3}'])
def test_batch_pulls_several_messages(stream: Stream, consumer: Consumer, body: bytes) -> None:
    stream.fill("a", "b", "c", "d")
    inbox = consumer.client.pull(stream.name, consumer.name, body)
    assert stream_sequences(inbox.take(3)) == [1, 2, 3]
    assert inbox.waiting() == []


def test_request_waits_for_later_messages(stream: Stream, consumer: Consumer) -> None:
    inbox = consumer.pull(batch=2)
    stream.fill("a", "b", "c")
    assert stream_sequences(inbox.take(2)) == [1, 2]


def test_waiting_requests_are_served_in_turn(stream: Stream, consumer: Consumer) -> None:
    first = consumer.pull(batch=2, expires=10 * SECOND)
    second = consumer.pull(batch=2, expires=10 * SECOND)
    until(lambda: consumer.info()["num_waiting"] == 2, "both wait")
    stream.fill("a", "b", "c", "d")
    assert stream_sequences(first.take(2)) == [1, 3]
    assert stream_sequences(second.take(2)) == [2, 4]


def test_request_without_subscriber_is_skipped(stream: Stream, consumer: Consumer) -> None:
    gone = consumer.pull(batch=5, expires=10 * SECOND)
    here = consumer.pull(batch=2, expires=10 * SECOND)
    until(lambda: consumer.info()["num_waiting"] == 2, "both wait")
    gone.close()
    stream.fill("a", "b")
    assert stream_sequences(here.take(2)) == [1, 2]


def test_headers_only_carries_payload_size(stream: Stream) -> None:
    consumer = stream.consumer(headers_only=True)
    stream.publish("a", b"x" * 77, Key="value")
    stream.publish("a", b"xy")
    with_header, without = consumer.fetch(2)
    assert with_header.header == b"NATS/1.0\r\nKey: value\r\nNats-Msg-Size: 77\r\n\r\n"
    assert without.header == b"NATS/1.0\r\nNats-Msg-Size: 2\r\n\r\n"
    assert (with_header.payload, without.payload) == (b"", b"")


# -- the end of a request


def test_no_wait_reports_the_end_of_stream(stream: Stream, consumer: Consumer) -> None:
    stream.fill("a", "b")
    for expected in ([1, 2], []):
        *messages, status = consumer.pull(batch=9, no_wait=True).until_status()
        assert stream_sequences(messages) == expected
        assert status.header == b"NATS/1.0 404 No Messages\r\n\r\n"
        assert (status.reply, status.payload) == ("", b"")


def test_full_batch_ends_without_status(stream: Stream, consumer: Consumer) -> None:
    stream.fill("a", "b")
    inbox = consumer.pull(batch=2, no_wait=True)
    inbox.take(2)
    consumer.info()
    assert inbox.waiting() == []


def test_expired_request_reports_missing_messages(stream: Stream, consumer: Consumer) -> None:
    stream.fill("a", "b")
    *messages, status = consumer.pull(batch=5, expires=SHORT).until_status()
    assert len(messages) == 2
    assert status.status == TIMEOUT
    assert pending(status) == (3, 0)


def test_no_wait_with_expiry_waits_only_if_nothing_is_available(
    stream: Stream, consumer: Consumer
) -> None:
    [status] = consumer.pull(batch=5, expires=SHORT, no_wait=True).until_status()
    assert status.status == TIMEOUT
    assert pending(status) == (5, 0)
    stream.fill("a", "b")
    *messages, status = consumer.pull(batch=5, expires=SECOND, no_wait=True).until_status()
    assert len(messages) == 2
    assert status.status == NO_MESSAGES


def test_expired_request_reports_missing_bytes(stream: Stream, consumer: Consumer) -> None:
    stream.publish("a", b"x" * 500)
    inbox = consumer.pull(batch=5, max_bytes=5000, expires=SHORT)
    message, status = inbox.until_status()
    size = len(message.subject) + len(message.reply) + 500
    assert status.status == TIMEOUT
    assert pending(status) == (4, 5000 - size)


def test_message_that_is_too_large_ends_request(stream: Stream, consumer: Consumer) -> None:
    for _ in range(2):
        stream.publish("a", b"x" * 500)
    [status] = consumer.pull(batch=3, max_bytes=100, expires=SECOND).until_status()
    assert status.status == "409 Message Size Exceeds MaxBytes"
    assert pending(status) == (3, 100)
    message, status = consumer.pull(batch=3, max_bytes=700, expires=SECOND).until_status()
    assert status.status == "409 Message Size Exceeds MaxBytes"
    size = len(message.subject) + len(message.reply) + 500
    assert pending(status) == (2, 700 - size)


def test_full_batch_reports_remaining_bytes(stream: Stream, consumer: Consumer) -> None:
    stream.publish("a", b"x" * 500)
    message, status = consumer.pull(batch=1, max_bytes=5000, expires=SECOND).until_status()
    assert status.status == "409 Batch Completed"
    size = len(message.subject) + len(message.reply) + 500
    assert pending(status) == (0, 5000 - size)


def test_deleting_consumer_ends_waiting_requests(consumer: Consumer) -> None:
    inbox = consumer.pull(expires=10 * SECOND)
    until(lambda: consumer.info()["num_waiting"] == 1, "it waits")
    consumer.delete()
    assert inbox.next().header == b"NATS/1.0 409 Consumer Deleted\r\n\r\n"


def test_deleting_stream_ends_waiting_requests(stream: Stream, consumer: Consumer) -> None:
    inbox = consumer.pull(expires=10 * SECOND)
    until(lambda: consumer.info()["num_waiting"] == 1, "it waits")
    stream.delete()
    assert inbox.next().header == b"NATS/1.0 409 Consumer Deleted\r\n\r\n"


def test_waiting_request_gets_idle_heartbeats(stream: Stream, consumer: Consumer) -> None:
    stream.fill("a", "b")
    consumer.fetch(2)
    inbox = consumer.pull(batch=2, expires=4 * SHORT, idle_heartbeat=SHORT)
    beat = inbox.next()
    assert beat.header == (
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 2\r\n\r\n"
    )
    assert beat.reply == ""
    while beat.status == "100 Idle Heartbeat":
        beat = inbox.next()
    assert beat.status == TIMEOUT


# -- refusals


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (
            {"batch": "x"},
            "400 Bad Request - json: cannot unmarshal string into Go struct field .batch "
            "of type int",
        ),
        (
            {"expires": SECOND, "idle_heartbeat": 600 * MILLISECOND},
            "400 Bad Request - heartbeat value too large",
        ),
        ({"idle_heartbeat": SECOND}, "400 Bad Request - heartbeat value too large"),
        ({"min_pending": 3}, "400 Bad Request - Not a Overflow Priority consumer"),
        ({"min_ack_pending": 3}, "400 Bad Request - Not a Overflow Priority consumer"),
        ({"id": "x"}, "400 Bad Request - Not a Pinned Client Priority consumer"),
        ({"priority": 10}, "400 Bad Request - Priority must be between 0 and 9"),
        ({"priority": -1}, "400 Bad Request - Priority must be between 0 and 9"),
    ],
)
def test_bad_request_status_has_reason(
    consumer: Consumer, body: dict[str, Any], status: str
) -> None:
    assert raw(consumer, body).header == f"NATS/1.0 {status}\r\n\r\n".encode()


@pytest.mark.parametrize("body", [{"group": "g"}, {"priority": 3}, {"no_wait": True}])
def test_fields_for_other_consumers_may_be_ignored(
    stream: Stream, consumer: Consumer, body: dict[str, Any]
) -> None:
    stream.publish("a")
    assert stream_sequences([raw(consumer, body)]) == [1]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"batch": 3}, "409 Exceeded MaxRequestBatch of 2"),
        ({"expires": 6 * SECOND}, "409 Exceeded MaxRequestExpires of 5s"),
        ({"max_bytes": 1001}, "409 Exceeded MaxRequestMaxBytes of 1000"),
        ({"batch": 3, "expires": 6 * SECOND}, "409 Exceeded MaxRequestBatch of 2"),
        ({"batch": 3, "max_bytes": 1001}, "409 Exceeded MaxRequestBatch of 2"),
        ({"expires": 6 * SECOND, "max_bytes": 1001}, "409 Exceeded MaxRequestExpires of 5s"),
    ],
)
def test_request_above_consumers_caps_is_refused(
    stream: Stream, body: dict[str, Any], status: str
) -> None:
    consumer = stream.consumer(max_batch=2, max_expires=5 * SECOND, max_bytes=1000)
    assert raw(consumer, body).header == f"NATS/1.0 {status}\r\n\r\n".encode()


def test_max_waiting_is_enforced(stream: Stream) -> None:
    consumer = stream.consumer(max_waiting=1)
    waiting = consumer.pull(expires=10 * SECOND)
    until(lambda: consumer.info()["num_waiting"] == 1, "one waits")
    assert raw(consumer, {"expires": SECOND}).status == "409 Exceeded MaxWaiting"
    assert raw(consumer, {"no_wait": True}).status == NO_MESSAGES
    stream.publish("a")
    assert stream_sequences([waiting.next()]) == [1]


def test_max_waiting_status_is_not_sent_to_requests_with_heartbeats(stream: Stream) -> None:
    consumer = stream.consumer(max_waiting=1)
    consumer.pull(expires=10 * SECOND)
    until(lambda: consumer.info()["num_waiting"] == 1, "one waits")
    quiet = consumer.pull(expires=10 * SECOND, idle_heartbeat=4 * SECOND)
    assert raw(consumer, {"expires": SECOND}).status == "409 Exceeded MaxWaiting"
    assert quiet.waiting() == []


def test_push_consumer_cannot_be_pulled_from(stream: Stream) -> None:
    consumer = stream.consumer(deliver_subject=f"deliver.{stream.name}")
    assert raw(consumer, None).header == b"NATS/1.0 409 Consumer is push based\r\n\r\n"


def test_unknown_consumer_has_no_responders(stream: Stream) -> None:
    subject = f"{API}CONSUMER.MSG.NEXT.{stream.name}.nope"
    answer = stream.client.request(subject)
    assert answer.header == f"NATS/1.0 503\r\nNats-Subject: {subject}\r\n\r\n".encode()


# -- how much may be out


def test_max_ack_pending_stops_delivery(stream: Stream) -> None:
    consumer = stream.consumer(ack_policy="explicit", max_ack_pending=2)
    stream.fill("a", "b", "c", "d")
    inbox = consumer.pull(batch=4, expires=10 * SECOND)
    first, _ = inbox.take(2)
    assert consumer.info()["num_ack_pending"] == 2
    assert inbox.waiting() == []
    consumer.answer(first)
    assert stream_sequences([inbox.next()]) == [3]


def test_at_max_ack_pending_the_first_heartbeat_ends_no_wait_request(
    stream: Stream,
) -> None:
    consumer = stream.consumer(ack_policy="explicit", max_ack_pending=2)
    stream.fill("a", "b", "c")
    inbox = consumer.pull(batch=5, no_wait=True, expires=60 * SECOND, idle_heartbeat=SHORT)
    *messages, status = inbox.until_status()
    assert stream_sequences(messages) == [1, 2]
    assert status.header == b"NATS/1.0 404 No Messages\r\n\r\n"


def test_at_max_ack_pending_heartbeat_of_another_request_ends_no_wait_request(
    stream: Stream,
) -> None:
    consumer = stream.consumer(ack_policy="explicit", max_ack_pending=2)
    stream.fill("a", "b", "c")
    inbox = consumer.pull(batch=5, no_wait=True)
    assert stream_sequences(inbox.take(2)) == [1, 2]
    assert consumer.info()["num_waiting"] == 1
    other = consumer.pull(expires=60 * SECOND, idle_heartbeat=SHORT)
    assert inbox.next().status == NO_MESSAGES
    assert other.next().status == "100 Idle Heartbeat"


def test_at_max_ack_pending_unserved_request_waits_until_it_expires(
    stream: Stream,
) -> None:
    consumer = stream.consumer(ack_policy="explicit", max_ack_pending=1)
    stream.fill("a", "b")
    consumer.fetch(1)
    inbox = consumer.pull(no_wait=True, expires=4 * SHORT, idle_heartbeat=SHORT)
    status = inbox.next()
    while status.status == "100 Idle Heartbeat":
        status = inbox.next()
    assert status.status == TIMEOUT


def test_num_pending_counts_matching_messages(stream: Stream) -> None:
    consumer = stream.consumer(ack_policy="explicit", filter_subject=stream.subject("a"))
    stream.fill("a", "b", "a", "b", "a")
    assert [ack_fields(one)[3] for one in consumer.fetch(3)] == [2, 1, 0]


def test_num_pending_follows_removals(stream: Stream, consumer: Consumer) -> None:
    stream.fill("a", "b", "c", "d")
    stream.remove(3)
    assert consumer.info()["num_pending"] == 3
    stream.purge(filter=stream.subject("d"))
    assert consumer.info()["num_pending"] == 2
    assert stream_sequences(consumer.available()) == [1, 2]
