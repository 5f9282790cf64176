"""Messages that publish others, once or again and again.

Whether a schedule is accepted needs no waiting and is in tables; the few tests that see one
fire wait for it on a condition.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from support.jetstream import Refusal, refusal
from support.servers import until

if TYPE_CHECKING:
    from support.assets import JetStream, Stream

PATTERN = Refusal(400, 10189, "message schedules pattern is invalid")
TARGET = Refusal(400, 10190, "message schedules target is invalid")
TTL = Refusal(400, 10191, "message schedules invalid per-message TTL")
ROLLUP = Refusal(400, 10192, "message schedules invalid rollup")
SOURCE = Refusal(400, 10203, "message schedules source is invalid")
SCHEDULER = Refusal(400, 10212, "message schedules invalid scheduler")
ZONE = Refusal(400, 10223, "message schedules time zone is invalid")
HOURLY = "@every 1h"
CRON = "0 0 * * * *"
NEXT = re.compile(r"Nats-Schedule-Next: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@pytest.fixture
def stream(jetstream: JetStream) -> Stream:
    return jetstream.stream(allow_msg_schedules=True, allow_msg_ttl=True)


def schedule(stream: Stream, rest: str, pattern: str, **headers: str) -> Refusal | int:
    """The sequence of an accepted schedule, or its refusal; subjects are relative."""
    fields = {"Nats-Schedule": pattern}
    for key, value in {"Target": "out", **headers}.items():
        relative = key in ("Target", "Source") and value
        name = key.replace("_", "-")
        fields[f"Nats-Schedule-{name}"] = value.format(s=stream.name) if relative else value
    answer = stream.client.publish_ack(stream.subject(rest), b"body", fields)
    return refusal(answer) if "error" in answer else int(answer["seq"])


def soon() -> str:
    moment = datetime.now(UTC) + timedelta(milliseconds=100)
    return moment.strftime("@at %Y-%m-%dT%H:%M:%S.%fZ")


def stored(stream: Stream, rest: str) -> tuple[bytes, bytes]:
    """Header and payload of the last message of a subject."""
    message = stream.get(last_by_subj=stream.subject(rest))
    return base64.b64decode(message.get("hdrs", "")), base64.b64decode(message.get("data", ""))


def subjects(stream: Stream) -> dict[str, int]:
    counts = stream.state(subjects_filter=">").get("subjects", {})
    return {subject.removeprefix(f"{stream.name}."): count for subject, count in counts.items()}


# -- accepted or not


@pytest.mark.parametrize(
    "pattern",
    [
        "@at 2099-01-01T00:00:00Z",
        "@at 2099-01-01T00:00:00.123456789Z",
        "@at 2099-01-01T00:00:00+02:00",
        "@every 1h",
        "@every 1h30m",
        "@hourly",
        "@daily",
        "@midnight",
        "@weekly",
        "@monthly",
        "@yearly",
        "@annually",
        "0 0 * * * *",
        "0 0 0 1 JAN MON",
        "0 0 0 1 jan-mar mon,fri",
        "0 */5 * * * *",
        "0 0 0 ? * ?",
        "0 0 0 * * 0",
        "0 1-5,10 0 * * *",
        "0 10-30/5 0 * * *",
    ],
)
def test_schedule_is_time_interval_or_cron_line(stream: Stream, pattern: str) -> None:
    assert schedule(stream, "s", pattern, Target="{s}.out") == 1
    assert subjects(stream) == {"s": 1}


@pytest.mark.parametrize(
    "pattern",
    [
        "x",
        "@at",
        "@at x",
        "@at 2099-01-01",
        "@every",
        "@every x",
        "@every 500ms",
        "@EVERY 1h",
        "@foo",
        "* * * * *",
        "60 * * * * *",
        "5-1 * * * * *",
        "0 0 0 * * 7",
        "0 0 0 31 FEB *",
        "0 0 24 * * *",
        "0 0 0 0 * *",
        "0 0 0 * 13 *",
        "*/0 * * * * *",
    ],
)
def test_unknown_schedule_pattern_is_refused(stream: Stream, pattern: str) -> None:
    assert schedule(stream, "s", pattern, Target="{s}.out") == PATTERN


def test_stream_without_schedules_refuses_them(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    disabled = Refusal(400, 10188, "message schedules is disabled")
    assert schedule(stream, "s", HOURLY, Target="{s}.out") == disabled
    assert schedule(stream, "s", "nonsense", Target="{s}.out") == disabled


@pytest.mark.parametrize(
    ("pattern", "headers", "expected"),
    [
        (HOURLY, {"Target": ""}, TARGET),
        (HOURLY, {"Target": "{s}.*"}, TARGET),
        (HOURLY, {"Target": "elsewhere"}, TARGET),
        (HOURLY, {"Target": "{s}.s"}, TARGET),
        (HOURLY, {"Target": "{s}.out", "TTL": "x"}, TTL),
        (HOURLY, {"Target": "{s}.out", "TTL": "0"}, TTL),
        (HOURLY, {"Target": "{s}.out", "TTL": "1h"}, 1),
        (HOURLY, {"Target": "{s}.out", "Source": "{s}.src"}, 1),
        (HOURLY, {"Target": "{s}.out", "Source": "{s}.*"}, SOURCE),
        (HOURLY, {"Target": "{s}.out", "Source": "elsewhere"}, SOURCE),
        (HOURLY, {"Target": "{s}.out", "Source": "{s}.out"}, SOURCE),
        (HOURLY, {"Target": "{s}.out", "Source": "{s}.s"}, SOURCE),
        (HOURLY, {"Target": "{s}.out", "Rollup": "sub"}, 1),
        (HOURLY, {"Target": "{s}.out", "Rollup": "all"}, ROLLUP),
        (CRON, {"Target": "{s}.out", "Time_Zone": "Europe/Berlin"}, 1),
        ("@daily", {"Target": "{s}.out", "Time_Zone": "America/New_York"}, 1),
        (CRON, {"Target": "{s}.out", "Time_Zone": "Nowhere/X"}, ZONE),
        (HOURLY, {"Target": "{s}.out", "Time_Zone": "Europe/Berlin"}, PATTERN),
        ("x", {"Target": "elsewhere"}, PATTERN),
    ],
)
def test_schedule_headers_are_checked(
    stream: Stream, pattern: str, headers: dict[str, str], expected: Refusal | int
) -> None:
    assert schedule(stream, "s", pattern, **headers) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Nats-Rollup": "sub"}, None),
        ({"Nats-Rollup": "all"}, ROLLUP),
        ({"Nats-TTL": "1h"}, None),
        ({"Nats-Schedule-Next": "purge"}, SCHEDULER),
        ({"Nats-Scheduler": "x"}, SCHEDULER),
    ],
)
def test_other_headers_of_schedule_are_checked(
    stream: Stream, headers: dict[str, str], expected: Refusal | None
) -> None:
    fields = {"Nats-Schedule": HOURLY, "Nats-Schedule-Target": stream.subject("out"), **headers}
    answer = stream.client.publish_ack(stream.subject("s"), b"", fields)
    assert (refusal(answer) if "error" in answer else None) == expected


def test_new_schedule_of_subject_replaces_old_one(stream: Stream) -> None:
    for seq in (1, 2, 3):
        assert schedule(stream, "s", HOURLY, Target="{s}.out") == seq
    assert stream.sequences() == [3]
    assert stored(stream, "s")[0].endswith(b"Nats-Rollup: sub\r\n\r\n")


def test_allow_msg_schedules_implies_allow_rollup(jetstream: JetStream) -> None:
    assert jetstream.stream(allow_msg_schedules=True).config["allow_rollup_hdrs"] is True


# -- fired


def test_one_time_schedule_publishes_once_and_is_removed(stream: Stream) -> None:
    fields = {
        "Nats-Schedule": soon(),
        "Nats-Schedule-Target": stream.subject("out"),
        "Nats-Schedule-TTL": "1h",
        "Nats-TTL": "2h",
        "Nats-Msg-Id": "1",
        "Nats-Expected-Last-Subject-Sequence": "0",
        "Key": "kept",
    }
    stream.client.publish_ack(stream.subject("s"), b"body", fields)
    heard = stream.client.subscribe(stream.subject(">"))
    until(lambda: subjects(stream) == {"out": 1}, "it fired")
    scheduler = stream.subject("s").encode()
    assert stored(stream, "out") == (
        b"NATS/1.0\r\nKey: kept\r\nNats-Scheduler: %s\r\nNats-Schedule-Next: purge\r\n"
        b"Nats-TTL: 1h\r\n\r\n" % scheduler,
        b"body",
    )
    assert heard.waiting() == []


def test_past_time_fires_at_once(stream: Stream) -> None:
    assert schedule(stream, "s", "@at 2020-01-01T00:00:00Z", Target="{s}.out") == 1
    until(lambda: subjects(stream) == {"out": 1}, "it fired")


def test_interval_fires_repeatedly_and_reports_the_next_time(stream: Stream) -> None:
    schedule(stream, "s", "@every 1s", Target="{s}.out")
    until(lambda: subjects(stream).get("out", 0) >= 2, "it fired twice")
    assert subjects(stream)["s"] == 1
    header, payload = stored(stream, "out")
    assert payload == b"body"
    assert NEXT.search(header.decode())


def test_schedule_can_publish_the_last_message_of_another_subject(stream: Stream) -> None:
    stream.publish("src", b"first", Own="1")
    schedule(stream, "s", "@every 1s", Target="{s}.out", Source="{s}.src", Rollup="sub")
    stream.publish("src", b"latest", Own="2", Nats_TTL="1h")
    until(lambda: "out" in subjects(stream), "it fired")
    header, payload = stored(stream, "out")
    assert payload == b"latest"
    assert b"Own: 2\r\n" in header
    assert header.endswith(b"Nats-Rollup: sub\r\n\r\n")
    assert b"Nats-TTL" not in header


def test_schedule_is_cancelled_by_name(stream: Stream) -> None:
    schedule(stream, "s", HOURLY, Target="{s}.out")
    fields = {"Nats-Schedule-Next": "purge", "Nats-Scheduler": stream.subject("s")}
    stream.client.publish_ack(stream.subject("note"), b"", fields)
    assert subjects(stream) == {"note": 1}


def test_removed_schedule_does_not_fire(stream: Stream) -> None:
    schedule(stream, "s", soon(), Target="{s}.out")
    schedule(stream, "later", soon(), Target="{s}.out2")
    stream.remove(1)
    until(lambda: subjects(stream) == {"out2": 1}, "the later one fired")


def test_consumer_receives_scheduled_messages(stream: Stream) -> None:
    consumer = stream.consumer(ack_policy="explicit", filter_subject=stream.subject("out"))
    waiting = consumer.pull()
    schedule(stream, "s", soon(), Target="{s}.out")
    assert waiting.next().payload == b"body"
