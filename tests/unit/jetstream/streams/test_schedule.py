"""Schedules: messages that make others, at their time."""

from __future__ import annotations

import pytest

from penstock.api import refusals
from penstock.api.timestamps import format_time
from support.stream_run import NEW_YEAR, SECOND, Run, ack

TARGET = "Nats-Schedule-Target"
TTL_INVALID = refusals.MESSAGE_SCHEDULES_TTL_INVALID


def scheduling(**fields: object) -> Run:
    return Run(allow_msg_schedules=True, allow_rollup_hdrs=True, **fields)


def plan(pattern: str, target: str = "s.t", **more: str) -> dict[str, str]:
    header = {"Nats-Schedule": pattern, TARGET: target}
    return header | {f"Nats-{key.replace('_', '-')}": value for key, value in more.items()}


def at(seconds: float) -> str:
    return f"@at {format_time(NEW_YEAR + round(seconds * SECOND))}"


def made(run: Run, target: str = "s.t") -> list[bytes]:
    """The headers of the messages of a target."""
    return [each.header for each in run.messages().values() if each.subject == target]


def stated(scheduler: str, following: str, extra: str = "") -> bytes:
    lines = f"Nats-Scheduler: {scheduler}\r\nNats-Schedule-Next: {following}\r\n{extra}"
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def test_message_is_published_at_its_time_and_its_schedule_goes() -> None:
    run = scheduling()
    assert run.publish("s.a", b"body", plan(at(2.5))) == ack(1)
    assert run.stream.next_deadline_ns() == NEW_YEAR + 2_500_000_000
    assert run.tick(2.499) == []
    run.tick(0.001)
    ((seq, record),) = run.messages().items()
    assert (seq, record.subject, record.payload) == (2, "s.t", b"body")
    assert record.header == stated("s.a", "purge")
    assert run.stream.next_deadline_ns() is None


def test_scheduled_message_keeps_headers_except_those_for_storing() -> None:
    run = scheduling(allow_msg_ttl=True)
    header = plan(at(1), Msg_Id="x", TTL="100", Schedule_TTL="5s", Schedule_Rollup="sub")
    run.publish("s.a", b"", {"X": "y", "Nats-Expected-Stream": "S", **header})
    run.tick(1)
    extra = "Nats-TTL: 5s\r\nNats-Rollup: sub\r\n"
    assert made(run) == [stated("s.a", "purge", extra).replace(b"1.0", b"1.0\r\nX: y", 1)]


def test_repeated_schedule_reports_when_it_fires_next() -> None:
    run = scheduling()
    run.publish("s.a", b"", plan("@every 5s"))
    for _ in range(3):
        run.tick(5)
    assert made(run) == [stated("s.a", f"2026-01-01T00:00:{second}Z") for second in (10, 15, 20)]
    assert run.seqs() == [1, 2, 3, 4]


def test_cron_schedule_keeps_its_zone() -> None:
    run = scheduling()
    run.publish("s.a", b"", plan("0 0 3 * * *", Schedule_Time_Zone="Europe/Berlin"))
    run.tick(2 * 3600 - 1)
    assert made(run) == []
    run.tick(1)
    assert made(run) == [stated("s.a", "2026-01-02T03:00:00+01:00")]


def test_schedule_missed_several_times_fires_once() -> None:
    run = scheduling()
    run.publish("s.a", b"", plan("@every 1s"))
    run.tick(100)
    assert made(run) == [stated("s.a", "2026-01-01T00:01:41Z")]
    assert run.tick() == []


def test_one_schedule_for_each_subject() -> None:
    run = scheduling()
    run.publish("s.a", b"old", plan(at(1)))
    run.publish("s.a", b"new", plan(at(2)))
    assert run.seqs() == [2]
    run.tick(1)
    assert made(run) == []
    run.tick(1)
    assert [record.payload for record in run.messages().values()] == [b"new"]


def test_ordinary_message_ends_schedule_of_its_subject() -> None:
    run = scheduling()
    run.publish("s.a", b"", plan(at(1)))
    run.publish("s.a", b"")
    run.tick(10)
    assert made(run) == []


def test_schedule_that_was_removed_does_not_fire() -> None:
    run = scheduling()
    run.publish("s.a", b"", plan(at(1)))
    run.store.remove(1)
    run.tick(10)
    assert made(run) == []
    assert run.stream.next_deadline_ns() is None


def test_client_ends_schedule_by_its_name() -> None:
    run = scheduling()
    run.publish("s.a", b"", plan("@every 1s"))
    run.publish("s.plain")
    ending = {"Nats-Schedule-Next": "purge", "Nats-Scheduler": "s.a"}
    assert run.publish("s.t", b"", ending) == ack(3)
    assert run.seqs() == [2, 3]
    run.tick(10)
    assert run.seqs() == [2, 3]


def test_source_gives_body_if_it_has_one() -> None:
    run = scheduling()
    run.publish("s.a", b"own", plan("@every 1s", Schedule_Source="s.src"))
    run.tick(1)
    run.publish("s.src", b"lent", {"Y": "z"})
    run.tick(1)
    bodies = [each.payload for each in run.messages().values() if each.subject == "s.t"]
    assert bodies == [b"own", b"lent"]
    assert b"Y: z" in made(run)[1]


def test_schedule_retries_after_its_message_is_refused() -> None:
    room = [True]

    def may_store(size: int) -> refusals.ApiError | None:
        return None if room[0] else refusals.INSUFFICIENT_RESOURCES

    run = Run({"may_store": may_store}, allow_msg_schedules=True, allow_rollup_hdrs=True)
    run.publish("s.a", b"", plan(at(1)))
    room[0] = False
    run.tick(1)
    room[0] = True
    assert run.tick(0.5) == []
    run.tick(0.5)
    assert made(run) == [stated("s.a", "purge")]


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        (plan("soon"), refusals.MESSAGE_SCHEDULES_PATTERN_INVALID),
        (plan("@every 999ms"), refusals.MESSAGE_SCHEDULES_PATTERN_INVALID),
        (plan("@at tomorrow"), refusals.MESSAGE_SCHEDULES_PATTERN_INVALID),
        (plan("0 0 0 30 2 *"), refusals.MESSAGE_SCHEDULES_PATTERN_INVALID),
        (
            plan("@every 1s", Schedule_Time_Zone="UTC"),
            refusals.MESSAGE_SCHEDULES_PATTERN_INVALID,
        ),
        (
            plan("@daily", Schedule_Time_Zone="No/Where"),
            refusals.MESSAGE_SCHEDULES_TIME_ZONE_INVALID,
        ),
        (plan("@daily", Schedule_Time_Zone=""), refusals.MESSAGE_SCHEDULES_TIME_ZONE_INVALID),
        (
            plan("@daily", Schedule_Time_Zone="../../etc/passwd"),
            refusals.MESSAGE_SCHEDULES_TIME_ZONE_INVALID,
        ),
        (plan("@daily", Schedule_TTL="soon"), TTL_INVALID),
        (plan("@daily", Schedule_TTL="5"), refusals.MESSAGE_TTL_DISABLED),
        (plan("@daily", Schedule_Rollup="all"), refusals.MESSAGE_SCHEDULES_ROLLUP_INVALID),
        (plan("@daily", Rollup="all"), refusals.MESSAGE_SCHEDULES_ROLLUP_INVALID),
        ({"Nats-Schedule": "@daily"}, refusals.MESSAGE_SCHEDULES_TARGET_INVALID),
        (plan("@daily", "s.a"), refusals.MESSAGE_SCHEDULES_TARGET_INVALID),
        (plan("@daily", "s.*"), refusals.MESSAGE_SCHEDULES_TARGET_INVALID),
        (plan("@daily", "elsewhere"), refusals.MESSAGE_SCHEDULES_TARGET_INVALID),
        (plan("@daily", Schedule_Source="s.t"), refusals.MESSAGE_SCHEDULES_SOURCE_INVALID),
        (plan("@daily", Schedule_Source="elsewhere"), refusals.MESSAGE_SCHEDULES_SOURCE_INVALID),
        ({"Nats-Scheduler": "s.b"}, refusals.MESSAGE_SCHEDULES_SCHEDULER_INVALID),
        ({"Nats-Schedule-Next": "purge"}, refusals.MESSAGE_SCHEDULES_SCHEDULER_INVALID),
        (
            {"Nats-Schedule-Next": "2030-01-01T00:00:00Z", "Nats-Scheduler": "s.b"},
            refusals.MESSAGE_SCHEDULES_SCHEDULER_INVALID,
        ),
        (
            {"Nats-Schedule-Next": "purge", "Nats-Scheduler": "s.a"},
            refusals.MESSAGE_SCHEDULES_SCHEDULER_INVALID,
        ),
        (
            {"Nats-Schedule-Next": "purge", "Nats-Scheduler": "s.plain"},
            refusals.MESSAGE_SCHEDULES_SCHEDULER_INVALID,
        ),
    ],
)
def test_unschedulable_message_is_refused(header: dict[str, str], fault: refusals.ApiError) -> None:
    run = scheduling()
    run.publish("s.plain")
    assert run.refusal("s.a", b"", header) == fault


def test_schedules_must_be_allowed() -> None:
    for header in (plan("@daily"), plan("nonsense")):
        assert Run().refusal("s.a", b"", header) == refusals.MESSAGE_SCHEDULES_DISABLED


# -- after a restart


def test_schedule_survives_restart() -> None:
    run = scheduling()
    run.publish("s.a", b"", plan(at(10)))
    run.open()
    run.tick(10)
    assert made(run) == [stated("s.a", "purge")]


def test_time_that_was_missed_meanwhile_fires_once_afterwards() -> None:
    run = scheduling()
    run.publish("s.a", b"", plan("@every 10s"))
    run.tick(10)
    run.now_ns += 65 * SECOND
    run.open()
    run.tick()
    assert made(run) == [
        stated("s.a", "2026-01-01T00:00:20Z"),
        stated("s.a", "2026-01-01T00:01:25Z"),
    ]
    assert run.tick(5) == []


def test_repeated_schedule_continues_where_its_last_copy_reports() -> None:
    run = scheduling()
    run.publish("s.a", b"", plan("@every 10s"))
    run.tick(10)
    run.publish("s.t", b"somebody else's")
    run.open()
    assert run.stream.next_deadline_ns() == NEW_YEAR + 20 * SECOND
