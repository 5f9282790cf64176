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


def test_change_to_interest_retention_removes_messages_without_interest(
    jetstream: JetStream,
) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "c")
    consumer = stream.consumer(ack_policy="explicit")
    first, second = consumer.fetch(2)
    consumer.answer(first)
    assert stream.update(retention="interest")["config"]["retention"] == "interest"
    until(lambda: stream.sequences() == [2, 3], "the first is removed")
    consumer.answer(second)
    until(lambda: stream.sequences() == [3], "the second is removed")


def test_change_to_interest_retention_without_consumers_removes_everything(
    jetstream: JetStream,
) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b")
    stream.update(retention="interest")
    until(lambda: stream.sequences() == [], "all are removed")


def test_change_to_limits_retention_keeps_acked_messages(jetstream: JetStream) -> None:
    stream = jetstream.stream(retention="interest")
    consumer = stream.consumer(ack_policy="explicit")
    stream.fill("a", "b")
    stream.update(retention="limits")
    for message in consumer.fetch(2):
        consumer.answer(message)
    assert stream.sequences() == [1, 2]
    stream.publish("c")
    assert stream.sequences() == [1, 2, 3]


def test_narrower_filter_ends_interest_in_other_subjects(jetstream: JetStream) -> None:
    stream = jetstream.stream(retention="interest")
    consumer = stream.consumer("c", ack_policy="explicit")
    stream.fill("a", "b", "a")
    stream.consumer("c", ack_policy="explicit", filter_subject=stream.subject("a"))
    until(lambda: stream.sequences() == [1, 3], "the other is removed")
    assert consumer.info()["num_pending"] == 2


def test_new_consumer_has_interest_only_in_later_messages(jetstream: JetStream) -> None:
    stream = jetstream.stream(retention="interest")
    first = stream.consumer(ack_policy="explicit")
    stream.fill("a", "b")
    late = stream.consumer(ack_policy="explicit", deliver_policy="new")
    for message in first.fetch(2):
        first.answer(message)
    until(lambda: stream.sequences() == [], "all are removed")
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
def test_lower_limit_removes_the_oldest_at_once(
    jetstream: JetStream, change: dict[str, Any], left: list[int]
) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "a", "b", "c", "a")
    stream.update(**change)
    assert stream.sequences() == left


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("limit", [{"max_msgs": 3}, {"max_bytes": 220}])
def test_stream_limit_applies_before_subject_limit(
    jetstream: JetStream, storage: str, limit: dict[str, Any]
) -> None:
    """Both in one update: a message that only the limit of subjects would spare is removed."""
    stream = jetstream.stream(storage=storage)
    for subject in "abbbc":
        stream.publish(subject, b"x" * 40)
    stream.update(**limit, max_msgs_per_subject=1)
    assert stream.sequences() == [4, 5]


def test_consumers_skip_messages_removed_by_limit(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "c", "d", "e")
    consumer = stream.consumer(ack_policy="explicit")
    consumer.fetch(2)
    stream.update(max_msgs=1)
    until(lambda: consumer.info()["num_ack_pending"] == 0, "nothing is pending")
    info = consumer.info()
    assert info["num_pending"] == 1
    assert stream_sequences(consumer.available()) == [5]


def test_raised_limit_admits_more(jetstream: JetStream) -> None:
    stream = jetstream.stream(max_msgs=1, discard="new")
    stream.publish("a")
    assert stream.refused("b").err_code == 10077
    stream.update(max_msgs=2)
    stream.publish("b")


def test_limit_that_removes_ack_pending_message_moves_ack_floor(
    jetstream: JetStream,
) -> None:
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


def test_rollup_of_all_moves_consumers_like_purge(jetstream: JetStream) -> None:
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


def test_update_cannot_claim_subjects_of_other_streams(jetstream: JetStream) -> None:
    theirs, ours = jetstream.stream(), jetstream.stream()
    assert ours.update_refused(subjects=[theirs.subject("x")]) == OVERLAP
    assert ours.publish("still.here")["seq"] == 1


def test_released_subjects_are_free(jetstream: JetStream) -> None:
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
def test_feature_works_as_soon_as_update_allows_it(
    jetstream: JetStream, feature: str, headers: dict[str, str], err_code: int
) -> None:
    stream = jetstream.stream()
    assert stream.refused("a", b"x", headers).err_code == err_code
    stream.update(**{feature: True})
    answer = jetstream.publish_ack(stream.subject("a"), b"x", headers)
    assert answer["seq"] == 1


def test_direct_get_ends_when_it_is_disallowed(jetstream: JetStream) -> None:
    stream = jetstream.stream(allow_direct=True)
    stream.publish("a", b"x")
    subject = f"{API}DIRECT.GET.{stream.name}"
    assert jetstream.request(subject, {"seq": 1}).payload == b"x"
    stream.update(allow_direct=False)
    assert jetstream.request(subject, {"seq": 1}).status == "503"


# -- consumers


def test_shorter_ack_wait_applies_to_ack_pending_messages(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.publish("a")
    consumer = stream.consumer("c", ack_policy="explicit", ack_wait=600 * SECOND)
    consumer.fetch(1)
    stream.consumer("c", ack_policy="explicit", ack_wait=SECOND // 10)
    stream.publish("b")
    inbox = consumer.pull(batch=2, expires=10 * SECOND)
    assert {ack_fields(one)[:2] for one in inbox.take(2)} == {(1, 2), (2, 1)}


def test_changed_description_keeps_consumer_progress(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "c")
    consumer = stream.consumer("c", ack_policy="explicit")
    consumer.fetch(2)
    stream.consumer("c", ack_policy="explicit", description="x", metadata={"k": "v"})
    info = consumer.info()
    assert (info["config"]["description"], info["config"]["metadata"]["k"]) == ("x", "v")
    assert (info["num_ack_pending"], info["num_pending"]) == (2, 1)


def test_wider_filter_adds_to_num_pending(jetstream: JetStream) -> None:
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
def test_republish_update_without_destination_changes_nothing(
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
