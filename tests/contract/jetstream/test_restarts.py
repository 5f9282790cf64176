"""What outlives the process: everything acknowledged that is kept in files.

A server is ended in order or killed, and started again over the same files. Progress of consumers
is compared after an orderly end only: the reference writes it a little later than it answers.
"""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Any

import pytest

from support.assets import JetStream, Stream, ack_fields, stream_sequences
from support.patience import PATIENCE_SECONDS
from support.schemas import check_answer
from support.servers import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.servers import ServerUnderTest

ENDS = [signal.SIGTERM, signal.SIGKILL]
FAR = "2099-01-01T00:00:00Z"


@pytest.fixture
def server(own_server: Callable[..., ServerUnderTest]) -> ServerUnderTest:
    return own_server()


@contextlib.contextmanager
def life(server: ServerUnderTest) -> Iterator[JetStream]:
    with JetStream(server, check=check_answer) as client:
        yield client


def end(server: ServerUnderTest, number: signal.Signals = signal.SIGTERM) -> None:
    """End the process and start another over its files."""
    if number == signal.SIGTERM:
        server.stop()
    server.restart()


def again(client: JetStream, name: str) -> Stream:
    return Stream(client, name, {})


def described(stream: Stream) -> dict[str, Any]:
    info = stream.info(deleted_details=True)
    return {key: info[key] for key in ("config", "created", "state")}


@pytest.mark.parametrize("number", ENDS)
def test_stream_survives_restart(server: ServerUnderTest, number: signal.Signals) -> None:
    with life(server) as client:
        stream = client.stream("S", max_msgs=100, description="x", metadata={"mine": "1"})
        for place in range(60):
            stream.publish(str(place % 5), b"x" * place, Key=str(place))
        stream.remove(33)
        before = described(stream)
        messages = [stream.get(seq=seq) for seq in stream.sequences()]
    end(server, number)
    with life(server) as client:
        stream = again(client, "S")
        assert described(stream) == before
        assert [stream.get(seq=seq) for seq in stream.sequences()] == messages
        assert stream.publish("0")["seq"] == 61


@pytest.mark.parametrize("number", ENDS)
def test_purged_stream_keeps_its_sequence_over_restart(
    server: ServerUnderTest, number: signal.Signals
) -> None:
    with life(server) as client:
        stream = client.stream("S")
        stream.fill("a", "b", "c")
        stream.purge()
    end(server, number)
    with life(server) as client:
        stream = again(client, "S")
        state = stream.state()
        assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 4, 3)
        assert stream.publish("a")["seq"] == 4


def test_memory_stream_is_removed_by_restart(server: ServerUnderTest) -> None:
    with life(server) as client:
        client.stream("MEMORY", storage="memory")
        client.stream("FILE")
    end(server)
    with life(server) as client:
        assert client.done("STREAM.NAMES")["streams"] == ["FILE"]


def test_deleted_messages_stay_deleted_after_restart(server: ServerUnderTest) -> None:
    with life(server) as client:
        client.stream("KEPT").consumer("kept")
        again(client, "KEPT").consumer("gone").delete()
        client.stream("GONE").publish("a")
        again(client, "GONE").delete()
    end(server)
    with life(server) as client:
        assert client.done("STREAM.NAMES")["streams"] == ["KEPT"]
        assert client.done("CONSUMER.NAMES.KEPT")["consumers"] == ["kept"]


def test_consumer_resumes_after_restart(server: ServerUnderTest) -> None:
    with life(server) as client:
        stream = client.stream("S")
        stream.fill("a", "b", "c", "d", "e")
        consumer = stream.consumer("c", ack_policy="explicit")
        first, _, third = consumer.fetch(3)
        consumer.answer(first)
        consumer.answer(third)
        before = consumer.info()
    end(server)
    with life(server) as client:
        consumer = again(client, "S").consumer("c", ack_policy="explicit")
        info = consumer.info()
        for key in ("config", "num_ack_pending", "num_pending", "num_redelivered"):
            assert info[key] == before[key]
        for key in ("delivered", "ack_floor"):
            assert info[key]["stream_seq"] == before[key]["stream_seq"]
            assert info[key]["consumer_seq"] == before[key]["consumer_seq"]
        messages = consumer.fetch(2)
        assert stream_sequences(messages) == [4, 5]
        assert [ack_fields(one)[2] for one in messages] == [4, 5]


@pytest.mark.parametrize("seq", [1, 2, 10])
def test_reset_beyond_empty_stream_survives_restart(server: ServerUnderTest, seq: int) -> None:
    with life(server) as client:
        client.stream("S").consumer("c", ack_policy="explicit").call("RESET", {"seq": seq})
    end(server)
    with life(server) as client:
        info = again(client, "S").consumer("c", ack_policy="explicit").info()
        for key in ("delivered", "ack_floor"):
            assert (info[key]["consumer_seq"], info[key]["stream_seq"]) == (0, seq - 1)


def test_restart_moves_consumer_back_to_the_end_of_its_stream(server: ServerUnderTest) -> None:
    with life(server) as client:
        stream = client.stream("S")
        stream.fill("a", "b", "c")
        stream.consumer("c", ack_policy="explicit").call("RESET", {"seq": 10})
    end(server)
    with life(server) as client:
        consumer = again(client, "S").consumer("c", ack_policy="explicit")
        assert consumer.info()["delivered"]["stream_seq"] == 3
        again(client, "S").publish("d")
        assert stream_sequences(consumer.fetch(1)) == [4]


def test_unacked_message_is_redelivered_with_its_count_after_restart(
    server: ServerUnderTest,
) -> None:
    with life(server) as client:
        stream = client.stream("S")
        stream.publish("a")
        consumer = stream.consumer("c", ack_policy="explicit", ack_wait=500_000_000)
        consumer.fetch(1)
        consumer.fetch(1)
    end(server)
    with life(server) as client:
        consumer = again(client, "S").consumer("c", ack_policy="explicit", ack_wait=500_000_000)
        assert ack_fields(consumer.fetch(1)[0])[:2] == (3, 1)


def test_message_ids_survive_restart(server: ServerUnderTest) -> None:
    with life(server) as client:
        stream = client.stream("S")
        stream.publish("a", Nats_Msg_Id="1")
    end(server, signal.SIGKILL)
    with life(server) as client:
        assert again(client, "S").publish("b", Nats_Msg_Id="1")["duplicate"] is True


def test_counter_survives_restart(server: ServerUnderTest) -> None:
    with life(server) as client:
        client.stream("S", allow_msg_counter=True).publish("a", Nats_Incr="40")
    end(server, signal.SIGKILL)
    with life(server) as client:
        assert again(client, "S").publish("a", Nats_Incr="2")["val"] == "42"


def test_message_age_continues_over_restart(server: ServerUnderTest) -> None:
    with life(server) as client:
        stream = client.stream("S", allow_msg_ttl=True, allow_msg_schedules=True)
        stream.publish("short", Nats_TTL="1")
        stream.publish("long", Nats_TTL="1h")
        fields = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": stream.subject("out")}
        client.publish_ack(stream.subject("schedule"), b"body", fields)
    end(server)
    with life(server) as client:
        stream = again(client, "S")

        def counts() -> set[str]:
            return set(stream.state(subjects_filter=">").get("subjects", {}))

        until(
            lambda: counts() == {"S.long", "S.schedule", "S.out"},
            "one went and one fired",
            PATIENCE_SECONDS,
        )


def test_acked_work_stays_acked_after_restart(server: ServerUnderTest) -> None:
    with life(server) as client:
        stream = client.stream("S", retention="workqueue")
        stream.fill("a", "b", "c")
        consumer = stream.consumer("c", ack_policy="explicit")
        first, second, _ = consumer.fetch(3)
        for message in (first, second):
            consumer.answer(message)
        until(lambda: stream.sequences() == [3], "two are done")
    end(server)
    with life(server) as client:
        stream = again(client, "S")
        assert stream.sequences() == [3]


def test_source_resumes_after_restart(server: ServerUnderTest) -> None:
    with life(server) as client:
        origin = client.stream("O")
        origin.fill("a", "b")
        copy = client.stream("C", sources=[{"name": "O"}])
        until(lambda: copy.sequences() == [1, 2], "both have come", PATIENCE_SECONDS)
    end(server)
    with life(server) as client:
        again(client, "O").publish("c")
        copy = again(client, "C")
        until(lambda: copy.state()["last_seq"] >= 3, "the third has come", PATIENCE_SECONDS)
        assert [copy.get(seq=seq)["subject"] for seq in copy.sequences()] == ["O.a", "O.b", "O.c"]


def test_pause_survives_restart(server: ServerUnderTest) -> None:
    with life(server) as client:
        stream = client.stream("S")
        stream.publish("a")
        stream.consumer("c", ack_policy="explicit").call("PAUSE", {"pause_until": FAR})
    end(server)
    with life(server) as client:
        info = client.done("CONSUMER.INFO.S.c")
        assert (info["paused"], info["config"]["pause_until"]) == (True, FAR)


def test_open_batch_is_abandoned_by_restart(server: ServerUnderTest) -> None:
    fields = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"}
    with life(server) as client:
        stream = client.stream("S", allow_atomic=True)
        client.request(stream.subject("a"), b"x", fields)
    end(server)
    with life(server) as client:
        stream = again(client, "S")
        assert stream.state()["messages"] == 0
        commit = {**fields, "Nats-Batch-Sequence": "2", "Nats-Batch-Commit": "1"}
        assert stream.refused("a", b"x", commit).err_code == 10176


def test_orderly_shutdown_ends_waiting_requests(server: ServerUnderTest) -> None:
    with life(server) as client:
        consumer = client.stream("S").consumer("c", ack_policy="explicit")
        waiting = consumer.pull(batch=3, expires=30_000_000_000)
        until(lambda: consumer.info()["num_waiting"] == 1, "it waits")
        server.send_signal(signal.SIGTERM)
        status = waiting.next()
        assert status.status == "409 Server Shutdown"
        assert status.fields == [("Nats-Pending-Messages", "3"), ("Nats-Pending-Bytes", "0")]


def test_changed_first_sequence_does_not_move_empty_stream(server: ServerUnderTest) -> None:
    with life(server) as client:
        stream = client.stream("S", first_seq=1000)
        stream.update(first_seq=77)
        before = stream.info()["state"]
    end(server)
    with life(server) as client:
        assert again(client, "S").info()["state"] == before
        assert before["last_seq"] == 999
