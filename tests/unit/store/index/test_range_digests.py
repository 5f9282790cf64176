"""Digests of ranges: equal for equal messages, in any order of changes, different otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records.record_codec import RecordKeys, checksum, encode_message
from penstock.store.index.range_digests import (
    RANGE_SEQS,
    RangeDigests,
    add_image,
    differing,
    message_digest,
)

HEAD = 64
MIX = 0x9E3779B97F4A7C15
FIRST = RANGE_SEQS - 3
"""The messages of these tests lie in two ranges."""


@dataclass(frozen=True)
class Kept:
    """A message."""

    seq: int
    ts_ns: int = 7
    subject: bytes = b"a.b"
    header: bytes = b"NATS/1.0\r\n\r\n"
    payload: bytes = b"payload"

    @property
    def digest(self) -> int:
        return message_digest(self.seq, self.ts_ns, self.subject, self.header, self.payload)


def mixed(value: int) -> int:
    value %= 2**64
    return (value << 29 | value >> 35) * MIX % 2**64


def naive(one: Kept) -> int:
    seed = mixed(mixed(one.seq * MIX) ^ one.ts_ns % 2**64)
    seed = mixed(seed ^ (len(one.subject) << 32 | len(one.header)))
    return checksum(one.subject + one.header + one.payload, seed)


def digests_of(messages: list[Kept]) -> RangeDigests:
    digests = RangeDigests()
    for one in messages:
        digests.add(one.seq, one.digest)
    return digests


def image_of(messages: list[Kept], keys: RecordKeys) -> bytes:
    records = [
        encode_message(keys, one.seq, one.ts_ns, one.subject, one.header, one.payload)
        for one in messages
    ]
    return bytes(HEAD) + b"".join(records)


MESSAGES = [Kept(FIRST + n, n, b"s.%d" % n, payload=b"x" * n) for n in range(8)]


@given(
    st.builds(
        Kept,
        st.integers(1, 2**63 - 1),
        st.integers(-(2**63), 2**63 - 1),
        st.binary(max_size=9),
        st.binary(max_size=9),
        st.binary(max_size=99),
    )
)
def test_digest_is_that_of_the_model(one: Kept) -> None:
    assert one.digest == naive(one)


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 6},
        {"ts_ns": 8},
        {"subject": b"a.c"},
        {"header": b""},
        {"payload": b"Payload"},
        {"subject": b"a.bN", "header": b"ATS/1.0\r\n\r\n"},
        {"header": b"NATS/1.0\r\n\r\npay", "payload": b"load"},
    ],
    ids=lambda change: "-".join(change),
)
def test_every_part_counts_and_so_does_its_end(change: dict[str, Any]) -> None:
    one = Kept(5)
    assert replace(one, **change).digest != one.digest


@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from([1, 5, 4095, 4096, 9000, 10**12])), max_size=40
    )
)
def test_sums_follow_additions_and_removals_in_any_order(steps: list[tuple[bool, int]]) -> None:
    digests, live = RangeDigests(), dict[int, int]()
    for adds, seq in steps:
        if adds and seq not in live:
            live[seq] = Kept(seq).digest
            digests.add(seq, live[seq])
        elif not adds and seq in live:
            digests.remove(seq, live.pop(seq))
    for number in {seq // RANGE_SEQS for _, seq in steps}:
        values = [value for seq, value in live.items() if seq // RANGE_SEQS == number]
        assert digests.get(number) == (sum(values) % 2**64, len(values))
    fresh = RangeDigests()
    for seq in sorted(live, reverse=True):
        fresh.add(seq, live[seq])
    assert differing(digests, fresh) == []
    assert digests.summary(0, 2**50) == fresh.summary(0, 2**50)


def test_ranges_with_different_messages_are_named() -> None:
    one = digests_of(MESSAGES)
    assert differing(one, digests_of(MESSAGES[::-1])) == []
    for at, message in enumerate(MESSAGES):
        others = list(MESSAGES)
        others[at] = replace(message, payload=b"other")
        changed = digests_of(others)
        assert differing(one, changed) == [message.seq // RANGE_SEQS]
        missing = digests_of(MESSAGES[:at] + MESSAGES[at + 1 :])
        assert differing(one, missing) == [message.seq // RANGE_SEQS]
        assert one.summary(0, 9) != missing.summary(0, 9)
    assert one.summary(0, 0) != one.summary(1, 1)


def test_stale_range_differs_until_it_is_computed_again() -> None:
    one, other = digests_of(MESSAGES), digests_of(MESSAGES)
    found = other.get(0)
    assert found is not None
    one.mark_stale(FIRST)
    assert one.get(0) is None
    assert differing(one, other) == [0]
    assert one.summary(0, 1) is None
    assert one.summary(1, 1) == other.summary(1, 1)
    before = one.changes_of(0)
    one.mark_stale(FIRST)
    assert not one.recompute(0, *found, before)
    assert one.recompute(0, *found, one.changes_of(0))
    assert differing(one, other) == []
    one.remove(FIRST, MESSAGES[0].digest)
    assert one.get(0) == ((found[0] - MESSAGES[0].digest) % 2**64, found[1] - 1)


def test_ranges_below_the_first_sequence_are_dropped() -> None:
    digests = digests_of(MESSAGES)
    digests.drop_below(RANGE_SEQS - 1)
    assert digests.numbers() == [0, 1]
    digests.drop_below(RANGE_SEQS)
    assert digests.numbers() == [1]
    digests.drop_below(3 * RANGE_SEQS)
    assert digests.numbers() == []
    digests.add(FIRST + RANGE_SEQS * 5, 1)
    assert digests.numbers() == [5]


def test_nothing_is_removed_from_empty_range() -> None:
    with pytest.raises(ValueError, match="no message"):
        RangeDigests().remove(1, 1)


# -- images of blocks


@pytest.mark.parametrize("keys", [RecordKeys(1, 1), RecordKeys(2, 9)], ids=["one", "another"])
def test_image_has_the_digests_of_its_live_messages(keys: RecordKeys) -> None:
    live = [True, False, True, True, True, False, True, True]
    found = RangeDigests()
    missing = add_image(found, keys, image_of(MESSAGES, keys), HEAD, FIRST, bytes(live))
    assert missing == 0
    kept = [one for one, is_live in zip(MESSAGES, live, strict=True) if is_live]
    assert differing(found, digests_of(kept)) == []


def test_each_flipped_bit_of_image_costs_one_message() -> None:
    keys = RecordKeys(1, 1)
    image = image_of(MESSAGES, keys)
    expected = digests_of(MESSAGES)
    for bit in range(HEAD * 8, len(image) * 8, 5):
        harmed = bytearray(image)
        harmed[bit // 8] ^= 1 << bit % 8
        found = RangeDigests()
        assert add_image(found, keys, harmed, HEAD, FIRST, b"\1" * len(MESSAGES)) == 1, bit
        assert len(differing(found, expected)) == 1, bit


def test_second_record_of_sequence_does_not_count() -> None:
    keys = RecordKeys(1, 1)
    image = image_of([*MESSAGES, MESSAGES[0], Kept(FIRST + 99), Kept(FIRST - 1)], keys)
    found = RangeDigests()
    assert add_image(found, keys, image, HEAD, FIRST, b"\1" * len(MESSAGES)) == 0
    assert differing(found, digests_of(MESSAGES)) == []
