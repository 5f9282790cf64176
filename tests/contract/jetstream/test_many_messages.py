"""What takes many messages out, or lists many, ends as if it were done at once.

The numbers are above what one slice of the server's work handles, so that several follow each
other; a client sees the end of it with the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.jetstream.host.interest_retention import SWEEP_LOOKS
from penstock.store.contract import SLICE_MSGS, SLICE_SUBJECTS
from support.servers import until

if TYPE_CHECKING:
    from support.assets import JetStream, Stream

MANY = 5_000
SUBJECTS = 20_000
STORAGES = ["file", "memory"]


def test_message_counts_exceed_one_slice() -> None:
    assert MANY > 2 * SLICE_MSGS
    assert MANY > 2 * SWEEP_LOOKS
    assert SUBJECTS > SLICE_SUBJECTS


def filled(stream: Stream, count: int, subjects: int = 1_000) -> Stream:
    """A stream with many messages, each subject in its turn."""
    client, payload = stream.client, b"x" * 10
    for first in range(0, count - 1, 1_000):
        lines = [
            b"PUB %b.k.%d 10\r\n%b\r\n" % (stream.name.encode(), i % subjects, payload)
            for i in range(first, min(first + 1_000, count - 1))
        ]
        client.send(b"".join(lines))
    assert stream.publish(f"k.{(count - 1) % subjects}", payload)["seq"] == count
    return stream


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("keep", [0, 7])
def test_purge_by_filter_in_slices(jetstream: JetStream, storage: str, keep: int) -> None:
    stream = filled(jetstream.stream(storage=storage), MANY)
    stream.publish("other")
    assert stream.purge(filter=stream.subject("k.*"), keep=keep) == MANY - keep
    state = stream.state(deleted_details=True)
    assert (state["messages"], state["last_seq"]) == (keep + 1, MANY + 1)
    assert state["first_seq"] == MANY + 1 - keep


@pytest.mark.parametrize("storage", STORAGES)
def test_purge_of_one_subject_among_many(jetstream: JetStream, storage: str) -> None:
    stream = filled(jetstream.stream(storage=storage), MANY, subjects=2)
    assert stream.purge(filter=stream.subject("k.0")) == MANY // 2
    assert stream.state(deleted_details=True)["deleted"] == list(range(3, MANY, 2))
    assert stream.state(subjects_filter=">")["subjects"] == {stream.subject("k.1"): MANY // 2}


@pytest.mark.parametrize("storage", STORAGES)
def test_purge_up_to_sequence_and_of_everything_in_slices(
    jetstream: JetStream, storage: str
) -> None:
    stream = filled(jetstream.stream(storage=storage), MANY)
    assert stream.purge(seq=MANY - 9) == MANY - 10
    assert stream.sequences() == list(range(MANY - 9, MANY + 1))
    assert stream.purge() == 10
    assert stream.publish("k.1")["seq"] == MANY + 1
    assert stream.state()["num_subjects"] == 1


@pytest.mark.parametrize("storage", STORAGES)
def test_lower_limits_are_applied_in_slices(jetstream: JetStream, storage: str) -> None:
    stream = filled(jetstream.stream(storage=storage), MANY, subjects=100)
    stream.update(max_msgs_per_subject=2)
    assert stream.sequences() == list(range(MANY - 199, MANY + 1))
    stream.update(max_msgs=3)
    assert stream.sequences() == [MANY - 2, MANY - 1, MANY]


@pytest.mark.parametrize("storage", STORAGES)
def test_one_large_message_replaces_many(jetstream: JetStream, storage: str) -> None:
    size = 300_000
    stream = jetstream.stream(storage=storage, max_bytes=size + 1_000, max_msgs=-1)
    filled(stream, MANY)
    stream.publish("large", b"x" * size)
    state = stream.state()
    assert state["messages"] < 40
    assert state["bytes"] <= size + 1_000
    assert stream.get(seq=MANY + 1)["seq"] == MANY + 1


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("which", ["all", "sub"])
def test_rollup_in_slices(jetstream: JetStream, storage: str, which: str) -> None:
    stream = jetstream.stream(storage=storage, allow_rollup_hdrs=True)
    filled(stream, MANY, subjects=1)
    assert stream.publish("k.0", b"", Nats_Rollup=which)["seq"] == MANY + 1
    assert stream.sequences() == [MANY + 1]


@pytest.mark.parametrize("storage", STORAGES)
def test_deleting_consumer_removes_messages_kept_for_it(jetstream: JetStream, storage: str) -> None:
    stream = jetstream.stream(storage=storage, retention="interest")
    kept = stream.consumer(ack_policy="explicit", filter_subject=stream.subject("k.1"))
    consumer = stream.consumer(ack_policy="explicit")
    filled(stream, MANY, subjects=1_000)
    consumer.delete()
    until(lambda: stream.state()["messages"] == MANY // 1_000, "all slices are done")
    kept.delete()
    until(lambda: stream.state()["messages"] == 0, "all slices are done")
    assert stream.state()["last_seq"] == MANY


@pytest.mark.parametrize("storage", STORAGES)
def test_one_ack_removes_many_messages(jetstream: JetStream, storage: str) -> None:
    stream = jetstream.stream(storage=storage, retention="interest")
    consumer = stream.consumer(ack_policy="all", max_ack_pending=2 * MANY)
    filled(stream, MANY)
    consumer.answer(consumer.fetch(MANY)[-2])
    until(lambda: stream.state()["messages"] == 1, "all slices are done")
    assert stream.sequences() == [MANY]
    assert consumer.info()["num_ack_pending"] == 1


@pytest.mark.parametrize("storage", STORAGES)
def test_info_lists_many_subjects_and_deleted_messages(jetstream: JetStream, storage: str) -> None:
    stream = filled(jetstream.stream(storage=storage), SUBJECTS, SUBJECTS)
    names = sorted(stream.subject(f"k.{i}") for i in range(SUBJECTS))
    answer = stream.info(subjects_filter=">", offset=5)
    assert (answer["total"], answer["offset"]) == (SUBJECTS, 5)
    # The reference ignores the offset where one page holds everything.
    assert names[5:] == list(answer["state"]["subjects"])[-len(names) + 5 :]
    stream.purge(filter=stream.subject("k.1"))
    stream.purge(filter=stream.subject("k.7"))
    assert stream.state(deleted_details=True)["deleted"] == [2, 8]
    found = stream.state(subjects_filter=stream.subject("k.*"))["subjects"]
    assert len(found) == SUBJECTS - 2
    assert set(found.values()) == {1}


def test_purge_updates_ack_pending_and_num_pending(jetstream: JetStream) -> None:
    stream = filled(jetstream.stream(), MANY)
    consumer = stream.consumer(ack_policy="explicit", max_ack_pending=MANY)
    consumer.fetch(3_000)
    stream.purge(filter=stream.subject("k.*"), keep=100)
    until(lambda: consumer.info()["num_ack_pending"] == 0, "all slices are done")
    assert consumer.info()["num_pending"] == 100
    assert len(consumer.fetch(100)) == 100
