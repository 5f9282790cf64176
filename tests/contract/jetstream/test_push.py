"""Push consumers: bound to interest, kept alive by heartbeats, held back by flow control."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.assets import MILLISECOND, SECOND, JetStream, ack_fields, stream_sequences, unique
from support.jetstream import Refusal
from support.servers import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.assets import Consumer, Stream
    from support.jetstream import Message, Subscription
    from support.servers import ServerUnderTest

BEAT = 100 * MILLISECOND
IDLE = "100 Idle Heartbeat"
FLOW = "100 FlowControl Request"
PIECE = 100_000


@pytest.fixture
def stream(jetstream: JetStream) -> Stream:
    return jetstream.stream()


def listen(stream: Stream, queue: str = "") -> Subscription:
    return stream.client.subscribe(unique("deliver"), queue)


def bound(consumer: Consumer) -> bool:
    return bool(consumer.info().get("push_bound"))


MEMORY_DISK = Path("/dev/shm")
"""Where syncs are so quick that the server commits in place."""


def next_status(inbox: Subscription, status: str) -> Message:
    """The next message with this status; others are passed over."""
    message = inbox.next()
    while message.status != status:
        message = inbox.next()
    return message


# -- delivery


def test_messages_are_pushed_as_soon_as_client_subscribes(stream: Stream) -> None:
    stream.publish("a", b"x", Key="value")
    inbox = listen(stream)
    consumer = stream.consumer(deliver_subject=inbox.subject, ack_policy="explicit")
    message = inbox.next()
    assert (message.subject, message.payload) == (stream.subject("a"), b"x")
    assert message.header == b"NATS/1.0\r\nKey: value\r\n\r\n"
    assert message.reply.startswith(f"$JS.ACK.{stream.name}.{consumer.name}.1.1.1.")
    stream.publish("b")
    assert ack_fields(inbox.next()) == (1, 2, 2, 0)
    assert "max_waiting" not in consumer.created["config"]


def test_message_committed_in_place_wakes_consumer(
    own_server: Callable[..., ServerUnderTest], request: pytest.FixtureRequest
) -> None:
    if not os.access(MEMORY_DISK, os.W_OK):
        pytest.skip(f"{MEMORY_DISK} is not writable")
    store = tempfile.TemporaryDirectory(dir=MEMORY_DISK, ignore_cleanup_errors=True)
    request.addfinalizer(store.cleanup)
    config = f'jetstream {{ store_dir: "{store.name}", sync_interval: always }}'
    with JetStream(own_server(config)) as client:
        stream = client.stream(allow_rollup_hdrs=True)
        inbox = client.subscribe(unique("deliver"))
        stream.consumer(deliver_subject=inbox.subject, ack_policy="none")
        # The state of the new consumer is committed with the first ones.
        for payload in (b"1", b"2", b"3", b"4", b"5"):
            stream.publish("a", payload, Nats_Rollup="sub")
            assert inbox.next().payload == payload


def test_without_interest_nothing_is_delivered(stream: Stream) -> None:
    stream.fill("a", "b")
    subject = unique("deliver")
    consumer = stream.consumer(deliver_subject=subject, ack_policy="explicit")
    assert not bound(consumer)
    assert consumer.info()["delivered"]["consumer_seq"] == 0
    inbox = stream.client.subscribe(subject)
    assert stream_sequences(inbox.take(2)) == [1, 2]
    until(lambda: bound(consumer), "it is bound")


def test_durable_consumer_resumes_when_interest_returns(stream: Stream) -> None:
    inbox = listen(stream)
    consumer = stream.consumer(deliver_subject=inbox.subject, ack_policy="explicit")
    stream.fill("a", "b")
    for message in inbox.take(2):
        consumer.answer(message)
    inbox.close()
    until(lambda: not bound(consumer), "it is unbound")
    stream.fill("c")
    again = stream.client.subscribe(inbox.subject)
    assert stream_sequences([again.next()]) == [3]


def test_ephemeral_consumer_is_deleted_without_interest(stream: Stream) -> None:
    inbox = listen(stream)
    body = {
        "stream_name": stream.name,
        "config": {"deliver_subject": inbox.subject, "inactive_threshold": BEAT},
    }
    created = stream.client.done(f"CONSUMER.CREATE.{stream.name}", body)
    info = f"CONSUMER.INFO.{stream.name}.{created['name']}"
    assert stream.client.done(info)["push_bound"] is True
    inbox.close()
    until(lambda: "error" in stream.client.call(info), "it is deleted")


def test_deliver_subject_of_bound_consumer_cannot_change(stream: Stream) -> None:
    inbox = listen(stream)
    consumer = stream.consumer("d", deliver_subject=inbox.subject)
    until(lambda: bound(consumer), "it is bound")
    elsewhere = unique("deliver")
    refusal = stream.consumer_refused("d", deliver_subject=elsewhere)
    assert refusal == Refusal(400, 10013, "consumer name already in use")
    inbox.close()
    until(lambda: not bound(consumer), "it is unbound")
    moved = stream.consumer("d", deliver_subject=elsewhere)
    assert moved.info()["config"]["deliver_subject"] == elsewhere


def test_deliver_group_is_served_as_queue_group(stream: Stream) -> None:
    stream.fill("a", "b", "c", "d")
    subject = unique("deliver")
    plain = stream.client.subscribe(subject)
    consumer = stream.consumer(deliver_subject=subject, deliver_group="workers")
    assert not bound(consumer)
    assert plain.waiting() == []
    queued = [stream.client.subscribe(subject, "workers") for _ in range(2)]
    assert stream_sequences(plain.take(4)) == [1, 2, 3, 4]
    shared = [*queued[0].waiting(), *queued[1].waiting()]
    assert sorted(stream_sequences(shared)) == [1, 2, 3, 4]


def test_max_ack_pending_stops_delivery(stream: Stream) -> None:
    stream.fill("a", "b", "c")
    inbox = listen(stream)
    consumer = stream.consumer(
        deliver_subject=inbox.subject, ack_policy="explicit", max_ack_pending=2
    )
    first, _ = inbox.take(2)
    consumer.info()
    assert inbox.waiting() == []
    consumer.answer(first)
    assert stream_sequences([inbox.next()]) == [3]


def test_unacked_message_is_redelivered(stream: Stream) -> None:
    stream.fill("a", "b")
    inbox = listen(stream)
    stream.consumer(deliver_subject=inbox.subject, ack_policy="explicit", ack_wait=BEAT)
    places = [ack_fields(one)[:3] for one in inbox.take(4)]
    assert places == [(1, 1, 1), (1, 2, 2), (2, 1, 3), (2, 2, 4)]


def test_rate_limit_slows_delivery_without_loss(stream: Stream) -> None:
    for _ in range(5):
        stream.publish("a", b"x" * 1000)
    inbox = listen(stream)
    stream.consumer(deliver_subject=inbox.subject, rate_limit_bps=1_000_000)
    assert stream_sequences(inbox.take(5)) == [1, 2, 3, 4, 5]


def test_replay_keeps_order(stream: Stream) -> None:
    stream.fill("a", "b", "c")
    inbox = listen(stream)
    stream.consumer(deliver_subject=inbox.subject, replay_policy="original")
    assert stream_sequences(inbox.take(3)) == [1, 2, 3]


def test_headers_only_carries_payload_size(stream: Stream) -> None:
    stream.publish("a", b"x" * 9)
    inbox = listen(stream)
    stream.consumer(deliver_subject=inbox.subject, headers_only=True)
    message = inbox.next()
    assert (message.header, message.payload) == (
        b"NATS/1.0\r\nNats-Msg-Size: 9\r\n\r\n",
        b"",
    )


def test_push_consumer_can_be_paused(stream: Stream) -> None:
    inbox = listen(stream)
    consumer = stream.consumer(deliver_subject=inbox.subject)
    stream.publish("a")
    inbox.next()
    consumer.call("PAUSE", {"pause_until": "2099-01-01T00:00:00Z"})
    stream.publish("b")
    assert consumer.info()["num_pending"] == 1
    assert inbox.waiting() == []
    consumer.call("PAUSE")
    # The reference looks again only when something happens.
    stream.publish("c")
    assert stream_sequences(inbox.take(2)) == [2, 3]


# -- heartbeats and flow control


def test_idle_heartbeats_are_sent_when_nothing_is_delivered(stream: Stream) -> None:
    stream.fill("a", "b")
    inbox = listen(stream)
    stream.consumer(deliver_subject=inbox.subject, idle_heartbeat=BEAT)
    inbox.take(2)
    beat = inbox.next()
    assert beat.header == (
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 2\r\n\r\n"
    )
    assert (beat.subject, beat.reply, beat.payload) == (inbox.subject, "", b"")


def flooded(stream: Stream, **config: Any) -> tuple[Subscription, Consumer]:
    """Three megabytes on their way to a subscriber that does not answer flow control."""
    for _ in range(30):
        stream.client.publish(stream.subject("a"), b"x" * PIECE)
    stream.publish("last")
    inbox = listen(stream)
    consumer = stream.consumer(
        deliver_subject=inbox.subject, idle_heartbeat=BEAT, flow_control=True, **config
    )
    return inbox, consumer


def test_flow_control_stops_delivery_until_client_replies(stream: Stream) -> None:
    inbox, consumer = flooded(stream)
    request = next_status(inbox, FLOW)
    start = re.escape(f"$JS.FC.{stream.name}.{consumer.name}.")
    assert re.fullmatch(start + r"\w{4}", request.reply)
    assert request.header == b"NATS/1.0 100 FlowControl Request\r\n\r\n"
    beat = next_status(inbox, IDLE)
    assert beat.headers["Nats-Consumer-Stalled"] == request.reply
    sent = int(beat.headers["Nats-Last-Consumer"])
    assert sent == 21
    assert consumer.info()["delivered"]["consumer_seq"] == sent
    stream.client.publish(request.reply)
    assert stream_sequences([one for one in inbox.take(5) if not one.status])[0] == sent + 1


def test_window_of_one_megabyte_is_sent_before_the_first_request(stream: Stream) -> None:
    inbox, _ = flooded(stream)
    before = []
    message = inbox.next()
    while message.status != FLOW:
        before.append(message)
        message = inbox.next()
    assert stream_sequences(before) == [*range(1, 12)]


def test_delivery_completes_when_flow_control_is_answered(stream: Stream) -> None:
    inbox, _ = flooded(stream)
    seen: list[int] = []
    while len(seen) < 31:
        message = inbox.next()
        if message.status == FLOW:
            stream.client.publish(message.reply)
        elif not message.status:
            seen += stream_sequences([message])
    assert seen == [*range(1, 32)]
    beat = next_status(inbox, IDLE)
    assert "Nats-Consumer-Stalled" not in beat.headers


def test_flow_control_reply_can_ack(stream: Stream) -> None:
    inbox = listen(stream)
    stream.fill("a", "b", "c")
    consumer = stream.consumer(
        deliver_subject=inbox.subject,
        ack_policy="flow_control",
        idle_heartbeat=SECOND,
        flow_control=True,
        max_ack_pending=2,
    )
    inbox.take(2)
    request = next_status(inbox, FLOW)
    fields = {"Nats-Last-Consumer": "2", "Nats-Last-Stream": "2"}
    stream.client.publish(request.reply, headers=fields)
    assert stream_sequences([inbox.next()]) == [3]
    assert consumer.info()["ack_floor"]["stream_seq"] == 2
