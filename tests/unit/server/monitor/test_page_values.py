"""The forms in which monitoring writes times, durations, numbers and text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.monitor import page_values

SECOND = 1_000_000_000
MINUTE, HOUR, DAY, YEAR = 60 * SECOND, 3600 * SECOND, 86400 * SECOND, 365 * 86400 * SECOND


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (-SECOND, "0s"),
        (SECOND - 1, "0s"),
        (59 * SECOND, "59s"),
        (MINUTE, "1m0s"),
        (HOUR + 2 * MINUTE + 3 * SECOND, "1h2m3s"),
        (DAY, "1d0h0m0s"),
        (YEAR + 2 * DAY + 3 * HOUR + 4 * MINUTE + 5 * SECOND, "1y2d3h4m5s"),
    ],
)
def test_uptime_starts_with_its_largest_unit_and_names_all_below(ns: int, text: str) -> None:
    assert page_values.uptime(ns) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (999, "999ns"),
        (1_000, "1µs"),
        (1_500, "1.5µs"),
        (752_000, "752µs"),
        (5_138_117, "5.138117ms"),
        (1_100_000_000, "1.1s"),
        (61 * SECOND, "1m1s"),
        (HOUR, "1h0m0s"),
        (25 * HOUR + 1, "25h0m0.000000001s"),
    ],
)
def test_duration_is_written_as_go_writes_it(ns: int, text: str) -> None:
    assert page_values.duration(ns) == text


def test_round_trip_below_millisecond_is_reported_in_whole_microseconds() -> None:
    assert page_values.round_trip(282_572) == "282µs"
    assert page_values.round_trip(5_138_117) == "5.138117ms"
    assert page_values.round_trip(-5) == "0s"


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_500_000_000, "1970-01-01T00:00:01.5Z"),
        (1_794_789_785_559_292_300, "2026-11-16T00:43:05.5592923Z"),
        (1_794_789_785_000_000_001, "2026-11-16T00:43:05.000000001Z"),
    ],
)
def test_timestamp_keeps_nanoseconds_and_no_trailing_zeros(ns: int, text: str) -> None:
    assert page_values.timestamp(ns) == text


def test_whole_float_is_written_without_point() -> None:
    assert page_values.compact([page_values.number(2.0), page_values.number(0.5)]) == b"[2,0.5]"


@given(st.text(st.characters(codec="utf-8")))
def test_text_in_json_holds_no_character_that_html_would_read(text: str) -> None:
    written = page_values.compact({"name": text})
    assert not set(b"<>&") & set(written)
    assert json.loads(written) == {"name": text}


@given(st.binary())
def test_bytes_that_are_no_text_can_still_be_reported(raw: bytes) -> None:
    text = raw.decode("utf-8", "surrogateescape")
    assert json.loads(page_values.compact(page_values.clean(text))) == raw.decode(
        "utf-8", "replace"
    )
