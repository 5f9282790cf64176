"""Streams as archives: taken in acknowledged chunks, restored on the same or another server."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from support.assets import JetStream, Stream, unique
from support.jetstream import API, Refusal
from support.schemas import check_answer

if TYPE_CHECKING:
    from support.servers import ServerUnderTest

CHUNK_BYTES = 4096
ARCHIVE_START = b"\xff\x06\x00\x00S2sTwO"
KIND = "io.nats.jetstream.api.v1."
IN_USE = Refusal(400, 10130, "stream name already in use, cannot restore")
BAD_SUBJECT = Refusal(400, 10015, "deliver subject not valid")


class Archive(NamedTuple):
    """A snapshot as its receiver has it."""

    config: dict[str, Any]
    state: dict[str, Any]
    chunks: list[bytes]

    @property
    def data(self) -> bytes:
        return b"".join(self.chunks)


def take(stream: Stream, **options: Any) -> Archive:
    """A snapshot, every chunk acknowledged."""
    client = stream.client
    inbox = client.subscribe()
    request = {"deliver_subject": inbox.subject, "chunk_size": CHUNK_BYTES, **options}
    answer = client.done(f"STREAM.SNAPSHOT.{stream.name}", request)
    chunks: list[bytes] = []
    start = re.escape(f"$JS.SNAPSHOT.ACK.{stream.name}.")
    while (message := inbox.next()).payload:
        chunks.append(message.payload)
        if message.reply:
            assert re.fullmatch(
                start + rf"\w+\.{len(message.payload)}\.{len(chunks)}", message.reply
            )
            client.publish(message.reply)
    full = any(len(chunk) == CHUNK_BYTES for chunk in chunks)
    assert message.status == ("204" if full else "")
    inbox.close()
    return Archive(answer["config"], answer["state"], chunks)


def restore(client: JetStream, config: dict[str, Any], archive: Archive, data: bytes) -> Any:
    """Send an archive; the answer to its end."""
    body = {"config": config, "state": archive.state}
    subject = client.done(f"STREAM.RESTORE.{config['name']}", body)["deliver_subject"]
    assert subject.startswith(f"$JS.SNAPSHOT.RESTORE.{config['name']}.")
    for at in range(0, len(data), CHUNK_BYTES):
        answer = client.request(subject, data[at : at + CHUNK_BYTES])
        assert (answer.header, answer.payload) == (b"", b"")
    return client.request(subject, b"").json


def contents(stream: Stream) -> list[dict[str, Any]]:
    return [stream.get(seq=seq) for seq in stream.sequences()]


@pytest.fixture(params=["file", "memory"])
def stream(request: pytest.FixtureRequest, jetstream: JetStream) -> Stream:
    """Forty messages that do not compress, with gaps, and a consumer half through."""
    dice = random.Random(request.param)
    made = jetstream.stream(storage=request.param, max_msgs=38, metadata={"mine": "1"})
    for number in range(40):
        made.publish(str(number % 3), dice.randbytes(number * 20), Key=str(number))
    for seq in (7, 8, 20):
        made.remove(seq)
    consumer = made.consumer("c", ack_policy="explicit")
    first, *_ = consumer.fetch(3)
    consumer.answer(first)
    return made


def test_archive_holds_stream_as_it_was(stream: Stream) -> None:
    archive = take(stream)
    assert archive.data.startswith(ARCHIVE_START)
    assert b"NATSARC1" in archive.chunks[0]
    assert len(archive.chunks) > 3
    assert archive.config["name"] == stream.name
    assert archive.config["metadata"] == {"mine": "1", "_nats.req.level": "0"}
    assert archive.state == stream.state()


def test_restored_archive_gives_the_same_stream(jetstream: JetStream, stream: Stream) -> None:
    before, state = contents(stream), stream.state()
    archive = take(stream)
    stream.delete()
    answer = restore(jetstream, archive.config, archive, archive.data)
    check_answer(answer)
    assert answer["type"] == KIND + "stream_create_response"
    assert (contents(stream), stream.state()) == (before, state)
    info = jetstream.done(f"CONSUMER.INFO.{stream.name}.c")
    assert info["num_ack_pending"] == 2
    assert (info["ack_floor"]["consumer_seq"], info["delivered"]["consumer_seq"]) == (1, 3)
    assert stream.publish("0")["seq"] == 41


def test_archive_can_exclude_consumers(jetstream: JetStream, stream: Stream) -> None:
    archive = take(stream, no_consumers=True)
    stream.delete()
    restore(jetstream, archive.config, archive, archive.data)
    assert jetstream.done(f"CONSUMER.NAMES.{stream.name}")["consumers"] == []


def test_archive_can_be_restored_under_another_name(jetstream: JetStream, stream: Stream) -> None:
    archive = take(stream)
    before = contents(stream)
    name = unique("S")
    config = {**archive.config, "name": name, "subjects": [f"{name}.>"]}
    restore(jetstream, config, archive, archive.data)
    assert contents(Stream(jetstream, name, {})) == before
    jetstream.done(f"STREAM.DELETE.{name}")


def test_archive_moves_between_servers(stream: Stream, another_server: ServerUnderTest) -> None:
    archive = take(stream)
    with JetStream(another_server) as there:
        answer = restore(there, archive.config, archive, archive.data)
        assert "error" not in answer
        moved = Stream(there, stream.name, answer)
        assert contents(moved) == contents(stream)
        assert moved.state() == stream.state()
        info = there.done(f"CONSUMER.INFO.{stream.name}.c")
        assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (2, 3)


def test_empty_stream_can_be_archived(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    archive = take(stream)
    stream.delete()
    restore(jetstream, archive.config, archive, archive.data)
    state = stream.state()
    assert (state["messages"], state["last_seq"]) == (0, 0)


def test_existing_stream_is_not_restored_over(jetstream: JetStream, stream: Stream) -> None:
    archive = take(stream)
    body = {"config": archive.config, "state": archive.state}
    assert jetstream.refused(f"STREAM.RESTORE.{stream.name}", body) == IN_USE


def test_stream_name_in_subject_and_body_must_agree(jetstream: JetStream) -> None:
    body = {"config": {"name": "A"}, "state": {}}
    assert jetstream.refused("STREAM.RESTORE.B", body).err_code == 10056


def test_broken_archive_creates_no_stream(jetstream: JetStream, stream: Stream) -> None:
    archive = take(stream)
    name = unique("S")
    config = {**archive.config, "name": name, "subjects": [f"{name}.>"]}
    answer = restore(jetstream, config, archive, b"garbage" * 100)
    assert (answer["error"]["code"], answer["error"]["err_code"]) == (500, 10062)
    assert jetstream.refused(f"STREAM.INFO.{name}").err_code == 10059


@pytest.mark.parametrize("subject", ["", "x.*", "x..y", "a b"])
def test_snapshot_needs_deliver_subject(jetstream: JetStream, subject: str) -> None:
    stream = jetstream.stream()
    request = {"deliver_subject": subject}
    assert jetstream.refused(f"STREAM.SNAPSHOT.{stream.name}", request) == BAD_SUBJECT


def test_snapshot_of_missing_stream_is_refused(jetstream: JetStream) -> None:
    refusal = jetstream.refused("STREAM.SNAPSHOT.nope", {"deliver_subject": "x"})
    assert refusal.err_code == 10059


def test_snapshots_and_restores_have_advisories(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b")
    inbox = jetstream.subscribe(f"$JS.EVENT.ADVISORY.STREAM.*.{stream.name}")
    archive = take(stream)
    stream.delete()
    restore(jetstream, archive.config, archive, archive.data)
    events = {}
    while "RESTORE_COMPLETE" not in events:
        message = inbox.next()
        check_answer(message.json)
        events[message.subject.split(".")[4]] = message.json
    assert events["SNAPSHOT_CREATE"]["state"]["messages"] == 2
    assert events["SNAPSHOT_CREATE"]["client"]["acc"] == "$G"
    assert {"start", "end"} <= events["SNAPSHOT_COMPLETE"].keys()
    assert events["RESTORE_COMPLETE"]["bytes"] == len(archive.data)


def test_snapshot_without_receiver_ends(jetstream: JetStream, stream: Stream) -> None:
    subject = unique("nowhere")
    request = {"deliver_subject": subject, "chunk_size": CHUNK_BYTES}
    answer = jetstream.request(f"{API}STREAM.SNAPSHOT.{stream.name}", request).json
    assert answer["state"]["messages"] == stream.state()["messages"]
    stream.publish("0")
