"""Sequence numbers at the end of their range: refused, or used up, never wrapped around.

The reference goes on with 0 after the largest number, so nothing here is compared with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.base.sequences import SEQ_MAX
from support.assets import JetStream, Stream
from support.servers import OURS, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.servers import ServerPool, ServerUnderTest

TOO_LARGE = (SEQ_MAX + 1, 2**64 - 2, 2**64 - 1)
STORAGES = ("file", "memory")
USED_UP = 10077


@pytest.fixture
def server(pool: ServerPool) -> Iterator[ServerUnderTest]:
    """A server with JetStream of the test's own, which must still be there afterwards."""
    server = pool.start(OURS, flags=("-js", "-sd", "store"))
    yield server
    with JetStream(server) as client:
        client.done("INFO")
    server.kill()


@pytest.fixture
def client(server: ServerUnderTest) -> Iterator[JetStream]:
    with JetStream(server) as client:
        yield client


def last_seq(stream: Stream) -> int:
    state = stream.state()
    assert state["first_seq"] <= state["last_seq"] + 1 <= SEQ_MAX + 1
    seq: int = state["last_seq"]
    return seq


@pytest.mark.parametrize("seq", TOO_LARGE)
@pytest.mark.parametrize("storage", STORAGES)
def test_requests_with_larger_sequences_are_refused(
    client: JetStream, storage: str, seq: int
) -> None:
    stream = client.stream(storage=storage)
    stream.fill("a", "b")
    name = stream.name
    asked: list[tuple[str, dict[str, Any], int]] = [
        ("STREAM.CREATE.F", {"name": "F", "subjects": ["F"], "first_seq": seq}, 10052),
        ("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "O", "opt_start_seq": seq}}, 10052),
        ("STREAM.CREATE.X", {"name": "X", "sources": [{"name": "O", "opt_start_seq": seq}]}, 10052),
        (f"STREAM.UPDATE.{name}", {**stream.config, "first_seq": seq}, 10052),
        (f"STREAM.PURGE.{name}", {"seq": seq}, 10110),
        (f"STREAM.PURGE.{name}", {"seq": seq, "filter": stream.subject("a")}, 10110),
        (f"STREAM.MSG.GET.{name}", {"seq": seq}, 10037),
        (f"STREAM.MSG.GET.{name}", {"seq": seq, "next_by_subj": ">"}, 10037),
        (f"STREAM.MSG.DELETE.{name}", {"seq": seq}, 10057 if storage == "file" else 10043),
    ]
    for subject, body, code in asked:
        assert client.refused(subject, body).err_code == code, subject
    refused = stream.consumer_refused(deliver_policy="by_start_sequence", opt_start_seq=seq)
    assert refused.err_code == 10094
    consumer = stream.consumer(ack_policy="explicit")
    assert consumer.refused("RESET", {"seq": seq}).err_code == 10204
    for header in ("Nats-Expected-Last-Sequence", "Nats-Expected-Last-Subject-Sequence"):
        assert stream.refused("a", b"", {header: str(seq)}).err_code == 10071
    assert stream.purge(keep=seq) == 0  # a number of messages is no sequence
    assert stream.sequences() == [1, 2]


@pytest.mark.parametrize("storage", STORAGES)
def test_stream_at_last_sequence_refuses_publishes(
    server: ServerUnderTest, client: JetStream, storage: str
) -> None:
    options = {"allow_direct": True, "allow_atomic": True, "allow_batched": True}
    stream = client.stream("E", storage=storage, first_seq=SEQ_MAX - 2, **options)
    stream.fill("a", "b")
    batch = {"Nats-Batch-Id": "x", "Nats-Batch-Sequence": "1"}
    client.publish(stream.subject("a"), b"", headers=batch)
    commit = {"Nats-Batch-Id": "x", "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"}
    assert stream.refused("a", b"", commit).err_code == USED_UP
    assert stream.publish("c")["seq"] == SEQ_MAX
    for _ in range(3):
        assert stream.refused("d").err_code == USED_UP
    assert stream.sequences() == [SEQ_MAX - 2, SEQ_MAX - 1, SEQ_MAX]
    consumer = stream.consumer(deliver_policy="last_per_subject", filter_subject="E.>")
    assert len(consumer.fetch(3)) == 3
    assert consumer.info()["num_pending"] == 0
    assert stream.purge(seq=SEQ_MAX) == 2
    assert stream.purge() == 1
    assert stream.refused("d").err_code == USED_UP
    if storage == "file":
        for kill in (server.restart, lambda: (server.stop(), server.restart())):
            kill()
            with JetStream(server) as again:
                kept = Stream(again, "E", {})
                assert last_seq(kept) == SEQ_MAX
                assert kept.refused("d").err_code == USED_UP


@pytest.mark.parametrize("storage", STORAGES)
def test_purge_to_last_sequence_leaves_one_usable_sequence(
    server: ServerUnderTest, client: JetStream, storage: str
) -> None:
    stream = client.stream("P", storage=storage)
    stream.fill("a", "b", "c")
    assert stream.purge(seq=SEQ_MAX) == 3
    assert stream.publish("a")["seq"] == SEQ_MAX
    assert stream.refused("b").err_code == USED_UP
    assert stream.sequences() == [SEQ_MAX]
    if storage == "file":
        server.restart()
        with JetStream(server) as again:
            assert Stream(again, "P", {}).sequences() == [SEQ_MAX]


def test_skipped_messages_use_up_sequences(client: JetStream) -> None:
    stream = client.stream(retention="interest", first_seq=SEQ_MAX)
    assert stream.publish("a")["seq"] == SEQ_MAX  # without a consumer it is not stored
    assert stream.refused("a").err_code == USED_UP
    assert last_seq(stream) == SEQ_MAX


def test_copies_follow_stream_to_its_last_sequence(client: JetStream) -> None:
    origin = client.stream(first_seq=SEQ_MAX - 1)
    mirror = client.stream(mirror={"name": origin.name})
    sink = client.stream(sources=[{"name": origin.name}])
    origin.fill("a", "b")
    until(lambda: last_seq(mirror) == SEQ_MAX, "the mirror has the last sequence")
    until(lambda: last_seq(sink) == 2, "the source was copied")
    assert mirror.sequences() == [SEQ_MAX - 1, SEQ_MAX]


@pytest.mark.parametrize("seq", [*TOO_LARGE, 10**19, 10**25])
def test_forged_deliveries_to_mirror_do_not_stop_it(client: JetStream, seq: int) -> None:
    """Any client that may publish there can send to the subject on which a mirror listens."""
    origin = client.stream()
    mirror = client.stream(mirror={"name": origin.name})
    origin.fill("a")
    until(lambda: last_seq(mirror) == 1, "the mirror has the first message")
    spy = client.subscribe("$JS.M.>")
    origin.fill("b")
    until(lambda: last_seq(mirror) == 2, "the mirror has the second message")
    seen = next(message for message in spy.take(1) if message.reply)
    tokens = seen.reply.split(".")
    forged = (
        (seq, 3, 1),
        (seq, seq, seq),
        (3, seq, 1),
        (3, 3, seq),
        (SEQ_MAX, seq, seq),
    )
    for stream_seq, consumer_seq, at_ns in forged:
        tokens[5:8] = str(stream_seq), str(consumer_seq), str(at_ns)
        client.publish(seen.subject, b"forged", reply=".".join(tokens))
    client.fence()
    origin.fill("c")
    until(lambda: last_seq(mirror) == 3, "the mirror goes on")
    assert mirror.get(seq=3)["subject"] == origin.subject("c")


def ack_subjects(stream: str, consumer: str) -> Iterator[str]:
    numbers = (0, 1, *TOO_LARGE, 10**19, 10**30)
    for seq in numbers:
        for consumer_seq in numbers:
            yield f"$JS.ACK.{stream}.{consumer}.1.{seq}.{consumer_seq}.1.0"


@pytest.mark.parametrize("policy", ["explicit", "all"])
@pytest.mark.parametrize(
    "verb", [b"", b"-NAK", b"+WPI", b"+TERM", b"+NXT", b"-NAK 9223372036854775807"]
)
def test_acks_of_impossible_sequences_change_nothing(
    client: JetStream, policy: str, verb: bytes
) -> None:
    stream = client.stream()
    stream.fill("a", "b", "c")
    consumer = stream.consumer(ack_policy=policy)
    consumer.fetch(2)
    before = consumer.info()
    for subject in ack_subjects(stream.name, consumer.name):
        if ".1.1." not in subject:
            client.publish(subject, verb)
    client.fence()
    after = consumer.info()
    assert after["ack_floor"]["stream_seq"] <= after["delivered"]["stream_seq"] <= 3
    assert after["delivered"]["stream_seq"] >= before["delivered"]["stream_seq"]
    assert stream.publish("d")["seq"] == 4
