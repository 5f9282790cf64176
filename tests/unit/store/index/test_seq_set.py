"""The set of sequences, held to a set of ints and to its own rules of shape."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.store.index import seq_set
from penstock.store.index.seq_set import SequenceSet

U64_MAX = 2**64 - 1
WORLD = 120
members = st.integers(0, WORLD)
spans = st.tuples(members, members).map(lambda pair: (min(pair), max(pair)))
sets = st.lists(spans, max_size=30)


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> object:
    """So small that every law meets the seams between chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seq_set, "CHUNK_RANGES_MAX", 4)
        yield


def ints(ranges: list[tuple[int, int]]) -> set[int]:
    return {seq for first, last in ranges for seq in range(first, last + 1)}


class Sets(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.set = SequenceSet()
        self.model: set[int] = set()

    @rule(seq=members)
    def insert(self, seq: int) -> None:
        assert self.set.insert(seq) == (seq not in self.model)
        self.model.add(seq)

    @rule(seqs=st.lists(members, min_size=5, max_size=40))
    def insert_many(self, seqs: list[int]) -> None:
        for seq in seqs:
            self.insert(seq)

    @rule(seq=members)
    def remove(self, seq: int) -> None:
        assert self.set.remove(seq) == (seq in self.model)
        self.model.discard(seq)

    @rule(span=spans)
    def insert_range(self, span: tuple[int, int]) -> None:
        new = set(range(span[0], span[1] + 1))
        assert self.set.insert_range(*span) == len(new - self.model)
        self.model |= new

    @rule(span=spans)
    def remove_range(self, span: tuple[int, int]) -> None:
        gone = set(range(span[0], span[1] + 1))
        assert self.set.remove_range(*span) == len(gone & self.model)
        self.model -= gone

    @rule()
    def through_bytes(self) -> None:
        self.set = SequenceSet.decode(self.set.encode())

    @invariant()
    def has_the_members_of_the_model(self) -> None:
        assert list(self.set) == sorted(self.model)
        assert len(self.set) == self.set.count == len(self.model)
        assert bool(self.set) == bool(self.model)
        assert [seq for seq in range(WORLD + 2) if seq in self.set] == sorted(self.model)
        assert self.set.min == min(self.model, default=None)
        assert self.set.max == max(self.model, default=None)

    @invariant()
    def ranges_never_touch(self) -> None:
        ranges = list(self.set.ranges())
        assert all(first <= last for first, last in ranges)
        assert all(a[1] + 1 < b[0] for a, b in itertools.pairwise(ranges))
        assert self.set.num_ranges == len(ranges)


TestSets = Sets.TestCase
TestSets.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


@given(sets, sets)
def test_union_has_members_of_both_and_changes_neither(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    a, b = SequenceSet(left), SequenceSet(right)
    assert set(a.union(b)) == ints(left) | ints(right)
    assert (set(a), set(b)) == (ints(left), ints(right))
    a.update(a)
    assert set(a) == ints(left)


@given(sets, sets)
def test_equal_members_make_equal_sets_with_equal_bytes(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    a, b = SequenceSet(left), SequenceSet(right)
    assert (a == b) == (ints(left) == ints(right))
    assert (a.encode() == b.encode()) == (a == b)


@given(st.lists(st.tuples(st.integers(0, U64_MAX), st.integers(0, 2**20)), max_size=20))
def test_decode_gives_back_what_was_encoded_over_whole_range(
    starts: list[tuple[int, int]],
) -> None:
    before = SequenceSet((first, min(first + width, U64_MAX)) for first, width in starts)
    assert SequenceSet.decode(before.encode()) == before


def test_every_sequence_at_once_is_one_range() -> None:
    everything = SequenceSet([(0, U64_MAX)])
    assert everything.count == 2**64
    assert everything.remove(2**63)
    assert list(everything.ranges()) == [(0, 2**63 - 1), (2**63 + 1, U64_MAX)]
    assert SequenceSet.decode(everything.encode()) == everything


@pytest.mark.parametrize("span", [(-1, 3), (5, 4), (0, 2**64), (2**64, 2**64)])
def test_invalid_range_of_sequences_is_refused_and_changes_nothing(
    span: tuple[int, int],
) -> None:
    some = SequenceSet([(1, 9)])
    for change in (some.insert_range, some.remove_range):
        with pytest.raises(ValueError, match="no range"):
            change(*span)
    assert list(some.ranges()) == [(1, 9)]


@given(st.binary(max_size=40))
def test_decode_refuses_or_takes_bytes_that_encode_would_write(data: bytes) -> None:
    try:
        decoded = SequenceSet.decode(data)
    except ValueError:
        return
    assert decoded.encode() == data


@given(sets)
def test_decode_refuses_every_cut_and_every_tail(ranges: list[tuple[int, int]]) -> None:
    whole = SequenceSet(ranges).encode()
    for cut in range(len(whole)):
        with pytest.raises(ValueError, match=r"."):
            SequenceSet.decode(whole[:cut])
    with pytest.raises(ValueError, match="behind the last range"):
        SequenceSet.decode(whole + b"\0")


def test_decode_takes_no_more_ranges_than_allowed() -> None:
    three = SequenceSet([(1, 1), (3, 3), (5, 5)]).encode()
    assert SequenceSet.decode(three, ranges_max=3).count == 3
    with pytest.raises(ValueError, match="more than allowed"):
        SequenceSet.decode(three, ranges_max=2)


def test_claim_of_many_ranges_is_refused_before_room_is_made_for_them() -> None:
    with pytest.raises(ValueError, match="than there can be"):
        SequenceSet.decode(b"\xff\xff\xff\x07" + b"\0" * 64)


def test_chunks_stay_small_when_ranges_come_in_any_order() -> None:
    seqs = list(range(0, 4000, 2))
    random.Random(7).shuffle(seqs)
    scattered = SequenceSet()
    for seq in seqs:
        scattered.insert(seq)
    assert scattered.num_ranges == len(seqs)
    assert max(map(len, scattered._firsts)) <= seq_set.CHUNK_RANGES_MAX
    assert scattered.insert_range(1, 3997) == len(range(1, 3998, 2))
    assert list(scattered.ranges()) == [(0, 3998)]
