"""The timeline of a profile shows idle time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.spark.jobs.profile_job import Moment, with_idle

START = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def moments(*hours: int) -> list[Moment]:
    return [Moment(START + HOUR * n, 5, 50, 2) for n in hours]


def test_intervals_without_messages_are_zero() -> None:
    found = with_idle(moments(0, 1, 4))
    assert [(one.start, one.messages) for one in found] == [
        (START, 5), (START + HOUR, 5), (START + 2 * HOUR, 0), (START + 3 * HOUR, 0),
        (START + 4 * HOUR, 5),
    ]  # fmt: skip


def test_pause_of_very_many_intervals_has_beginning_and_end() -> None:
    found = with_idle(moments(0, 1, 1_000_000))
    assert [one.messages for one in found] == [5, 5, 0, 0, 5]
    assert found[3].start == START + HOUR * 999_999


def test_one_moment_and_none_stay() -> None:
    assert with_idle(moments(3)) == moments(3)
    assert with_idle([]) == []
