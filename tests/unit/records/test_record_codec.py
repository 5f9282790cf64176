"""The record framing: what goes in comes out, and damage never passes as valid."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.sequences import SEQ_MAX
from penstock.records import record_codec
from penstock.records.record_codec import RecordKeys

KEYS = RecordKeys(7, 3)
MESSAGE, SKIP = 1, 2


def one(seq: int = 1, payload: bytes = b"payload") -> bytes:
    return record_codec.encode_message(KEYS, seq, 5, b"foo.bar", b"NATS/1.0\r\n\r\n", payload)


@given(
    seq=st.integers(1, SEQ_MAX),
    ts=st.integers(-(2**63), 2**63 - 1),
    parts=st.tuples(st.binary(max_size=80), st.binary(max_size=80), st.binary(max_size=300)),
    deadline=st.integers(0, 2**63 - 1),
)
def test_message_comes_back_as_it_went_in(
    seq: int, ts: int, parts: tuple[bytes, bytes, bytes], deadline: int
) -> None:
    record = record_codec.encode_message(KEYS, seq, ts, *parts, deadline_ns=deadline)
    assert len(record) % 8 == 0
    ((_, length, verdict, kind, _, found_seq, found_ts, found),) = record_codec.scan(KEYS, record)
    assert (length, verdict, kind) == (len(record), "valid", MESSAGE)
    assert (found_seq, found_ts, found) == (seq, ts, (*parts, deadline))


def test_records_follow_each_other_until_blank_space() -> None:
    data = one(1) + record_codec.encode_range(KEYS, SKIP, 2, 9, 77) + one(10) + bytes(100)
    found = record_codec.scan(KEYS, data)
    assert [(entry[2], entry[5]) for entry in found] == [
        ("valid", 1),
        ("valid", 2),
        ("valid", 10),
        ("blank", 0),
    ]


def test_every_flipped_bit_is_noticed_and_costs_one_record() -> None:
    record = one(2)
    data = one(1) + record + one(3)
    start = len(one(1))
    for bit in range(8 * len(record)):
        damaged = bytearray(data)
        damaged[start + bit // 8] ^= 1 << bit % 8
        valid = [
            entry[5] for entry in record_codec.scan(KEYS, bytes(damaged)) if entry[2] == "valid"
        ]
        assert valid == [1, 3], f"bit {bit}"


def test_every_truncation_is_noticed() -> None:
    record = one(2)
    data = one(1) + record
    for kept in range(len(one(1)), len(data)):
        valid = [entry[5] for entry in record_codec.scan(KEYS, data[:kept]) if entry[2] == "valid"]
        assert valid == [1], f"cut at {kept}"


@pytest.mark.parametrize("other", [RecordKeys(8, 3), RecordKeys(7, 4)])
def test_record_of_another_stream_or_block_is_not_taken(other: RecordKeys) -> None:
    assert all(entry[2] != "valid" for entry in record_codec.scan(other, one()))


def test_lengths_that_do_not_fit_are_refused_before_they_are_used() -> None:
    record = bytearray(one())
    struct.pack_into("<I", record, 32, 0xFFFFFFFF)
    struct.pack_into(
        "<I", record, 36, record_codec.checksum(bytes(record[:36]), _header_seed(7, 3)) & 0xFFFFFFFF
    )
    ((_, _, verdict, *_rest),) = record_codec.scan(KEYS, bytes(record))
    assert verdict == "bad header"


def _header_seed(incarnation: int, block: int) -> int:
    return record_codec.checksum(struct.pack("<QQ", incarnation, block))


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
    ],
)
def test_checksum_is_published_one(data: bytes, seed: int, expected: int) -> None:
    assert record_codec.checksum(data, seed) == expected


def test_subject_too_long_for_its_field_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        record_codec.encode_message(KEYS, 1, 1, b"x" * 65536, b"", b"")


@given(seq=st.one_of(st.just(0), st.integers(SEQ_MAX + 1, 2**64 - 1)))
def test_message_of_sequence_that_cannot_be_is_damage(seq: int) -> None:
    data = one(1) + record_codec.encode_message(KEYS, seq, 5, b"foo", b"", b"") + one(2)
    valid = [entry[5] for entry in record_codec.scan(KEYS, data) if entry[2] == "valid"]
    assert valid == [1, 2]


@pytest.mark.parametrize(
    ("kind", "first", "last", "written"),
    [
        (2, 0, 5, 1),
        (2, 5, 3, 1),
        (2, 1, SEQ_MAX + 1, 1),
        (3, SEQ_MAX + 2, SEQ_MAX + 2, 1),
        (4, 0, 0, 1),
        (4, SEQ_MAX + 2, 1, 1),
        (5, 1, 2**64 - 1, 1),
        (6, 2**64 - 1, 1, 1),
        (6, 1, 2**64 - 1, 1),
        (6, 1, 1, -1),
    ],
)
def test_range_that_cannot_be_is_damage(kind: int, first: int, last: int, written: int) -> None:
    data = one(1) + record_codec.encode_range(KEYS, kind, first, last, written) + one(2)
    valid = [entry[5] for entry in record_codec.scan(KEYS, data) if entry[2] == "valid"]
    assert valid == [1, 2]
