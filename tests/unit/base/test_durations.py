"""Durations in the Go notation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.durations import DURATION_NS_MAX, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("0", 0),
        ("5s", 5_000_000_000),
        ("1h2m3s", 3_723_000_000_000),
        ("1.5s", 1_500_000_000),
        (".5m", 30_000_000_000),
        ("2.s", 2_000_000_000),
        ("-1.5h", -5_400_000_000_000),
        ("+10ms", 10_000_000),
        ("3us", 3_000),
        ("3µs", 3_000),
        ("7ns", 7),
        ("1s1s", 2_000_000_000),
        ("0.1ns", 0),
    ],
)
def test_duration_is_sum_of_its_parts(text: str, nanos: int) -> None:
    assert parse_duration(text) == nanos


@pytest.mark.parametrize("text", ["", "-", "5", "s", ".s", "5x", "2 m", "1..s", "9999999h"])
def test_duration_without_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="time: "):
        parse_duration(text)


@given(st.integers(min_value=-DURATION_NS_MAX, max_value=DURATION_NS_MAX))
def test_formatted_duration_reads_back_as_itself(nanos: int) -> None:
    assert parse_duration(format_duration(nanos)) == nanos


@pytest.mark.parametrize(
    ("nanos", "text"),
    [
        (0, "0s"),
        (120_000_000_000, "2m0s"),
        (1_500_000_000, "1.5s"),
        (250_000_000, "250ms"),
        (3_600_000_000_000, "1h0m0s"),
        (-2_000_000_000, "-2s"),
    ],
)
def test_duration_is_written_as_go_writes_it(nanos: int, text: str) -> None:
    assert format_duration(nanos) == text
