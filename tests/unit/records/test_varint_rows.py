"""Rows of varints round trip, and truncated rows are distinguished from invalid ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records.varint import put_uvarint
from penstock.records.varint_rows import pack, unpack

ROWS = st.lists(st.integers(0, 2**64 - 1), max_size=8)


@given(ROWS, st.binary(max_size=3), st.binary(max_size=3))
def test_packed_messages_round_trip(row: list[int], before: bytes, behind: bytes) -> None:
    data = pack(*row)
    found = unpack(before + data + behind, len(before), len(row))
    assert found == (row, len(before) + len(data))


@given(ROWS)
def test_every_number_has_its_shortest_spelling(row: list[int]) -> None:
    out = bytearray()
    for number in row:
        put_uvarint(out, number)
    assert pack(*row) == bytes(out)


@given(ROWS.filter(bool))
def test_row_that_is_cut_off_may_still_come(row: list[int]) -> None:
    data = pack(*row)
    assert all(unpack(data[:stop], 0, len(row)) is None for stop in range(len(data)))


def test_number_of_more_than_64_bits_is_refused() -> None:
    assert unpack(b"\xff" * 9 + b"\x01", 0, 1) == ([2**64 - 1], 10)
    for bad in (b"\xff" * 9 + b"\x02", b"\xff" * 10, b"\x80" * 10):
        with pytest.raises(ValueError, match="64 bits"):
            unpack(bad, 0, 1)
    for number in (2**64, -1):
        with pytest.raises(OverflowError):
            pack(number)


def test_there_is_nothing_outside_bytes() -> None:
    assert unpack(b"abc", 3, 1) is None
    assert unpack(b"abc", 99, 1) is None
    with pytest.raises(ValueError, match="below 0"):
        unpack(b"abc", -1, 1)
    with pytest.raises(ValueError, match="too many"):
        pack(*range(9))
