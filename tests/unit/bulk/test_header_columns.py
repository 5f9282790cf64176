"""Header blocks as columns are what the model makes of them, one by one."""

from __future__ import annotations

from array import array
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.headermaps import parse_headers
from penstock.bulk.header_columns import header_columns, without_sizes

names = st.sampled_from([b"A", b"B", b"Nats-Msg-Id", b"", b"\xff"]) | st.binary(max_size=3)
lines = st.tuples(names, st.sampled_from([b":", b": ", b"", b":\t "]), st.binary(max_size=5))
made = st.lists(lines, max_size=40).map(
    lambda those: b"NATS/1.0\r\n" + b"".join(b"%b%b%b\r\n" % one for one in those) + b"\r\n"
)
blocks = st.just(b"") | made | st.binary(max_size=20) | st.text("\r\n:a ").map(str.encode)


def numbers(data: bytes) -> list[int]:
    return array("i", data).tolist()


def texts(data: bytes, offsets: bytes) -> list[bytes]:
    ends = numbers(offsets)
    return [data[start:stop] for start, stop in pairwise(ends)]


def decoded(whole: list[bytes]) -> list[list[tuple[bytes, list[bytes]]] | None]:
    offsets = array("i", accumulate(map(len, whole), initial=0)).tobytes()
    found = header_columns(b"".join(whole), offsets)
    all_names = texts(found.names, found.name_offsets)
    all_values = texts(found.values, found.value_offsets)
    assert (found.name_count, found.value_count) == (len(all_names), len(all_values))
    starts, value_starts = numbers(found.starts), numbers(found.value_starts)
    return [
        [
            (all_names[at], all_values[value_starts[at] : value_starts[at + 1]])
            for at in range(starts[index], starts[index + 1])
        ]
        if found.valid[index // 8] >> index % 8 & 1
        else None
        for index in range(len(whole))
    ]


@given(st.lists(blocks, max_size=20))
def test_columns_match_model(whole: list[bytes]) -> None:
    assert decoded(whole) == [parse_headers(block) if block else None for block in whole]


def test_block_of_very_many_lines_takes_no_longer_for_each() -> None:
    block = b"NATS/1.0\r\n" + b"".join(b"N%d: v\r\nA: %d\r\n" % (n, n) for n in range(20_000))
    (found,) = decoded([block + b"\r\n"])
    assert found == parse_headers(block + b"\r\n")


def test_offsets_that_do_not_fit_are_refused() -> None:
    for offsets in ([], [1, 3], [0, 2], [0, 5, 3]):
        with pytest.raises(ValueError, match="offsets"):
            header_columns(b"abc", array("i", offsets).tobytes())


@given(st.lists(st.integers(-5, 2**31 - 1), max_size=8))
def test_no_offset_beyond_data_is_read(middle: list[int]) -> None:
    """First and last offsets may fit while one between them lies far behind the end."""
    offsets = [0, *middle, 3]
    if offsets == sorted(offsets):
        header_columns(b"abc", array("i", offsets).tobytes())
        return
    with pytest.raises(ValueError, match="offsets"):
        header_columns(b"abc", array("i", offsets).tobytes())


def test_sizes_are_taken_out_of_blocks_and_nothing_else_is() -> None:
    stored = [b"", b"NATS/1.0\r\nA: 1\r\n\r\n", b"NATS/1.0\r\nNats-Msg-Size: 3\r\nB:\r\n\r\n"]
    sent = [
        b"NATS/1.0\r\nNats-Msg-Size: 0\r\n\r\n",
        stored[1][:-2] + b"Nats-Msg-Size: 8192\r\n\r\n",
        stored[2][:-2] + b"Nats-Msg-Size: 77\r\n\r\n",
    ]
    offsets = array("i", accumulate(map(len, sent), initial=0)).tobytes()
    blocks, kept, sizes = without_sizes(b"".join(sent), offsets)
    assert texts(blocks, kept) == stored
    assert numbers(sizes) == [0, 8192, 77]


@given(st.lists(blocks, max_size=20))
def test_blocks_without_size_stay_as_they_are(whole: list[bytes]) -> None:
    plain = [one for one in whole if b"Nats-Msg-Size: " not in one]
    offsets = array("i", accumulate(map(len, plain), initial=0)).tobytes()
    kept, ends, sizes = without_sizes(b"".join(plain), offsets)
    assert texts(kept, ends) == plain
    assert numbers(sizes) == [0] * len(plain)


def test_sizes_need_offsets_that_fit() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        without_sizes(b"abc", array("i", [0, 2]).tobytes())
