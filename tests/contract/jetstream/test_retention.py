"""What removes messages: limits by count, size, subject and age; interest; work queues.

Limits that refuse instead (discard new) are here too, since the same numbers rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.assets import MILLISECOND, SECOND, stream_sequences
from support.jetstream import Refusal
from support.servers import until

if TYPE_CHECKING:
    from support.assets import JetStream, Stream

STORAGES = ["file", "memory"]
RETENTIONS = ["limits", "interest", "workqueue"]
EXCEEDED = "maximum {} exceeded"


def refused(what: str) -> Refusal:
    return Refusal(503, 10077, EXCEEDED.format(what))


# -- discard old


@pytest.mark.parametrize("storage", STORAGES)
def test_max_msgs_removes_the_oldest(jetstream: JetStream, storage: str) -> None:
    stream = jetstream.stream(storage=storage, max_msgs=3)
    stream.fill("a", "b", "a", "b", "a")
    state = stream.state()
    assert (state["first_seq"], state["last_seq"], state["messages"]) == (3, 5, 3)


@pytest.mark.parametrize("storage", STORAGES)
def test_max_bytes_removes_the_oldest(jetstream: JetStream, storage: str) -> None:
    stream = jetstream.stream(storage=storage)
    stream.publish("a", b"x" * 100)
    size = stream.state()["bytes"]
    stream.update(max_bytes=3 * size)
    for _ in range(4):
        stream.publish("a", b"x" * 100)
    assert stream.sequences() == [3, 4, 5]
    assert stream.state()["bytes"] == 3 * size


@pytest.mark.parametrize("storage", STORAGES)
def test_max_msgs_per_subject_removes_the_oldest_of_subject(
    jetstream: JetStream, storage: str
) -> None:
    stream = jetstream.stream(storage=storage, max_msgs_per_subject=2)
    stream.fill("a", "b", "a", "a", "c", "a")
    assert stream.sequences() == [2, 4, 5, 6]
    assert stream.state()["num_subjects"] == 3


def test_subject_limit_applies_before_stream_limit(jetstream: JetStream) -> None:
    stream = jetstream.stream(max_msgs_per_subject=1, max_msgs=2)
    stream.fill("a", "b", "b")
    assert stream.sequences() == [1, 3]


@pytest.mark.parametrize("storage", STORAGES)
def test_max_age_removes_old_messages(jetstream: JetStream, storage: str) -> None:
    stream = jetstream.stream(storage=storage, max_age=200 * MILLISECOND)
    stream.fill("a", "b")
    until(lambda: stream.state()["messages"] == 0, "both are removed")
    state = stream.state()
    assert (state["first_seq"], state["last_seq"], state["bytes"]) == (3, 2, 0)


def test_max_age_set_later_counts_from_publishing(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b")
    stream.update(max_age=100 * MILLISECOND, duplicate_window=100 * MILLISECOND)
    until(lambda: stream.state()["messages"] == 0, "both are removed")


# -- discard new


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("retention", RETENTIONS)
def test_discard_new_refuses_by_count(jetstream: JetStream, retention: str, storage: str) -> None:
    stream = jetstream.stream(storage=storage, retention=retention, discard="new", max_msgs=2)
    stream.consumer(ack_policy="explicit")
    stream.fill("a", "b")
    assert stream.refused("c") == refused("messages")
    assert stream.state()["last_seq"] == 2
    stream.purge(keep=1)
    assert stream.publish("c")["seq"] == 3


@pytest.mark.parametrize("storage", STORAGES)
def test_discard_new_refuses_by_size(jetstream: JetStream, storage: str) -> None:
    stream = jetstream.stream(storage=storage)
    stream.publish("a", b"x" * 100)
    size = stream.state()["bytes"]
    stream.update(max_bytes=2 * size, discard="new")
    stream.publish("a", b"x" * 100)
    assert stream.refused("a", b"") == refused("bytes")
    stream.remove(1)
    assert stream.refused("a", b"x" * 101) == refused("bytes")
    stream.publish("a", b"x" * 100)


def test_subject_limit_removes_its_oldest_unless_discard_new_per_subject(
    jetstream: JetStream,
) -> None:
    stream = jetstream.stream(discard="new", max_msgs_per_subject=1)
    stream.fill("a", "a")
    assert stream.sequences() == [2]
    stream.update(discard_new_per_subject=True)
    assert stream.refused("a") == refused("messages per subject")
    assert stream.publish("b")["seq"] == 3


@pytest.mark.parametrize(
    ("config", "rests", "outcome"),
    [
        ({"max_msgs": 2, "max_msgs_per_subject": 1}, ["a", "b", "a"], [2, 3]),
        ({"max_msgs": 2, "max_msgs_per_subject": 1}, ["a", "b", "c"], None),
        ({"max_msgs": 2, "max_msgs_per_subject": 2}, ["a", "a", "a"], [2, 3]),
        ({"max_msgs": 2, "max_msgs_per_subject": 2}, ["a", "b", "a"], None),
    ],
)
def test_full_stream_accepts_message_that_replaces_another(
    jetstream: JetStream, config: dict[str, Any], rests: list[str], outcome: list[int] | None
) -> None:
    stream = jetstream.stream(discard="new", **config)
    stream.fill(*rests[:2])
    if outcome is None:
        assert stream.refused(rests[2]) == refused("messages")
        return
    stream.publish(rests[2])
    assert stream.sequences() == outcome


# -- interest


def test_interest_stream_without_consumers_stores_nothing(jetstream: JetStream) -> None:
    stream = jetstream.stream(retention="interest")
    assert stream.publish("a") == {"stream": stream.name, "seq": 1}
    state = stream.state()
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 2, 1)


def test_message_stays_until_all_interested_consumers_acked(jetstream: JetStream) -> None:
    stream = jetstream.stream(retention="interest")
    first = stream.consumer(ack_policy="explicit")
    second = stream.consumer(ack_policy="explicit")
    stream.publish("a")
    [one] = first.fetch(1)
    first.answer(one)
    assert stream.sequences() == [1]
    [two] = second.fetch(1)
    second.answer(two)
    until(lambda: stream.sequences() == [], "it is deleted")


def test_only_consumer_with_matching_filter_is_interested(jetstream: JetStream) -> None:
    stream = jetstream.stream(retention="interest")
    consumer = stream.consumer(ack_policy="explicit", filter_subject=stream.subject("a"))
    stream.fill("a", "b", "a")
    assert stream.sequences() == [1, 3]
    for message in consumer.fetch(2):
        consumer.answer(message)
    until(lambda: stream.sequences() == [], "all are removed")


def test_delivery_ends_interest_of_consumer_without_acks(jetstream: JetStream) -> None:
    stream = jetstream.stream(retention="interest")
    consumer = stream.consumer(ack_policy="none")
    stream.fill("a", "b")
    consumer.fetch(2)
    until(lambda: stream.sequences() == [], "all are removed")


def test_ack_all_removes_all_up_to_it(jetstream: JetStream) -> None:
    stream = jetstream.stream(retention="interest")
    consumer = stream.consumer(ack_policy="all")
    stream.fill("a", "b", "c")
    messages = consumer.fetch(3)
    consumer.answer(messages[1])
    until(lambda: stream.sequences() == [3], "two are removed")


def test_terminated_message_is_removed(jetstream: JetStream) -> None:
    stream = jetstream.stream(retention="interest")
    consumer = stream.consumer(ack_policy="explicit")
    stream.publish("a")
    consumer.answer(consumer.fetch(1)[0], b"+TERM")
    until(lambda: stream.sequences() == [], "it is deleted")


def test_deleting_the_last_interested_consumer_removes_its_messages(jetstream: JetStream) -> None:
    stream = jetstream.stream(retention="interest")
    kept = stream.consumer(ack_policy="explicit", filter_subject=stream.subject("a"))
    gone = stream.consumer(ack_policy="explicit", filter_subject=stream.subject("b"))
    stream.fill("a", "b", "a", "b")
    gone.delete()
    until(lambda: stream.sequences() == [1, 3], "its messages are removed")
    kept.delete()
    until(lambda: stream.sequences() == [], "all are removed")


def test_message_past_max_deliver_stays(jetstream: JetStream) -> None:
    stream = jetstream.stream(retention="interest")
    consumer = stream.consumer(ack_policy="explicit", max_deliver=1, ack_wait=100 * MILLISECOND)
    stream.publish("a")
    consumer.fetch(1)
    until(lambda: consumer.info()["num_ack_pending"] == 0, "the message was given up")
    assert stream.sequences() == [1]


def test_limits_also_remove_messages_with_interest(jetstream: JetStream) -> None:
    stream = jetstream.stream(retention="interest", max_msgs=2)
    stream.consumer(ack_policy="explicit")
    stream.fill("a", "b", "c")
    assert stream.sequences() == [2, 3]


# -- work queues


def queue(jetstream: JetStream) -> Stream:
    return jetstream.stream(retention="workqueue")


def test_work_queue_message_stays_until_acked(jetstream: JetStream) -> None:
    stream = queue(jetstream)
    stream.fill("a", "b")
    assert stream.sequences() == [1, 2]
    consumer = stream.consumer(ack_policy="explicit")
    messages = consumer.fetch(2)
    assert stream.sequences() == [1, 2]
    consumer.answer(messages[1])
    until(lambda: stream.sequences() == [1], "the second is removed")
    consumer.answer(messages[0])
    until(lambda: stream.sequences() == [], "both are removed")


def test_work_queue_message_outlives_its_consumer(jetstream: JetStream) -> None:
    stream = queue(jetstream)
    first = stream.consumer(ack_policy="explicit")
    stream.fill("a", "b")
    messages = first.fetch(2)
    first.answer(messages[0])
    first.delete()
    second = stream.consumer(ack_policy="explicit")
    assert stream_sequences(second.available()) == [2]


@pytest.mark.parametrize(
    ("config", "refusal"),
    [
        (
            {"ack_policy": "explicit"},
            Refusal(400, 10099, "multiple non-filtered consumers not allowed on workqueue stream"),
        ),
        (
            {"ack_policy": "none"},
            Refusal(400, 10084, "workqueue stream requires explicit ack"),
        ),
    ],
)
def test_work_queue_subject_has_one_consumer(
    jetstream: JetStream, config: dict[str, Any], refusal: Refusal
) -> None:
    stream = queue(jetstream)
    stream.consumer(ack_policy="explicit")
    assert stream.consumer_refused(**config)[:2] == refusal[:2]


def test_work_queue_can_be_divided_by_subject(jetstream: JetStream) -> None:
    stream = queue(jetstream)
    first = stream.consumer(ack_policy="explicit", filter_subject=stream.subject("a.*"))
    second = stream.consumer(ack_policy="explicit", filter_subject=stream.subject("b"))
    overlap = stream.consumer_refused(ack_policy="explicit", filter_subject=stream.subject("*.x"))
    assert overlap.err_code == 10100
    stream.fill("a.x", "b", "c")
    first.answer(first.fetch(1)[0])
    second.answer(second.fetch(1)[0])
    until(lambda: stream.sequences() == [3], "the work of both is done")


def test_work_queue_consumer_must_deliver_all(jetstream: JetStream) -> None:
    stream = queue(jetstream)
    refusal = stream.consumer_refused(ack_policy="explicit", deliver_policy="last")
    assert refusal.err_code == 10101
    new = stream.consumer_refused(ack_policy="explicit", deliver_policy="new")
    assert new.err_code == 10101


def test_work_queue_message_past_max_deliver_stays(jetstream: JetStream) -> None:
    stream = queue(jetstream)
    consumer = stream.consumer(ack_policy="explicit", max_deliver=1, ack_wait=100 * MILLISECOND)
    stream.publish("a")
    consumer.fetch(1)
    until(lambda: consumer.info()["num_ack_pending"] == 0, "the message was given up")
    assert stream.sequences() == [1]


@pytest.mark.parametrize(("retention", "left"), [("workqueue", [1, 2, 3]), ("interest", [3])])
def test_reset_past_messages_ends_interest_but_not_work(
    jetstream: JetStream, retention: str, left: list[int]
) -> None:
    stream = jetstream.stream(retention=retention)
    consumer = stream.consumer(ack_policy="explicit")
    stream.fill("a", "b", "c")
    consumer.fetch(1)
    assert consumer.call("RESET", {"seq": 3})["reset_seq"] == 3
    assert stream_sequences(consumer.available()) == [3]
    until(lambda: stream.sequences() == left, f"{left} are left")


def test_expired_work_is_not_delivered(jetstream: JetStream) -> None:
    stream = jetstream.stream(retention="workqueue", max_age=SECOND // 5)
    consumer = stream.consumer(ack_policy="explicit")
    stream.publish("a")
    until(lambda: stream.sequences() == [], "it expired")
    until(lambda: consumer.info()["num_pending"] == 0, "nothing is pending")
    waiting = consumer.pull()
    stream.publish("b", b"fresh")
    assert stream_sequences([waiting.next()]) == [2]


# -- purges of nothing


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize(
    ("body", "first"),
    [
        ({}, 1),
        ({"keep": 0}, 1),
        ({"filter": ">"}, 1),
        ({"seq": 2}, 2),
        ({"seq": 1}, 0),
        ({"keep": 2}, 0),
        ({"filter": "other"}, 0),
        ({"filter": "other", "seq": 3}, 0),
        ({"filter": ">", "keep": 1}, 0),
    ],
)
def test_purge_of_empty_stream_sets_its_first_sequence_only_without_filter(
    jetstream: JetStream, storage: str, body: dict[str, Any], first: int
) -> None:
    stream = jetstream.stream(storage=storage)
    assert stream.purge(**body) == 0
    assert stream.state()["first_seq"] == first
