"""Sizes and addresses."""

from __future__ import annotations

import re

import pytest

from penstock.server.config.quantities import (
    parse_integer,
    parse_port,
    seconds_to_ns,
    split_host_port,
)


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
