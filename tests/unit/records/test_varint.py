"""Numbers of any length: one spelling each, and no other is taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records.varint import put_uvarint, read_uvarint


@given(st.integers(0, 2**64 - 1), st.binary(max_size=4), st.binary(max_size=4))
def test_number_is_read_back_between_other_bytes(value: int, before: bytes, after: bytes) -> None:
    out = bytearray(before)
    put_uvarint(out, value)
    assert len(out) - len(before) == max(1, -(-value.bit_length() // 7))
    assert read_uvarint(bytes(out) + after, len(before)) == (value, len(out))


@given(st.binary(max_size=12))
def test_bytes_are_refused_or_are_only_spelling(data: bytes) -> None:
    try:
        value, end = read_uvarint(data, 0)
    except ValueError:
        return
    out = bytearray()
    put_uvarint(out, value)
    assert bytes(out) == data[:end]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"\x80\x00",
        b"\xff\x80\x00",
        b"\xff" * 9 + b"\x02",
        b"\xff" * 10 + b"\x01",
    ],
)
def test_cut_off_long_and_big_numbers_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="number before offset"):
        read_uvarint(data, 0)
