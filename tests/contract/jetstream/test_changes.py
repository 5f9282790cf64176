"""What a change means for what is already there: retention, limits, filters, subjects, features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.assets import SECOND, ack_fields, stream_sequences
from support.jetstream import API, Refusal
from support.servers import until

if TYPE_CHECKING:
    from support.assets import JetStream

OVERLAP = Refusal(400, 10065, "subjects overlap with an existing stream")


# -- retention


def test_turning_to_interest_drops_what_nobody_needs_any_more(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "c")
    consumer = stream.consumer(ack_policy="explicit")
    first, second = consumer.fetch(2)
    consumer.answer(first)
    assert stream.update(retention="interest")["config"]["retention"] == "interest"
    until(lambda: stream.sequences() == [2, 3], "the first is gone")
    consumer.answer(second)
    until(lambda: stream.sequences() == [3], "the second is gone")


def test_turning_to_interest_without_consumers_drops_everything(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b")
    stream.update(retention="interest")
    until(lambda: stream.sequences() == [], "all are gone")


def test_turning_to_limits_keeps_what_is_acknowledged(jetstream: JetStream) -> None:
    stream = jetstream.stream(retention="interest")
    consumer = stream.consumer(ack_policy="explicit")
    stream.fill("a", "b")
    stream.update(retention="limits")
    for message in consumer.fetch(2):
        consumer.answer(message)
    assert stream.sequences() == [1, 2]
    stream.publish("c")
    assert stream.sequences() == [1, 2, 3]


def test_a_narrower_filter_gives_up_what_it_leaves_out(jetstream: JetStream) -> None:
    stream = jetstream.stream(retention="interest")
    consumer = stream.consumer("c", ack_policy="explicit")
    stream.fill("a", "b", "a")
    stream.consumer("c", ack_policy="explicit", filter_subject=stream.subject("a"))
    until(lambda: stream.sequences() == [1, 3], "the other is gone")
    assert consumer.info()["num_pending"] == 2


def test_a_consumer_that_joins_late_needs_only_what_is_new(jetstream: JetStream) -> None:
    stream = jetstream.stream(retention="interest")
    first = stream.consumer(ack_policy="explicit")
    stream.fill("a", "b")
    late = stream.consumer(ack_policy="explicit", deliver_policy="new")
    for message in first.fetch(2):
        first.answer(message)
    until(lambda: stream.sequences() == [], "all are gone")
    stream.publish("c")
    assert stream_sequences(late.available()) == [3]
    assert stream.sequences() == [3]


# -- limits


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ({"max_msgs": 2}, [5, 6]),
        ({"max_msgs_per_subject": 1}, [4, 5, 6]),
        ({"max_msgs": 4, "max_msgs_per_subject": 2}, [3, 4, 5, 6]),
        ({"discard": "new", "max_msgs": 10}, [1, 2, 3, 4, 5, 6]),
        ({"max_msg_size": 1}, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_a_limit_removes_the_oldest_at_once(
    jetstream: JetStream, change: dict[str, Any], left: list[int]
) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "a", "b", "c", "a")
    stream.update(**change)
    assert stream.sequences() == left


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("limit", [{"max_msgs": 3}, {"max_bytes": 220}])
def test_a_limit_of_the_stream_counts_before_one_of_its_subjects(
    jetstream: JetStream, storage: str, limit: dict[str, Any]
) -> None:
    """Both in one update: a message that only the limit of subjects would spare is removed."""
    stream = jetstream.stream(storage=storage)
    for subject in "abbbc":
        stream.publish(subject, b"x" * 40)
    stream.update(**limit, max_msgs_per_subject=1)
    assert stream.sequences() == [4, 5]


def test_consumers_skip_what_a_limit_removed(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "c", "d", "e")
    consumer = stream.consumer(ack_policy="explicit")
    consumer.fetch(2)
    stream.update(max_msgs=1)
    until(lambda: consumer.info()["num_ack_pending"] == 0, "nothing is pending")
    info = consumer.info()
    assert info["num_pending"] == 1
    assert stream_sequences(consumer.available()) == [5]


def test_a_limit_that_is_lifted_lets_more_in(jetstream: JetStream) -> None:
    stream = jetstream.stream(max_msgs=1, discard="new")
    stream.publish("a")
    assert stream.refused("b").err_code == 10077
    stream.update(max_msgs=2)
    stream.publish("b")


def test_a_pending_message_that_a_limit_removes_moves_the_floor(jetstream: JetStream) -> None:
    stream = jetstream.stream(max_msgs=2)
    consumer = stream.consumer(ack_policy="explicit")
    inbox = jetstream.subscribe(
        f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{stream.name}.{consumer.name}"
    )
    stream.fill("a", "b")
    consumer.fetch(2)
    stream.publish("c")
    event = inbox.next().json
    assert (event["stream_seq"], event["reason"]) == (1, "Unacknowledged message was deleted")
    info = consumer.info()
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (1, 1)


def test_a_rollup_of_all_moves_consumers_on_as_a_purge_does(jetstream: JetStream) -> None:
    stream = jetstream.stream(allow_rollup_hdrs=True)
    stream.fill("a", "b", "c", "d")
    consumer = stream.consumer(ack_policy="explicit")
    consumer.fetch(2)
    stream.publish("e", Nats_Rollup="all")
    until(lambda: consumer.info()["num_ack_pending"] == 0, "nothing is pending")
    info = consumer.info()
    assert (info["delivered"]["stream_seq"], info["ack_floor"]["stream_seq"]) == (4, 4)
    assert stream_sequences(consumer.available()) == [5]


# -- subjects and features


def test_an_update_cannot_take_subjects_of_others(jetstream: JetStream) -> None:
    theirs, ours = jetstream.stream(), jetstream.stream()
    assert ours.update_refused(subjects=[theirs.subject("x")]) == OVERLAP
    assert ours.publish("still.here")["seq"] == 1


def test_subjects_that_were_given_up_are_free(jetstream: JetStream) -> None:
    first = jetstream.stream()
    subject = first.subject("x")
    first.update(subjects=[first.subject("y")])
    second = jetstream.stream(subjects=[subject])
    assert jetstream.publish_ack(subject)["stream"] == second.name


@pytest.mark.parametrize(
    ("feature", "headers", "err_code"),
    [
        ("allow_rollup_hdrs", {"Nats-Rollup": "sub"}, 10111),
        ("allow_msg_ttl", {"Nats-TTL": "1h"}, 10166),
        (
            "allow_atomic",
            {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"},
            10174,
        ),
    ],
)
def test_a_feature_works_as_soon_as_it_is_allowed(
    jetstream: JetStream, feature: str, headers: dict[str, str], err_code: int
) -> None:
    stream = jetstream.stream()
    assert stream.refused("a", b"x", headers).err_code == err_code
    stream.update(**{feature: True})
    answer = jetstream.publish_ack(stream.subject("a"), b"x", headers)
    assert answer["seq"] == 1


def test_direct_gets_end_when_they_are_no_longer_allowed(jetstream: JetStream) -> None:
    stream = jetstream.stream(allow_direct=True)
    stream.publish("a", b"x")
    subject = f"{API}DIRECT.GET.{stream.name}"
    assert jetstream.request(subject, {"seq": 1}).payload == b"x"
    stream.update(allow_direct=False)
    assert jetstream.request(subject, {"seq": 1}).status == "503"


# -- consumers


def test_a_shorter_wait_counts_for_what_is_out(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.publish("a")
    consumer = stream.consumer("c", ack_policy="explicit", ack_wait=600 * SECOND)
    consumer.fetch(1)
    stream.consumer("c", ack_policy="explicit", ack_wait=SECOND // 10)
    stream.publish("b")
    inbox = consumer.pull(batch=2, expires=10 * SECOND)
    assert {ack_fields(one)[:2] for one in inbox.take(2)} == {(1, 2), (2, 1)}


def test_a_described_consumer_keeps_its_progress(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "c")
    consumer = stream.consumer("c", ack_policy="explicit")
    consumer.fetch(2)
    stream.consumer("c", ack_policy="explicit", description="x", metadata={"k": "v"})
    info = consumer.info()
    assert (info["config"]["description"], info["config"]["metadata"]["k"]) == ("x", "v")
    assert (info["num_ack_pending"], info["num_pending"]) == (2, 1)


def test_a_wider_filter_counts_what_it_adds(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "c", "a")
    consumer = stream.consumer("c", ack_policy="explicit", filter_subject=stream.subject("a"))
    assert consumer.info()["num_pending"] == 2
    wider = [stream.subject("a"), stream.subject("b")]
    stream.consumer("c", ack_policy="explicit", filter_subjects=wider)
    assert consumer.info()["num_pending"] == 3
    assert stream_sequences(consumer.available()) == [1, 2, 4]


@pytest.mark.parametrize(
    "republish",
    [
        {"src": "a.1", "dest": ""},
        {"src": "a.*", "dest": ""},
        {"src": "a.1"},
    ],
)
def test_an_update_that_republishes_nowhere_changes_nothing(
    jetstream: JetStream, republish: dict[str, Any]
) -> None:
    """What an update fills in is checked as well, and nothing of a refused one is kept."""
    stream = jetstream.stream()
    refused = stream.update_refused(republish=republish)
    assert (refused.code, refused.err_code) == (500, 10069), refused
    assert refused.description == (
        f"stream configuration for republish from '{republish['src']}' to '>': invalid subject"
    )
    assert "republish" not in stream.config
    assert stream.publish("x")["seq"] == 1
    stream.delete()
