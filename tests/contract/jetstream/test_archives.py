"""What archives carry between servers of either kind, and how their transfer goes wrong."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.jetstream.archive.archive_transfer import TRANSFERS_MAX
from penstock.records.s2_stream import Deflater, S2Inflater
from support.assets import JetStream, Stream, unique

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.jetstream import Subscription
    from support.servers import ServerUnderTest

GOLDEN = Path(__file__).parents[2] / "golden" / "archive-2.12.s2"
CHUNK_BYTES = 2048
RESTORE_FAILED = 10062

Json = dict[str, Any]


def asked(stream: Stream, **options: Any) -> tuple[Json, Subscription]:
    """A snapshot that has begun."""
    inbox = stream.client.subscribe()
    request = {"deliver_subject": inbox.subject, "chunk_size": CHUNK_BYTES, **options}
    return stream.client.done(f"STREAM.SNAPSHOT.{stream.name}", request), inbox


def received(stream: Stream, inbox: Subscription) -> bytes:
    """All of an archive, every chunk acknowledged."""
    parts = []
    while (message := inbox.next()).payload:
        parts.append(message.payload)
        if message.reply:
            stream.client.publish(message.reply)
    assert message.status in ("", "204")
    return b"".join(parts)


def archived(stream: Stream) -> tuple[Json, bytes]:
    answer, inbox = asked(stream)
    return answer, received(stream, inbox)


def restored(client: JetStream, config: Json, data: bytes) -> Json:
    """The answer to the end of an archive."""
    body = {"config": config, "state": {}}
    subject = client.done(f"STREAM.RESTORE.{config['name']}", body)["deliver_subject"]
    for at in range(0, len(data), 100_000):
        assert client.request(subject, data[at : at + 100_000]).payload == b""
    answer: Json = client.request(subject, b"").json
    return answer


def unpacked(data: bytes) -> bytes:
    inflater, parts = S2Inflater(), []
    inflater.feed(data)
    while (piece := inflater.next()) is not None:
        parts.append(piece)
    return b"".join(parts)


def packed(data: bytes) -> bytes:
    deflater = Deflater()
    return deflater.add(data) + deflater.finish()


def contents(stream: Stream) -> list[Json]:
    return [stream.get(seq=seq) for seq in stream.sequences()]


def noisy(stream: Stream, count: int) -> None:
    dice = random.Random(count)
    for number in range(count):
        stream.publish(str(number % 3), dice.randbytes(700))


# -- what is carried


def work_queue(client: JetStream) -> Stream:
    stream = client.stream(retention="workqueue")
    stream.fill(*"abcdefgh")
    consumer = stream.consumer("w", ack_policy="explicit")
    taken = consumer.fetch(5)
    for message in (taken[0], taken[2]):
        consumer.answer(message)
    consumer.answer(taken[1], b"-NAK")
    consumer.fetch(1)
    return stream


def key_value(client: JetStream) -> Stream:
    stream = client.stream(
        max_msgs_per_subject=2,
        discard="new",
        allow_rollup_hdrs=True,
        allow_direct=True,
        allow_msg_ttl=True,
        compression="s2",
    )
    for number in range(12):
        stream.publish(f"k{number % 3}", b"v%d" % number)
    stream.publish("k1", b"", KV_Operation="PURGE", Nats_Rollup="sub")
    stream.publish("k3", b"x", Nats_TTL="1h")
    stream.publish("k4", b"x", Nats_TTL="never")
    return stream


def interest(client: JetStream) -> Stream:
    stream = client.stream(retention="interest")
    first = stream.consumer("first", ack_policy="explicit", filter_subject=stream.subject("a"))
    stream.consumer("all", ack_policy="explicit")
    stream.fill("a", "b", "a", "c")
    first.answer(first.fetch(1)[0])
    return stream


def emptied(client: JetStream) -> Stream:
    stream = client.stream(first_seq=50)
    stream.fill(*"abc")
    stream.purge()
    return stream


def gaps(client: JetStream) -> Stream:
    stream = client.stream()
    stream.fill(*"abcdefghij")
    for seq in (1, 2, 5, 9, 10):
        stream.remove(seq)
    consumer = stream.consumer("c", ack_policy="all")
    consumer.fetch(2)
    return stream


@pytest.mark.parametrize("make", [work_queue, key_value, interest, emptied, gaps])
def test_restored_stream_equals_original(
    jetstream: JetStream, another_server: ServerUnderTest, make: Callable[[JetStream], Stream]
) -> None:
    stream = make(jetstream)
    answer, data = archived(stream)
    with JetStream(another_server) as there:
        told = restored(there, answer["config"], data)
        assert "error" not in told, told
        moved = Stream(there, stream.name, told)
        assert contents(moved) == contents(stream)
        before = holdings(stream)
        assert holdings(moved) == before
        for name in jetstream.done(f"CONSUMER.NAMES.{stream.name}")["consumers"]:
            assert progress(there, stream.name, name) == progress(jetstream, stream.name, name)
        assert moved.publish("next")["seq"] == before["last_seq"] + 1


def holdings(stream: Stream) -> Json:
    """The state; without the time of the last message if that was removed."""
    state = stream.state(deleted_details=True)
    if state["last_seq"] not in stream.sequences():
        state.pop("last_ts")
    return state


def progress(client: JetStream, stream: str, consumer: str) -> Json:
    info = client.done(f"CONSUMER.INFO.{stream}.{consumer}")
    for pair in (info["delivered"], info["ack_floor"]):
        pair.pop("last_active", None)
    names = ("config", "delivered", "ack_floor", "num_ack_pending", "num_redelivered",
             "num_pending")  # fmt: skip
    return {name: info[name] for name in names}


def test_archive_of_old_server_is_restored(jetstream: JetStream) -> None:
    told = json.loads(GOLDEN.with_suffix(".json").read_text())
    answer = restored(jetstream, told["config"], GOLDEN.read_bytes())
    assert "error" not in answer, answer
    stream = Stream(jetstream, "OLD", answer)
    kept = told["messages"][:-1]  # the last one lived for a second
    assert [stream.get(seq=one["seq"]) for one in kept] == kept
    assert stream.state()["last_seq"] == told["state"]["last_seq"]
    for name, saved in told["consumers"].items():
        saved["config"]["metadata"] = progress(jetstream, "OLD", name)["config"]["metadata"]
        found = progress(jetstream, "OLD", name)
        found.pop("num_pending")
        assert found == {key: saved[key] for key in found}
    stream.delete()


def test_restored_stream_is_there_after_restart(
    own_server: Callable[..., ServerUnderTest],
) -> None:
    server = own_server()
    with JetStream(server) as client:
        stream = client.stream("R")
        noisy(stream, 20)
        consumer = stream.consumer("c", ack_policy="explicit")
        consumer.answer(consumer.fetch(2)[0])
        before, state = contents(stream), stream.state()
        answer, data = archived(stream)
        stream.delete()
        assert "error" not in restored(client, answer["config"], data)
    server.restart()
    with JetStream(server) as client:
        again = Stream(client, "R", {})
        assert (contents(again), again.state()) == (before, state)
        if server.implementation.name == "ours":  # the reference forgets what is outstanding
            assert progress(client, "R", "c")["num_ack_pending"] == 1


# -- the way there


def test_window_of_one_chunk_sends_one_chunk_at_time(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    noisy(stream, 20)
    _, inbox = asked(stream, window_size=CHUNK_BYTES)
    first = inbox.next()
    jetstream.fence()
    assert not inbox.arrived
    jetstream.publish(first.reply)
    assert inbox.next().reply.endswith(f".{CHUNK_BYTES}.2")
    inbox.close()


def test_messages_published_during_snapshot_are_not_in_it(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    noisy(stream, 60)
    before = contents(stream)
    answer, inbox = asked(stream, window_size=CHUNK_BYTES)
    noisy(stream, 10)
    data = received(stream, inbox)
    stream.delete()
    assert "error" not in restored(jetstream, answer["config"], data)
    assert contents(stream) == before


def test_lost_receiver_ends_snapshot(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    noisy(stream, 20)
    events = jetstream.subscribe(f"$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_COMPLETE.{stream.name}")
    _, inbox = asked(stream, window_size=CHUNK_BYTES)
    inbox.next()
    inbox.close()
    assert events.next().json["error"] == "no interest"


def test_one_stream_can_have_two_concurrent_snapshots(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    noisy(stream, 20)
    _, one = asked(stream, window_size=CHUNK_BYTES)
    _, other = asked(stream, window_size=CHUNK_BYTES)
    streams = [unpacked(received(stream, inbox)) for inbox in (other, one)]
    messages = [data[data.index(stream.subject("0").encode()) :] for data in streams]
    assert messages[0] == messages[1]


@pytest.fixture
def archive(jetstream: JetStream) -> tuple[Json, bytes]:
    stream = jetstream.stream(metadata={"taken": "from"})
    stream.fill(*"abc")
    answer, data = archived(stream)
    return answer["config"], data


def elsewhere(config: Json, **changes: Any) -> Json:
    name = unique("S")
    return {**config, "name": name, "subjects": [f"{name}.>"], **changes}


def test_restore_with_subjects_of_another_stream_is_refused(
    jetstream: JetStream, archive: tuple[Json, bytes]
) -> None:
    config, data = archive
    error = restored(jetstream, elsewhere(config, subjects=config["subjects"]), data)["error"]
    assert (error["code"], error["err_code"]) == (500, RESTORE_FAILED)
    assert "subjects overlap with an existing stream (10065)" in error["description"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:-3],
        lambda data: data[: len(data) // 2],
        lambda data: packed(unpacked(data)[:-5]),
        lambda data: packed(unpacked(data)[:-8]),
        lambda data: packed(b"NATS"),
        lambda data: packed(b"neither an archive nor a tar of one" * 50),
        lambda data: packed(unpacked(data).replace(b"state.json", b"other.json")),
        lambda data: packed(unpacked(data).replace(b'"consumer_count":0', b'"consumer_count":7')),
    ],
)
def test_incomplete_archive_is_refused_at_the_end(
    jetstream: JetStream, archive: tuple[Json, bytes], spoil: Callable[[bytes], bytes]
) -> None:
    config, data = archive
    wanted = elsewhere(config)
    error = restored(jetstream, wanted, spoil(data))["error"]
    assert (error["code"], error["err_code"]) == (500, RESTORE_FAILED)
    if jetstream.server.implementation.name == "ours":  # the reference keeps what it understood
        assert jetstream.refused(f"STREAM.INFO.{wanted['name']}").err_code == 10059
    jetstream.call(f"STREAM.DELETE.{wanted['name']}")


def test_sealed_stream_is_restored_sealed(
    jetstream: JetStream, archive: tuple[Json, bytes]
) -> None:
    config, data = archive
    wanted = elsewhere(config, sealed=True)
    assert restored(jetstream, wanted, data)["config"]["sealed"]
    jetstream.done(f"STREAM.DELETE.{wanted['name']}")


def test_restore_without_space_is_refused(configured: Callable[..., JetStream]) -> None:
    client = configured('jetstream { store_dir: "small", max_file_store: 1MB, max_mem: 1MB }')
    stream = client.stream()
    for number in range(12):
        stream.publish("a", random.Random(number).randbytes(50_000))
    answer, data = archived(stream)
    error = restored(client, elsewhere(answer["config"]), data)["error"]
    assert (error["code"], error["err_code"]) == (500, 10047)
    wanted = elsewhere(answer["config"], max_bytes=2_000_000)
    body = {"config": wanted, "state": {}}
    assert client.refused(f"STREAM.RESTORE.{wanted['name']}", body).err_code == 10047


def test_upload_subject_ends_with_its_restore(
    jetstream: JetStream, archive: tuple[Json, bytes]
) -> None:
    config, data = archive
    wanted = elsewhere(config)
    body = {"config": wanted, "state": {}}
    subject = jetstream.done(f"STREAM.RESTORE.{wanted['name']}", body)["deliver_subject"]
    jetstream.request(subject, data)
    jetstream.request(subject, b"")
    assert jetstream.request(subject, b"").status == "503"
    jetstream.done(f"STREAM.DELETE.{wanted['name']}")


def test_restore_needs_valid_configuration(jetstream: JetStream) -> None:
    for config, code in [
        ({"retention": "interest", "max_msgs_per_subject": -1, "num_replicas": -1}, 10133),
        ({"subjects": ["a..b"]}, 10052),
        ({"name": "other"}, 10056),
    ]:
        body = {"config": config, "state": {}}
        assert jetstream.refused("STREAM.RESTORE.X", body).err_code == code
    assert (
        jetstream.call("STREAM.RESTORE.a/b", {"config": {"name": "a/b"}})["error"]["err_code"]
        == 10128
    )


def test_concurrent_transfers_per_account_are_bounded(
    own_server: Callable[..., ServerUnderTest],
) -> None:
    server = own_server()
    with JetStream(server) as client:
        stream = client.stream("A")
        noisy(stream, 20)
        for number in range(TRANSFERS_MAX):
            client.done(f"STREAM.RESTORE.R{number}", {"config": {}, "state": {}})
        answers = [
            client.call("STREAM.RESTORE.R", {"config": {}, "state": {}}),
            client.call("STREAM.SNAPSHOT.A", {"deliver_subject": "x"}),
        ]
        codes = [answer.get("error", {}).get("err_code") for answer in answers]
        bounded = server.implementation.name == "ours"  # the reference knows no end
        assert codes == ([RESTORE_FAILED, 10064] if bounded else [None, None])
