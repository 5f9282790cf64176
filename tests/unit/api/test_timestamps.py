"""Times as text, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.timestamps import ZERO_TIME, TimeFault, format_time, parse_time

LAST_NS = 253_402_300_799_999_999_999


@given(st.integers(-62_135_596_799 * 10**9, LAST_NS).filter(bool))
def test_written_bytes_are_read_back(ns: int) -> None:
    assert parse_time(format_time(ns)) == ns


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, ZERO_TIME),
        (1, "1970-01-01T00:00:00.000000001Z"),
        (1_500_000_000, "1970-01-01T00:00:01.5Z"),
        (1_700_000_000_000_000_000, "2023-11-14T22:13:20Z"),
        (-62_135_596_799 * 10**9, "0001-01-01T00:00:01Z"),
    ],
)
def test_fraction_has_no_zeros_at_its_end(ns: int, text: str) -> None:
    assert format_time(ns) == text


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2020-01-01T02:00:00+02:00", "2020-01-01T00:00:00Z"),
        ("2019-12-31T22:30:00-01:30", "2020-01-01T00:00:00Z"),
        ("2020-01-01T0:00:00Z", "2020-01-01T00:00:00Z"),
        ("2020-01-01T00:00:00,25Z", "2020-01-01T00:00:00.25Z"),
        ("2020-01-01T00:00:00.1234567899Z", "2020-01-01T00:00:00.123456789Z"),
        ("0000-06-01T00:00:00Z", ZERO_TIME),
        ("0001-01-01T00:00:00Z", ZERO_TIME),
        ("9999-12-31T23:59:59-01:00", "9999-12-31T23:59:59Z"),
    ],
)
def test_other_spellings_are_taken(text: str, same: str) -> None:
    assert format_time(parse_time(text)) == same


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("x", 'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"'),
        ('"', 'parsing time "\\"" as "2006-01-02T15:04:05Z07:00": cannot parse "\\"" as "2006"'),
        ("2021-02-29T00:00:00Z", 'parsing time "2021-02-29T00:00:00Z": day out of range'),
        ("1900-02-29T00:00:00Z", 'parsing time "1900-02-29T00:00:00Z": day out of range'),
        ("2020-00-01T00:00:00Z", 'parsing time "2020-00-01T00:00:00Z": month out of range'),
        (
            "2020-01-01T00:00:00+01:61",
            'parsing time "2020-01-01T00:00:00+01:61": time zone offset minute out of range',
        ),
    ],
)
def test_fault_has_words_of_reference(text: str, fault: str) -> None:
    with pytest.raises(TimeFault) as caught:
        parse_time(text)
    assert str(caught.value) == fault


def test_leap_days_of_leap_years_exist() -> None:
    assert format_time(parse_time("2000-02-29T00:00:00Z")) == "2000-02-29T00:00:00Z"
