"""Journal records and turns: equal to the naive model, bound to their place, found after damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.journal import record
from penstock.records.journal_codec import (
    HEAD_BYTES,
    KIND_CUT,
    KIND_ENTRY,
    KIND_FLOOR,
    KIND_FORGET,
    KIND_STATE,
    KIND_TURN,
    PAGE_BYTES,
    RECORD_BYTES_MIN,
    SegmentKeys,
    TurnBuffer,
    find_turn,
    length_at,
    read_turn_head,
    record_at,
    record_bytes,
    scan_records,
)

INCARNATION, SEGMENT, PLACE = 11, 5, 3 * PAGE_BYTES
KEYS = SegmentKeys(INCARNATION, SEGMENT)
PAYLOADS = [b"", b"x", b"seven b", b"eight by", b"long " * 300]
U64 = st.integers(0, 2**63 - 1)


def turn_of(payloads: list[bytes], *, turn: int = 9, durable: int = 7) -> bytes:
    buffer = TurnBuffer(KEYS, PLACE, 1 << 20)
    for index, payload in enumerate(payloads, 1):
        assert buffer.put(KIND_ENTRY, 3, index, 2, payload) > 0
    return bytes(buffer.close(turn, durable, 0, continues=False))


def records_of(data: bytes, payloads: list[bytes]) -> tuple[list[bytes], int]:
    stop = HEAD_BYTES + sum(record_bytes(len(payload)) for payload in payloads)
    found, holes = scan_records(KEYS, data, HEAD_BYTES, stop, PLACE)
    return [data[start : start + n] for *_, start, n in found], holes


@given(
    kind=st.integers(KIND_ENTRY, 255),
    group=st.integers(0, 2**64 - 1),
    index=st.integers(1, 2**63 - 1),
    term=U64,
    payload=st.binary(max_size=200),
)
def test_record_is_what_the_model_writes(
    kind: int, group: int, index: int, term: int, payload: bytes
) -> None:
    buffer = TurnBuffer(KEYS, PLACE, 1 << 20)
    place = buffer.put(kind, group, index, term, payload)
    expected = record(INCARNATION, SEGMENT, place, kind, group, index, term, payload)
    data = bytes(buffer.data)[HEAD_BYTES : buffer.used]
    assert data == expected
    assert place == PLACE + HEAD_BYTES
    assert len(data) == record_bytes(len(payload)) == length_at(KEYS, data, place)
    found = (kind, group, index, term, RECORD_BYTES_MIN - 8, len(payload), len(data))
    assert record_at(KEYS, data, 0, place) == found


def test_turn_is_read_as_it_was_written() -> None:
    data = turn_of(PAYLOADS)
    assert len(data) % PAGE_BYTES == 0
    used = HEAD_BYTES + sum(record_bytes(len(payload)) for payload in PAYLOADS)
    assert read_turn_head(KEYS, data, 0, PLACE) == (9, 7, used, used, len(PAYLOADS), False)
    assert records_of(data, PAYLOADS) == (PAYLOADS, 0)


def test_head_of_encrypted_turn_has_both_lengths() -> None:
    buffer = TurnBuffer(KEYS, PLACE, 1 << 20)
    buffer.put(KIND_STATE, 1, 0, 0, b"state")
    data = buffer.close(4, 3, 4321, continues=True)
    assert read_turn_head(KEYS, data, 0, PLACE) == (4, 3, buffer.used, 4321, 1, True)


def test_turn_takes_no_more_than_its_capacity() -> None:
    room = HEAD_BYTES + record_bytes(100) + record_bytes(20)
    buffer = TurnBuffer(KEYS, PLACE, room)
    assert buffer.put(KIND_ENTRY, 1, 1, 0, bytes(100)) > 0
    assert buffer.put(KIND_ENTRY, 1, 2, 0, bytes(40)) == -1
    assert buffer.put(KIND_ENTRY, 1, 2, 0, bytes(20)) > 0
    assert buffer.put(KIND_ENTRY, 1, 3, 0, b"") == -1
    assert (buffer.used, buffer.records) == (room, 2)
    assert TurnBuffer(KEYS, PLACE, 10).put(KIND_ENTRY, 1, 1, 0, b"") == -1


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        (SegmentKeys(INCARNATION + 1, SEGMENT), PLACE),
        (SegmentKeys(INCARNATION, SEGMENT + 1), PLACE),
        (KEYS, PLACE + PAGE_BYTES),
    ],
    ids=["incarnation", "segment", "place"],
)
def test_records_of_another_incarnation_segment_or_place_are_not_valid(
    keys: SegmentKeys, place: int
) -> None:
    data = turn_of(PAYLOADS)
    assert read_turn_head(keys, data, 0, place) is None
    assert scan_records(keys, data, HEAD_BYTES, len(data), place) == ([], 1)
    assert record_at(keys, data, HEAD_BYTES, place + HEAD_BYTES) is None
    assert length_at(keys, data[HEAD_BYTES:], place + HEAD_BYTES) == 0


def test_every_flipped_bit_of_record_is_seen_and_costs_that_record_only() -> None:
    payloads = [b"one", b"two", b"three"]
    data = turn_of(payloads)
    first = HEAD_BYTES + record_bytes(3)
    for bit in range(first * 8, (first + record_bytes(3)) * 8):
        harmed = bytearray(data)
        harmed[bit // 8] ^= 1 << bit % 8
        assert records_of(bytes(harmed), payloads) == ([b"one", b"three"], 1), bit


def test_every_flipped_bit_of_head_is_seen() -> None:
    data = turn_of([b"one"])
    for bit in range(HEAD_BYTES * 8):
        harmed = bytearray(data)
        harmed[bit // 8] ^= 1 << bit % 8
        assert read_turn_head(KEYS, harmed, 0, PLACE) is None, bit


def test_heads_are_found_page_by_page() -> None:
    keys = SegmentKeys(INCARNATION, SEGMENT)
    turns = {}
    for place in (PAGE_BYTES, 4 * PAGE_BYTES):
        buffer = TurnBuffer(keys, place, 1 << 20)
        turns[place] = bytes(buffer.close(place, 0, 0, continues=False))
    data = bytearray(6 * PAGE_BYTES)
    for place, turn in turns.items():
        data[place : place + len(turn)] = turn
    assert find_turn(keys, data, 0) == PAGE_BYTES
    assert find_turn(keys, data, PAGE_BYTES + 1) == 4 * PAGE_BYTES
    assert find_turn(keys, data, 5 * PAGE_BYTES) == len(data)
    assert find_turn(keys, b"", 0) == 0


@pytest.mark.parametrize(
    ("kind", "index", "payload", "possible"),
    [
        (KIND_TURN, 1, bytes(24), True),
        (KIND_TURN, 1, bytes(16), False),
        (KIND_STATE, 0, b"x", True),
        (KIND_CUT, 0, b"", False),
        (KIND_CUT, 1, b"x", False),
        (KIND_FLOOR, 0, b"", True),
        (KIND_FORGET, 0, b"x", False),
        (KIND_FORGET + 1, 1, b"", False),
        (KIND_ENTRY, 0, b"", False),
        (KIND_ENTRY, 2**63, b"", False),
        (0, 1, b"", False),
    ],
)
def test_record_that_no_journal_writes_is_not_valid(
    kind: int, index: int, payload: bytes, possible: bool
) -> None:
    data = record(INCARNATION, SEGMENT, PLACE, kind, 0, index, 0, payload)
    assert (record_at(KEYS, data, 0, PLACE) is not None) == possible


@given(st.binary(max_size=300), st.integers(0, 40))
def test_arbitrary_bytes_are_no_records(noise: bytes, cut: int) -> None:
    data = (b"PJ" + noise)[: max(0, 300 - cut)]
    assert scan_records(KEYS, data, 0, len(data), PLACE)[0] == []
    assert record_at(KEYS, data, 0, PLACE) is None
    assert read_turn_head(KEYS, data, 0, PLACE) is None


def test_cut_off_record_is_not_valid() -> None:
    data = record(INCARNATION, SEGMENT, PLACE, KIND_ENTRY, 1, 1, 0, b"payload")
    for n in range(len(data)):
        assert record_at(KEYS, data[:n], 0, PLACE) is None
        assert scan_records(KEYS, data, 0, n, PLACE)[0] == []
    with pytest.raises(ValueError, match="end"):
        scan_records(KEYS, data, 0, len(data) + 1, PLACE)
