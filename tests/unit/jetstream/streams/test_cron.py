"""Cron patterns: what is one, and when it comes next."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from penstock.jetstream.streams.cron import next_fire, parse_cron


def after(pattern: str, start: str, zone: str = "UTC") -> str | None:
    cron = parse_cron(pattern)
    assert cron is not None
    moment = datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone))
    found = next_fire(cron, moment)
    return None if found is None else found.isoformat()


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("* * * * * *", "2026-01-15T10:20:31+00:00"),
        ("*/15 * * * * *", "2026-01-15T10:20:45+00:00"),
        ("30 * * * * *", "2026-01-15T10:21:30+00:00"),
        ("0 20 10 * * *", "2026-01-16T10:20:00+00:00"),
        ("0 0 0 1 * *", "2026-02-01T00:00:00+00:00"),
        ("0 0 12 * * MON-fri", "2026-01-15T12:00:00+00:00"),
        ("0 0 9 * * sat,sun", "2026-01-17T09:00:00+00:00"),
        ("0 0 0 29 feb ?", "2028-02-29T00:00:00+00:00"),
        ("0 5/20 10 * * *", "2026-01-15T10:25:00+00:00"),
        ("0 0 0 1 1 0", "2026-01-18T00:00:00+00:00"),
        ("0 0 0 20 1 0", "2026-01-18T00:00:00+00:00"),
        ("59 59 23 31 12 *", "2026-12-31T23:59:59+00:00"),
        ("0 0 0 30 2 *", None),
    ],
)
def test_next_time_is_the_first_that_matches(pattern: str, expected: str | None) -> None:
    assert after(pattern, "2026-01-15T10:20:30") == expected


@pytest.mark.parametrize(
    "pattern",
    [
        "* * * * *",
        "* * * * * * *",
        "60 * * * * *",
        "* * 24 * * *",
        "* * * 0 * *",
        "* * * * 13 *",
        "* * * * * 7",
        "5-3 * * * * *",
        "1-2-3 * * * * *",
        "1/2/3 * * * * *",
        "*/0 * * * * *",
        "x * * * * *",
        "jan * * * * *",
        "-1 * * * * *",
        "1.5 * * * * *",
        "",
    ],
)
def test_invalid_pattern_is_not_taken_for_one(pattern: str) -> None:
    assert parse_cron(pattern) is None


def test_one_of_days_is_enough_only_if_both_are_narrowed() -> None:
    friday_or_first = "0 0 0 1 * FRI"
    assert after(friday_or_first, "2026-01-20T00:00:00") == "2026-01-23T00:00:00+00:00"
    both = "0 0 0 */1 * FRI"
    assert after(both, "2026-01-20T00:00:00") == "2026-01-23T00:00:00+00:00"
    assert after("0 0 0 1 * *", "2026-01-20T00:00:00") == "2026-02-01T00:00:00+00:00"


def test_hour_clocks_skip_has_no_times() -> None:
    at = after("0 30 2 * * *", "2026-03-28T12:00:00", "Europe/Berlin")
    assert at == "2026-03-30T02:30:00+02:00"


def test_hour_clocks_repeat_has_them_twice() -> None:
    first = after("0 30 2 * * *", "2026-10-24T12:00:00", "Europe/Berlin")
    assert first == "2026-10-25T02:30:00+02:00"
    cron = parse_cron("0 30 2 * * *")
    assert cron is not None
    moment = datetime.fromisoformat(first).astimezone(ZoneInfo("Europe/Berlin"))
    second = next_fire(cron, moment)
    assert second is not None
    assert second.isoformat() == "2026-10-25T02:30:00+01:00"


def test_zone_that_moves_by_half_hour_keeps_its_minutes() -> None:
    at = after("0 30 21 * * *", "2026-10-04T01:00:00", "Australia/Lord_Howe")
    assert at == "2026-10-04T21:30:00+11:00"
