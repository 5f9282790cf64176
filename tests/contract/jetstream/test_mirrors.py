"""Streams fed by streams: mirrors keep sequences, sources make new ones.

Origin and copy live on one server here; what a copy lacks is waited for, never slept for.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import pytest

from support.assets import SECOND
from support.jetstream import API, Refusal
from support.patience import PATIENCE_SECONDS
from support.servers import until

if TYPE_CHECKING:
    from support.assets import JetStream, Stream

FUTURE = "2099-01-01T00:00:00Z"


@pytest.fixture
def origin(jetstream: JetStream) -> Stream:
    """Messages a - c: the second is deleted."""
    made = jetstream.stream()
    made.fill("a", "b", "c")
    made.remove(2)
    return made


def wait_for(stream: Stream, sequences: list[int]) -> None:
    until(lambda: stream.sequences() == sequences, f"sequences {sequences}", PATIENCE_SECONDS)


def header(stream: Stream, seq: int) -> bytes:
    return base64.b64decode(stream.get(seq=seq)["hdrs"])


def subjects(stream: Stream) -> list[str]:
    return [stream.get(seq=seq)["subject"] for seq in stream.sequences()]


# -- mirrors


def test_mirror_keeps_sequences_times_and_gaps(jetstream: JetStream, origin: Stream) -> None:
    mirror = jetstream.stream(mirror={"name": origin.name})
    wait_for(mirror, [1, 3])
    assert [mirror.get(seq=seq) for seq in (1, 3)] == [origin.get(seq=seq) for seq in (1, 3)]
    origin.publish("d", b"later", Nats_Msg_Id="1")
    wait_for(mirror, [1, 3, 4])
    assert header(mirror, 4) == b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n"
    state = mirror.state(deleted_details=True)
    assert (state["last_seq"], state["deleted"]) == (4, [2])


def test_mirror_cannot_have_subjects(jetstream: JetStream, origin: Stream) -> None:
    mirror = jetstream.stream(mirror={"name": origin.name})
    assert "subjects" not in mirror.config
    assert "duplicate_window" not in mirror.config
    assert jetstream.request(mirror.name).status == "503"


def test_mirror_reports_its_lag(jetstream: JetStream, origin: Stream) -> None:
    mirror = jetstream.stream(mirror={"name": origin.name})
    assert mirror.created["mirror"]["name"] == origin.name
    wait_for(mirror, [1, 3])
    told = mirror.info()["mirror"]
    assert told["active"] >= 0
    assert {key: told[key] for key in ("name", "lag")} == {"name": origin.name, "lag": 0}


def test_mirror_without_origin_reports_error(jetstream: JetStream) -> None:
    mirror = jetstream.stream(mirror={"name": "nope"})
    until(lambda: "error" in mirror.info()["mirror"], "the error is reported", PATIENCE_SECONDS)
    told = mirror.info()["mirror"]
    assert told == {
        "name": "nope",
        "lag": 0,
        "active": -1,
        "error": {"code": 404, "err_code": 10059, "description": "stream not found"},
    }


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"filter_subject": "{s}.c"}, [3]),
        ({"opt_start_seq": 2}, [3]),
        ({"opt_start_seq": 3}, [3]),
        ({"filter_subject": "{s}.*"}, [1, 3]),
    ],
)
def test_mirror_can_filter(
    jetstream: JetStream, origin: Stream, config: dict[str, Any], expected: list[int]
) -> None:
    filled = {
        key: value.format(s=origin.name) if isinstance(value, str) else value
        for key, value in config.items()
    }
    mirror = jetstream.stream(mirror={"name": origin.name, **filled})
    wait_for(mirror, expected)


def test_mirror_can_transform_subjects(jetstream: JetStream, origin: Stream) -> None:
    transforms = [{"src": f"{origin.name}.*", "dest": "renamed.$1"}]
    mirror = jetstream.stream(mirror={"name": origin.name, "subject_transforms": transforms})
    wait_for(mirror, [1, 3])
    assert subjects(mirror) == ["renamed.a", "renamed.c"]
    assert mirror.info()["mirror"]["subject_transforms"] == transforms


def test_mirror_has_its_own_limits(jetstream: JetStream, origin: Stream) -> None:
    mirror = jetstream.stream(mirror={"name": origin.name}, max_msgs=1)
    wait_for(mirror, [3])
    origin.publish("d")
    wait_for(mirror, [4])


def test_mirror_keeps_messages_origin_removes_later(jetstream: JetStream, origin: Stream) -> None:
    mirror = jetstream.stream(mirror={"name": origin.name})
    wait_for(mirror, [1, 3])
    origin.purge()
    origin.publish("d")
    wait_for(mirror, [1, 3, 4])


def test_mirror_can_be_consumed(jetstream: JetStream, origin: Stream) -> None:
    mirror = jetstream.stream(mirror={"name": origin.name})
    consumer = mirror.consumer(ack_policy="explicit")
    messages = consumer.fetch(2)
    assert [one.subject for one in messages] == [origin.subject("a"), origin.subject("c")]


def test_internal_consumers_of_mirrors_are_not_listed(jetstream: JetStream, origin: Stream) -> None:
    mirror = jetstream.stream(mirror={"name": origin.name})
    wait_for(mirror, [1, 3])
    assert jetstream.done(f"CONSUMER.NAMES.{origin.name}")["consumers"] == []


def test_mirror_serves_direct_gets_of_its_origin(jetstream: JetStream) -> None:
    origin = jetstream.stream(allow_direct=True)
    origin.fill("a", "b")
    mirror = jetstream.stream(mirror={"name": origin.name}, mirror_direct=True)
    wait_for(mirror, [1, 2])
    assert mirror.config["mirror_direct"] is True
    answers = [jetstream.request(f"{API}DIRECT.GET.{origin.name}", {"seq": 2}) for _ in range(8)]
    assert {one.payload for one in answers} == {b"m2"}
    assert {one.headers["Nats-Stream"] for one in answers} <= {origin.name, mirror.name}


@pytest.mark.parametrize(
    ("config", "err_code"),
    [
        ({"subjects": ["x"]}, 10034),
        ({"sources": [{"name": "x"}]}, 10031),
        ({"first_seq": 5}, 10143),
        ({"allow_msg_counter": True}, 10173),
        ({"allow_atomic": True}, 10198),
        ({"allow_msg_schedules": True}, 10186),
    ],
)
def test_mirror_excludes_some_options(
    jetstream: JetStream, config: dict[str, Any], err_code: int
) -> None:
    body = {"name": "MIRROR", "mirror": {"name": "x"}, **config}
    assert jetstream.refused("STREAM.CREATE.MIRROR", body).err_code == err_code


def test_mirror_can_be_promoted_to_stream(jetstream: JetStream, origin: Stream) -> None:
    mirror = jetstream.stream(mirror={"name": origin.name})
    wait_for(mirror, [1, 3])
    refusal = mirror.update_refused(mirror={"name": "other"})
    assert refusal == Refusal(400, 10055, "stream mirror configuration can not be updated")
    mirror.update(mirror=None, subjects=[f"{mirror.name}.>"])
    assert mirror.publish("own")["seq"] == 4
    origin.fill("d", "e")
    assert mirror.publish("own")["seq"] == 5


# -- sources


def test_sourced_message_has_new_sequence_and_origin_header(
    jetstream: JetStream, origin: Stream
) -> None:
    copy = jetstream.stream(sources=[{"name": origin.name}])
    wait_for(copy, [1, 2])
    name = re.escape(origin.name)
    for seq, old, subject in ((1, 1, "a"), (2, 3, "c")):
        told = header(copy, seq).decode()
        pattern = rf"Nats-Stream-Source: {name} {old} > > {name}\.{subject} [0-9A-Za-z]{{8}}\r\n"
        assert re.search(pattern, told)
    assert subjects(copy) == [origin.subject("a"), origin.subject("c")]
    [told] = copy.info()["sources"]
    assert (told["name"], told["lag"], told["seq"]) == (origin.name, 0, 3)


def test_sources_mix_with_published_messages(jetstream: JetStream) -> None:
    origins = [jetstream.stream() for _ in range(2)]
    copy = jetstream.stream(sources=[{"name": one.name} for one in origins], subjects=["own.mine"])
    for one in origins:
        one.fill("a", "b")
    until(lambda: copy.state()["messages"] == 4, "all have come", PATIENCE_SECONDS)
    assert jetstream.publish_ack("own.mine")["seq"] == 5
    for one in origins:
        assert [s for s in subjects(copy) if s.startswith(one.name)] == [
            one.subject("a"),
            one.subject("b"),
        ]


@pytest.mark.parametrize(
    ("config", "expected", "told"),
    [
        ({"filter_subject": "{s}.c"}, ["{s}.c"], "{s}.c >"),
        ({"opt_start_seq": 3}, ["{s}.c"], "> >"),
        ({"opt_start_seq": 2, "filter_subject": "{s}.>"}, ["{s}.c"], "{s}.> >"),
        (
            {"subject_transforms": [{"src": "{s}.*", "dest": "x.$1"}]},
            ["x.a", "x.c"],
            "{s}.* x.$1",
        ),
        (
            {
                "subject_transforms": [
                    {"src": "{s}.a", "dest": "x.a"},
                    {"src": "{s}.c", "dest": "y.c"},
                ]
            },
            ["x.a", "y.c"],
            "{s}.a\x0c{s}.c x.a\x0cy.c",
        ),
        ({"subject_transforms": [{"src": "{s}.c", "dest": ""}]}, ["{s}.c"], None),
    ],
)
def test_source_can_filter_and_transform(
    jetstream: JetStream,
    origin: Stream,
    config: dict[str, Any],
    expected: list[str],
    told: str | None,
) -> None:
    filled = _filled(config, origin.name)
    copy = jetstream.stream(sources=[{"name": origin.name, **filled}])
    wait_for(copy, [*range(1, len(expected) + 1)])
    assert subjects(copy) == [one.format(s=origin.name) for one in expected]
    if told is not None:
        assert f" {told.format(s=origin.name)} {origin.name}." in header(copy, 1).decode()


def _filled(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(one, name) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, name) for one in value]
    return value.format(s=name) if isinstance(value, str) else value


def test_source_with_future_start_time_copies_new_messages(
    jetstream: JetStream, origin: Stream
) -> None:
    copy = jetstream.stream(sources=[{"name": origin.name, "opt_start_time": FUTURE}])
    until(lambda: copy.info()["sources"][0]["active"] >= 0, "it is connected", PATIENCE_SECONDS)
    assert copy.state()["messages"] == 0


def test_expectation_headers_are_not_copied(jetstream: JetStream, origin: Stream) -> None:
    copy = jetstream.stream(sources=[{"name": origin.name}])
    origin.publish("d", Nats_Expected_Stream=origin.name, Nats_Msg_Id="1", Key="value")
    wait_for(copy, [1, 2, 3])
    told = header(copy, 3)
    assert told.startswith(b"NATS/1.0\r\nNats-Msg-Id: 1\r\nKey: value\r\nNats-Stream-Source: ")


@pytest.mark.parametrize(("window", "stored"), [(0, 4), (60 * SECOND, 3)])
def test_sourced_duplicates_are_dropped_within_window(
    jetstream: JetStream, window: int, stored: int
) -> None:
    origins = [jetstream.stream() for _ in range(2)]
    copy = jetstream.stream(
        sources=[{"name": one.name} for one in origins], duplicate_window=window
    )
    for one in origins:
        one.publish("a", Nats_Msg_Id="same")
        one.publish("b", Nats_Msg_Id=one.name)
    until(lambda: copy.state()["last_seq"] == stored, "all have come", PATIENCE_SECONDS)
    assert [one["lag"] for one in copy.info()["sources"]] == [0, 0]


def test_sources_can_be_added_and_removed(jetstream: JetStream, origin: Stream) -> None:
    copy = jetstream.stream(sources=[{"name": origin.name}], subjects=["added.mine"])
    wait_for(copy, [1, 2])
    other = jetstream.stream()
    other.fill("x")
    copy.update(sources=[{"name": other.name}])
    wait_for(copy, [1, 2, 3])
    origin.publish("d")
    other.publish("y")
    wait_for(copy, [1, 2, 3, 4])
    assert subjects(copy)[2:] == [other.subject("x"), other.subject("y")]


def test_source_listed_twice_is_refused(jetstream: JetStream, origin: Stream) -> None:
    body = {"name": "TWICE", "sources": [{"name": origin.name}] * 2}
    assert jetstream.refused("STREAM.CREATE.TWICE", body).err_code == 10140


def test_work_queue_can_be_source(jetstream: JetStream) -> None:
    origin = jetstream.stream(retention="workqueue")
    origin.fill("a", "b")
    copy = jetstream.stream(sources=[{"name": origin.name}])
    wait_for(copy, [1, 2])
    until(lambda: origin.sequences() == [], "the queue is empty", PATIENCE_SECONDS)
