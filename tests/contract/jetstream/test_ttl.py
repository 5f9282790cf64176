"""Messages with a time of their own to live, and the markers that tell of their end.

Times to live are whole seconds, so the few tests that wait for one look at much at once.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from support.assets import SECOND
from support.jetstream import Refusal
from support.patience import PATIENCE_SECONDS
from support.servers import until

if TYPE_CHECKING:
    from support.assets import JetStream, Stream

INVALID = Refusal(400, 10165, "invalid per-message TTL")
DISABLED = Refusal(400, 10166, "per-message TTL is disabled")
MARKER = b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 1s\r\nNats-Rollup: sub\r\n\r\n"


def header(stream: Stream, seq: int) -> bytes:
    return base64.b64decode(stream.get(seq=seq).get("hdrs", ""))


@pytest.mark.parametrize(
    "value", ["1", "1s", "1500ms", "never", "NEVER", "1h1m", "2m", "", "3600", "0.5h"]
)
def test_time_to_live_is_seconds_duration_or_never(jetstream: JetStream, value: str) -> None:
    stream = jetstream.stream(allow_msg_ttl=True)
    assert stream.publish("a", Nats_TTL=value)["seq"] == 1
    assert header(stream, 1) == f"NATS/1.0\r\nNats-TTL: {value}\r\n\r\n".encode()


@pytest.mark.parametrize("value", ["0", "0s", "500ms", "-1", "-1s", "x", "1.5", "1s 1", "1d"])
def test_invalid_ttl_is_refused(jetstream: JetStream, value: str) -> None:
    stream = jetstream.stream(allow_msg_ttl=True)
    assert stream.refused("a", b"", {"Nats-TTL": value}) == INVALID
    assert jetstream.stream().refused("a", b"", {"Nats-TTL": value}) == INVALID


@pytest.mark.parametrize("value", ["1", "1h", "never"])
def test_stream_without_ttl_refuses_it(jetstream: JetStream, value: str) -> None:
    assert jetstream.stream().refused("a", b"", {"Nats-TTL": value}) == DISABLED


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_message_is_removed_when_its_ttl_ends(jetstream: JetStream, storage: str) -> None:
    stream = jetstream.stream(storage=storage, allow_msg_ttl=True)
    stream.publish("a", Nats_TTL="1")
    stream.publish("a")
    stream.publish("b", Nats_TTL="1s")
    stream.publish("c", Nats_TTL="1h")
    until(lambda: stream.sequences() == [2, 4], "two are removed", PATIENCE_SECONDS)
    assert stream.state()["num_subjects"] == 2
    assert stream.state()["last_seq"] == 4


def test_earlier_of_max_age_and_ttl_applies_unless_never(
    jetstream: JetStream,
) -> None:
    stream = jetstream.stream(allow_msg_ttl=True, max_age=SECOND)
    stream.publish("a", Nats_TTL="never")
    stream.publish("b", Nats_TTL="1h")
    stream.publish("c")
    until(lambda: stream.sequences() == [1], "all but one are removed", PATIENCE_SECONDS)
    assert stream.state()["last_seq"] == 3


def test_delete_marker_is_left_when_ttl_removes_the_last_message(jetstream: JetStream) -> None:
    stream = jetstream.stream(allow_msg_ttl=True, subject_delete_marker_ttl=SECOND)
    stream.publish("a", b"x", Nats_TTL="1")
    stream.publish("b", b"stays")
    stream.publish("b", b"x", Nats_TTL="1")
    stream.publish("c", Nats_TTL="1", KV_Operation="PURGE")
    heard = jetstream.subscribe(stream.subject(">"))
    until(lambda: stream.state()["last_seq"] == 5, "a marker is stored", PATIENCE_SECONDS)
    marker = stream.get(seq=5)
    assert marker["subject"] == stream.subject("a")
    assert "data" not in marker
    assert header(stream, 5) == MARKER
    until(lambda: stream.sequences() == [2], "the marker went without one", PATIENCE_SECONDS)
    assert stream.state()["last_seq"] == 5
    assert heard.waiting() == []


def test_max_age_leaves_delete_markers(jetstream: JetStream) -> None:
    stream = jetstream.stream(max_age=SECOND, subject_delete_marker_ttl=SECOND, allow_msg_ttl=True)
    stream.fill("a", "a", "b")
    until(lambda: stream.state()["last_seq"] == 5, "two markers are stored", PATIENCE_SECONDS)
    assert {stream.get(seq=seq)["subject"] for seq in (4, 5)} == {
        stream.subject("a"),
        stream.subject("b"),
    }
    assert header(stream, 4) == MARKER == header(stream, 5)


def test_removal_by_request_leaves_no_delete_marker(jetstream: JetStream) -> None:
    stream = jetstream.stream(allow_msg_ttl=True, subject_delete_marker_ttl=SECOND)
    stream.fill("a", "b", "c")
    stream.remove(1)
    stream.purge(filter=stream.subject("b"))
    stream.purge()
    assert stream.state()["last_seq"] == 3


def test_delete_markers_imply_options_they_need(jetstream: JetStream) -> None:
    config = jetstream.stream(subject_delete_marker_ttl=2 * SECOND).config
    assert config["allow_msg_ttl"] is True
    assert config["allow_rollup_hdrs"] is True
    assert config["subject_delete_marker_ttl"] == 2 * SECOND
