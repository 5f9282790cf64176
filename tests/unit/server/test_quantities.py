"""Durations, sizes and addresses."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.quantities import (
    INT64_MAX,
    format_duration,
    parse_duration,
    parse_integer,
    parse_port,
    seconds_to_ns,
    split_host_port,
)


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
def test_duration_is_the_sum_of_its_parts(text: str, nanos: int) -> None:
    assert parse_duration(text) == nanos


@pytest.mark.parametrize("text", ["", "-", "5", "s", ".s", "5x", "2 m", "1..s", "9999999h"])
def test_duration_without_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="time: "):
        parse_duration(text)


@given(st.integers(min_value=-INT64_MAX, max_value=INT64_MAX))
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


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("-3", -3),
        ("1k", 1_000),
        ("1K", 1_000),
        ("1kb", 1_024),
        ("1Ki", 1_024),
        ("1KiB", 1_024),
        ("64MB", 64 * 1024 * 1024),
        ("2g", 2_000_000_000),
        ("1e", 10**18),
        ("1EiB", 2**60),
        ("x", None),
        ("1q", None),
        ("1kbb", None),
        ("1.5k", None),
    ],
)
def test_integer_suffix_is_decimal_or_binary(text: str, number: int | None) -> None:
    assert parse_integer(text) == number


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "10e"])
def test_integer_beyond_64_bits_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="out of the range"):
        parse_integer(text)


def test_address_is_host_and_port() -> None:
    assert split_host_port("127.0.0.1:4222") == ("127.0.0.1", "4222")
    assert split_host_port("[::1]:-1") == ("::1", "-1")
    assert split_host_port(":80") == ("", "80")


@pytest.mark.parametrize("address", ["host", "::1:80", "[::1]", "[::1]80", "[a[b]:1", "a]:1"])
def test_address_without_one_clear_port_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=re.escape(address)):
        split_host_port(address)


def test_port_is_ascii_digits() -> None:
    assert parse_port("-1") == -1
    with pytest.raises(ValueError, match="4_222"):
        parse_port("4_222")


def test_seconds_become_whole_nanoseconds() -> None:
    assert seconds_to_ns(0.001) == 1_000_000
    assert seconds_to_ns(2) == 2_000_000_000
