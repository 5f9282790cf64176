"""Sequences: given in order, or named and then left out for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.store.contract import (
    NOTHING_REMOVED,
    Appended,
    Limits,
    MessageRecord,
    Missing,
    Refusal,
)
from penstock.store.index.message_pack import Packer
from penstock.store.index.seq_set import SequenceSet
from support.messages import live, put

if TYPE_CHECKING:
    from support.stores import Driven, Make


def test_new_store_is_empty_and_starts_at_one(store: Driven) -> None:
    state = store.state(deleted=True)
    assert (state.msgs, state.bytes, state.num_subjects, state.num_deleted) == (0, 0, 0, 0)
    assert (state.first_seq, state.last_seq) == (1, 0)
    assert (state.first_ts_ns, state.last_ts_ns) == (0, 0)
    assert state.deleted == SequenceSet()
    assert state.damaged == ()
    assert store.state().deleted is None


def test_new_store_may_start_elsewhere(make: Make) -> None:
    store = make(first_seq=10)
    assert (store.state().first_seq, store.state().last_seq) == (10, 9)
    assert put(store, "a") == [10]
    assert (store.state().first_seq, store.state().last_seq) == (10, 10)


def test_message_round_trips(store: Driven) -> None:
    assert store.append("a.b", b"NATS/1.0\r\nK: v\r\n\r\n", b"\0payload", 5) == Appended(
        1, NOTHING_REMOVED
    )
    assert store.append("ü.b", b"", b"", 7) == Appended(2, NOTHING_REMOVED)
    assert store.load(1) == MessageRecord(1, 5, "a.b", b"NATS/1.0\r\nK: v\r\n\r\n", b"\0payload")
    assert store.load(2) == MessageRecord(2, 7, "ü.b", b"", b"")


def test_message_larger_than_block_round_trips(store: Driven) -> None:
    payload = bytes(range(256)) * 4096
    put(store, "a", payload)
    put(store, "a")
    assert store.load(1).payload == payload
    assert store.load(2).payload == b"m"


def test_sizes_count_as_reference_counts_them(store: Driven) -> None:
    parts = [
        ("a.x", b"", b"12345"),
        ("a.x", b"NATS/1.0\r\nK: v\r\n\r\n", b"12345"),
        ("b", b"", b""),
    ]
    total = 0
    for subject, header, payload in parts:
        store.append(subject, header, payload, 1)
        total += store.size_of(subject, header, payload)
        assert store.state().bytes == total


def test_explicit_sequence_leaves_gap(store: Driven) -> None:
    put(store, "a a")
    assert store.append("a", b"", b"", 30, seq=6) == Appended(6, NOTHING_REMOVED)
    assert put(store, "a") == [7]
    state = store.state(deleted=True)
    assert (state.first_seq, state.last_seq, state.msgs, state.num_deleted) == (1, 7, 4, 3)
    assert state.deleted == SequenceSet([(3, 5)])
    assert store.load(4) is Missing.ABSENT


def test_first_message_of_empty_store_may_have_any_sequence(store: Driven) -> None:
    store.append("a", b"", b"", 10, seq=2**40)
    state = store.state()
    assert (state.first_seq, state.last_seq, state.num_deleted) == (2**40, 2**40, 0)


def test_gap_of_any_width_is_accepted(store: Driven) -> None:
    put(store, "a")
    store.append("a", b"", b"", 20, seq=2**40)
    state = store.state(deleted=True)
    assert (state.first_seq, state.last_seq, state.num_deleted) == (1, 2**40, 2**40 - 2)
    assert state.deleted == SequenceSet([(2, 2**40 - 1)])
    assert live(store) == [1, 2**40]


@pytest.mark.parametrize("seq", [0, 1, 3])
def test_used_sequence_is_refused_without_effect(store: Driven, seq: int) -> None:
    put(store, "a a a")
    before = store.state(deleted=True)
    with pytest.raises(ValueError, match=r"."):
        store.append("a", b"", b"", 40, seq=seq)
    assert store.state(deleted=True) == before


def test_skipped_sequences_never_hold_message(store: Driven) -> None:
    put(store, "a")
    store.skip(2, 4, 15)
    state = store.state(deleted=True)
    assert (state.msgs, state.first_seq, state.last_seq, state.num_deleted) == (1, 1, 4, 3)
    assert state.deleted == SequenceSet([(2, 4)])
    assert state.last_ts_ns == 15
    assert store.load(3) is Missing.ABSENT
    assert store.remove(3) is None
    assert put(store, "a") == [5]


def test_empty_store_starts_after_skipped_sequences(store: Driven) -> None:
    store.skip(1, 9, 15)
    assert (store.state().first_seq, store.state().last_seq) == (10, 9)
    assert store.state().num_deleted == 0
    assert put(store, "a") == [10]


@pytest.mark.parametrize(("first", "last"), [(1, 3), (3, 2), (4, 5), (2, 2)])
def test_skip_that_does_not_start_at_the_next_sequence_is_refused(
    store: Driven, first: int, last: int
) -> None:
    put(store, "a a")
    with pytest.raises(ValueError, match=r"."):
        store.skip(first, last, 30)
    assert store.state().last_seq == 2


def test_refused_message_uses_no_sequence(make: Make) -> None:
    store = make(Limits(msgs_max=1, discard_new=True))
    assert put(store, "a a") == [1, Refusal.MAX_MSGS]
    assert store.append("a", b"", b"", 30, seq=9) is Refusal.MAX_MSGS
    assert store.state().last_seq == 1
    store.remove(1)
    assert put(store, "a") == [2]


def test_removed_sequences_are_not_reused(store: Driven) -> None:
    put(store, "a a a")
    store.remove(3)
    assert put(store, "a") == [4]
    store.purge()
    assert put(store, "a") == [5]


@pytest.mark.parametrize("limits", [Limits(), Limits(per_subject_max=2), Limits(msgs_max=3)])
def test_packed_messages_equal_single_ones(make: Make, limits: Limits) -> None:
    messages = [("a", b"NATS/1.0\r\nK: v\r\n\r\n", b"1"), ("ü.b", b"", b""), ("a", b"", b"2")] * 2
    packer = Packer()
    for subject, header, payload in messages:
        packer.add(subject.encode(), header, payload)
    one_by_one, packed = make(limits), make(limits)
    for store in (one_by_one, packed):
        put(store, "a")
    gone = [one_by_one.append(*message, 9, admitted=True).removed.msgs for message in messages]
    assert packed.append_packed(packer.packed(), 9).msgs == sum(gone)
    assert packed.state(deleted=True) == one_by_one.state(deleted=True)
    for seq in range(1, 8):
        assert packed.load(seq) == one_by_one.load(seq)
