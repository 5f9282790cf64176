"""Acknowledgements and what follows from their absence: redelivery, delays, giving up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from penstock.api.ack_protocol import ack_scope
from support.assets import MILLISECOND, SECOND, ack_fields, stream_sequences
from support.jetstream import API
from support.servers import until

if TYPE_CHECKING:
    from support.assets import Consumer, JetStream, Stream
    from support.jetstream import Message

SHORT = 100 * MILLISECOND


@pytest.fixture
def stream(jetstream: JetStream) -> Stream:
    made = jetstream.stream()
    made.fill("a", "b", "c")
    return made


@pytest.fixture
def consumer(stream: Stream) -> Consumer:
    return stream.consumer(ack_policy="explicit")


@pytest.fixture
def hasty(stream: Stream) -> Consumer:
    """A consumer that waits only a moment for acknowledgements."""
    return stream.consumer(ack_policy="explicit", ack_wait=SHORT)


def places(messages: list[Message]) -> list[tuple[int, int, int]]:
    """Delivery count, stream sequence and consumer sequence."""
    return [ack_fields(one)[:3] for one in messages]


# -- verbs


@pytest.mark.parametrize("payload", [b"", b"+ACK", b"+OK"])
def test_ack_removes_message_from_ack_pending_and_gets_reply(
    consumer: Consumer, payload: bytes
) -> None:
    [message] = consumer.fetch(1)
    answer = consumer.answer(message, payload)
    assert (answer.header, answer.payload, answer.reply) == (b"", b"", "")
    info = consumer.info()
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (0, 1)


def test_ack_needs_no_reply(consumer: Consumer) -> None:
    [message] = consumer.fetch(1)
    consumer.client.publish(message.reply, b"+ACK")
    until(lambda: consumer.info()["num_ack_pending"] == 0, "it is settled")


@pytest.mark.parametrize("payload", [b"nonsense", b"ACK", b"+ack", b"-ACK", b"+", b"{}"])
def test_unknown_ack_verb_gets_reply_and_changes_nothing(
    consumer: Consumer, payload: bytes
) -> None:
    [message] = consumer.fetch(1)
    assert consumer.answer(message, payload).payload == b""
    assert consumer.info()["num_ack_pending"] == 1


def test_repeated_ack_gets_reply(consumer: Consumer) -> None:
    [message] = consumer.fetch(1)
    for _ in range(2):
        consumer.answer(message)
    assert consumer.info()["ack_floor"]["stream_seq"] == 1


def test_ack_applies_to_its_stream_sequence_whatever_delivery(hasty: Consumer) -> None:
    first, *_ = hasty.fetch(3)
    again, *_ = hasty.fetch(3)
    assert places([again]) == [(2, 1, 4)]
    hasty.answer(first)
    assert hasty.info()["ack_floor"]["stream_seq"] == 1


def test_ack_of_undelivered_message_gets_no_reply(consumer: Consumer) -> None:
    [message] = consumer.fetch(1)
    tokens = message.reply.split(".")
    tokens[5:7] = ["3", "3"]
    inbox = consumer.client.subscribe()
    consumer.client.publish(".".join(tokens), b"+ACK", reply=inbox.subject)
    consumer.answer(message, b"+WPI")
    assert inbox.waiting() == []
    info = consumer.info()
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (1, 0)


def test_ack_in_newer_form_is_understood(consumer: Consumer) -> None:
    [message] = consumer.fetch(1)
    _, _, *rest = message.reply.split(".")
    consumer.client.request(".".join(["$JS", "ACK", ack_scope("", "$G"), *rest]), b"+ACK")
    assert consumer.info()["num_ack_pending"] == 0


def test_consumer_without_acks_keeps_nothing_pending(stream: Stream) -> None:
    consumer = stream.consumer(ack_policy="none")
    messages = consumer.fetch(2)
    assert places(messages) == [(1, 1, 1), (1, 2, 2)]
    info = consumer.info()
    assert info["num_ack_pending"] == 0
    assert (info["ack_floor"]["consumer_seq"], info["ack_floor"]["stream_seq"]) == (2, 2)


def refused_by_none(client: JetStream, subject: str, payload: bytes = b"+ACK") -> bool:
    """Whether a request there has no responders."""
    header = client.request(subject, payload).header
    return header == f"NATS/1.0 503\r\nNats-Subject: {subject}\r\n\r\n".encode()


@pytest.mark.parametrize("payload", [b"+ACK", b"+WPI", b"-NAK", b"+NXT", b"nonsense"])
def test_ack_to_consumer_without_acks_has_no_responders(stream: Stream, payload: bytes) -> None:
    consumer = stream.consumer(ack_policy="none")
    [message] = consumer.fetch(1)
    assert refused_by_none(stream.client, message.reply, payload)
    assert stream_sequences(consumer.available()) == [2, 3]


def test_ack_to_consumer_that_acks_by_flow_control_has_no_responders(stream: Stream) -> None:
    inbox = stream.client.subscribe()
    stream.consumer(
        ack_policy="flow_control",
        deliver_subject=inbox.subject,
        flow_control=True,
        idle_heartbeat=SECOND,
    )
    assert refused_by_none(stream.client, inbox.next().reply)


def test_ack_to_deleted_consumer_has_no_responders(consumer: Consumer) -> None:
    [message] = consumer.fetch(1)
    consumer.delete()
    assert refused_by_none(consumer.client, message.reply)


def test_ack_subject_of_another_shape_has_no_responders(consumer: Consumer) -> None:
    [message] = consumer.fetch(1)
    _, _, *rest = message.reply.split(".")
    for subject in (
        "$JS.ACK.x",
        message.reply.rpartition(".")[0],
        f"{message.reply}.x",
        ".".join(["$JS.ACK._.NotOurs1", *rest]),
        ".".join(["$JS.ACK.elsewhere", ack_scope("", "$G").split(".")[1], *rest]),
    ):
        assert refused_by_none(consumer.client, subject), subject
    assert consumer.info()["num_ack_pending"] == 1


def test_other_ack_subscribers_count_as_responders(stream: Stream) -> None:
    consumer = stream.consumer(ack_policy="none")
    [message] = consumer.fetch(1)
    client = stream.client
    heard, inbox = client.subscribe(message.reply), client.subscribe()
    client.publish(message.reply, b"+ACK", reply=inbox.subject)
    heard.next()
    client.done(f"STREAM.INFO.{stream.name}")
    assert inbox.waiting() == []


def test_flow_control_reply_to_consumer_without_it_has_no_responders(
    stream: Stream, consumer: Consumer
) -> None:
    for subject in (f"$JS.FC.{stream.name}.{consumer.name}.x", "$JS.FC.x"):
        assert refused_by_none(stream.client, subject, b"")


def test_floor_follows_the_first_gap(stream: Stream, consumer: Consumer) -> None:
    stream.fill("d", "e")
    messages = consumer.fetch(5)
    for index, floor in ((1, 0), (3, 0), (0, 2), (2, 4), (4, 5)):
        consumer.answer(messages[index])
        info = consumer.info()["ack_floor"]
        assert (info["consumer_seq"], info["stream_seq"]) == (floor, floor)


def test_ack_all_acks_earlier_messages(stream: Stream) -> None:
    consumer = stream.consumer(ack_policy="all")
    messages = consumer.fetch(3)
    consumer.answer(messages[1])
    info = consumer.info()
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (1, 2)
    consumer.answer(messages[0])
    assert consumer.info()["ack_floor"]["stream_seq"] == 2


def test_next_acks_and_pulls_more(consumer: Consumer) -> None:
    [message] = consumer.fetch(1)
    inbox = consumer.client.subscribe()
    consumer.client.publish(message.reply, b"+NXT", reply=inbox.subject)
    following = inbox.next()
    assert stream_sequences([following]) == [2]
    consumer.client.publish(
        following.reply, b'+NXT {"batch":2,"no_wait":true}', reply=inbox.subject
    )
    last, status = inbox.until_status()
    assert stream_sequences([last]) == [3]
    assert status.status == "404 No Messages"
    assert consumer.info()["num_ack_pending"] == 1


@pytest.mark.parametrize("payload", [b"+TERM", b"+TERM for a reason"])
def test_terminated_message_is_not_delivered_again(hasty: Consumer, payload: bytes) -> None:
    first, *_ = hasty.fetch(3)
    hasty.answer(first, payload)
    assert hasty.info()["ack_floor"]["stream_seq"] == 1
    assert places(hasty.fetch(2)) == [(2, 2, 4), (2, 3, 5)]


# -- redelivery


def test_unacked_message_is_redelivered(hasty: Consumer) -> None:
    assert places(hasty.fetch(1)) == [(1, 1, 1)]
    inbox = hasty.pull(batch=3, expires=10 * SECOND)
    got = sorted(places(inbox.take(3)), key=lambda place: place[2])
    assert got[:2] == [(1, 2, 2), (1, 3, 3)]
    assert got[2][:2] == (2, 1)
    assert hasty.info()["num_redelivered"] == 1


def test_expired_messages_are_redelivered_in_order(hasty: Consumer) -> None:
    hasty.fetch(3)
    assert places(hasty.fetch(3)) == [(2, 1, 4), (2, 2, 5), (2, 3, 6)]
    info = hasty.info()
    assert info["num_ack_pending"] == 3
    assert (info["delivered"]["consumer_seq"], info["delivered"]["stream_seq"]) == (6, 3)


def test_redeliveries_come_before_new_messages(stream: Stream, consumer: Consumer) -> None:
    messages = consumer.fetch(2)
    consumer.answer(messages[1], b"-NAK")
    assert places(consumer.fetch(2)) == [(2, 2, 3), (1, 3, 4)]


def test_num_pending_of_redelivery_counts_undelivered_messages(hasty: Consumer) -> None:
    hasty.fetch(1)
    hasty.client.fence()
    [message] = hasty.fetch(1)
    while ack_fields(message)[0] == 1:
        [message] = hasty.fetch(1)
    delivered = hasty.info()["delivered"]["stream_seq"]
    assert ack_fields(message)[3] == 3 - delivered


def test_in_progress_extends_ack_wait(stream: Stream) -> None:
    consumer = stream.consumer(ack_policy="explicit", ack_wait=SECOND // 2)
    first, *_ = consumer.fetch(3)
    inbox = consumer.pull(batch=2, expires=10 * SECOND)
    while not inbox.arrived:
        consumer.answer(first, b"+WPI")
    assert [place[:2] for place in places(inbox.take(2))] == [(2, 2), (2, 3)]


@pytest.mark.parametrize("payload", [b"-NAK", b"-NAK x", b"-NAK {"])
def test_naked_message_is_redelivered_at_once(consumer: Consumer, payload: bytes) -> None:
    [message] = consumer.fetch(1)
    consumer.answer(message, payload)
    assert places(consumer.fetch(1)) == [(2, 1, 2)]


@pytest.mark.parametrize("payload", [b'-NAK {"delay":100000000}', b"-NAK 100ms"])
def test_nak_delay_postpones_redelivery(consumer: Consumer, payload: bytes) -> None:
    [message] = consumer.fetch(1)
    consumer.answer(message, payload)
    assert places(consumer.fetch(2)) == [(1, 2, 2), (1, 3, 3)]
    assert places(consumer.fetch(1)) == [(2, 1, 4)]


@pytest.mark.parametrize("delay", [2**62, 2**63 - 1, -(2**63)])
def test_endless_nak_delay_gets_reply(consumer: Consumer, delay: int) -> None:
    [message] = consumer.fetch(1)
    consumer.answer(message, b'-NAK {"delay":%d}' % delay)
    assert consumer.info()["num_ack_pending"] == 1


def test_only_ack_pending_message_can_be_naked(consumer: Consumer) -> None:
    [message] = consumer.fetch(1)
    consumer.answer(message)
    consumer.answer(message, b"-NAK")
    assert places(consumer.available()) == [(1, 2, 2), (1, 3, 3)]


def test_backoff_is_followed_and_its_first_step_replaces_ack_wait(stream: Stream) -> None:
    consumer = stream.consumer(
        ack_policy="explicit", backoff=[SHORT, 2 * SHORT], max_deliver=3, max_ack_pending=1
    )
    config = consumer.created["config"]
    assert (config["ack_wait"], config["backoff"]) == (SHORT, [SHORT, 2 * SHORT])
    counts = [places(consumer.fetch(1))[0][:2] for _ in range(4)]
    assert counts == [(1, 1), (2, 1), (3, 1), (1, 2)]


def test_max_deliver_ends_redelivery(stream: Stream) -> None:
    consumer = stream.consumer(
        ack_policy="explicit", ack_wait=SHORT, max_deliver=2, filter_subject=stream.subject("a")
    )
    counts = [places(consumer.fetch(1))[0][0] for _ in range(2)]
    assert counts == [1, 2]
    waiting = consumer.pull(expires=10 * SECOND)
    until(lambda: consumer.info()["num_ack_pending"] == 0, "it was given up")
    assert waiting.waiting() == []
    info = consumer.info()
    assert info["num_redelivered"] == 1
    assert info["ack_floor"]["stream_seq"] == 0


def test_max_ack_pending_does_not_delay_redeliveries(stream: Stream) -> None:
    consumer = stream.consumer(ack_policy="explicit", max_ack_pending=2)
    messages = consumer.fetch(2)
    for message in messages:
        consumer.answer(message, b"-NAK")
    assert places(consumer.fetch(2)) == [(2, 1, 3), (2, 2, 4)]


def test_deleted_message_leaves_ack_pending(stream: Stream, hasty: Consumer) -> None:
    hasty.fetch(3)
    stream.remove(2)
    until(lambda: hasty.info()["num_ack_pending"] == 2, "it is settled")
    assert stream_sequences(hasty.fetch(2)) == [1, 3]


def test_purge_clears_ack_pending(stream: Stream, consumer: Consumer) -> None:
    consumer.fetch(2)
    stream.purge()
    until(lambda: consumer.info()["num_ack_pending"] == 0, "nothing is pending")
    info = consumer.info()
    assert info["num_pending"] == 0
    assert info["ack_floor"]["stream_seq"] == 3
    stream.publish("a")
    assert stream_sequences(consumer.available()) == [4]


def test_partial_purge_clears_what_it_removed_from_ack_pending(
    stream: Stream, consumer: Consumer
) -> None:
    consumer.fetch(3)
    stream.purge(filter=stream.subject("b"))
    until(lambda: consumer.info()["num_ack_pending"] == 2, "one is settled")


# -- reset


@pytest.mark.parametrize(
    ("body", "begin"), [(None, 2), ({}, 2), ({"seq": 1}, 1), ({"seq": 3}, 3), ({"seq": 9}, 9)]
)
def test_consumer_reset_starts_again_at_sequence(
    stream: Stream, consumer: Consumer, body: dict[str, int] | None, begin: int
) -> None:
    messages = consumer.fetch(3)
    consumer.answer(messages[0])
    answer = consumer.call("RESET", body)
    assert answer["reset_seq"] == begin
    assert (answer["num_ack_pending"], answer["num_redelivered"]) == (0, 0)
    assert answer["delivered"]["consumer_seq"] == 0
    expected = [*range(begin, 4)]
    got = places(consumer.available())
    assert got == [(1, seq, place) for place, seq in enumerate(expected, 1)]


def test_consumer_reset_before_its_start_is_refused(stream: Stream) -> None:
    consumer = stream.consumer(deliver_policy="by_start_sequence", opt_start_seq=2)
    refusal = consumer.refused("RESET", {"seq": 1})
    assert refusal[:2] == (400, 10204)
    assert json.dumps(refusal.description) == '"invalid reset: below start seq"'


def test_only_some_deliver_policies_can_be_reset_to_sequence(stream: Stream) -> None:
    consumer = stream.consumer(deliver_policy="new")
    assert consumer.refused("RESET", {"seq": 1}).description == "invalid reset: not allowed"


def test_reset_of_unknown_consumer_is_refused(stream: Stream) -> None:
    inbox = stream.client.subscribe()
    subject = f"{API}CONSUMER.RESET.{stream.name}.nope"
    stream.client.publish(subject, b"", reply=inbox.subject)
    stream.info()
    assert inbox.waiting() == []
