"""A removed message is in no reply, and its sequence is not used again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.store.contract import NOTHING_REMOVED, Appended, Limits, Missing, Removed
from penstock.store.index.seq_set import SequenceSet
from support.messages import live, put
from support.stores import covered

if TYPE_CHECKING:
    from support.stores import Driven, Make


@pytest.fixture
def six(store: Driven) -> Driven:
    put(store, "a.0 a.1 a.0 a.1 a.0 a.1")
    return store


@pytest.mark.parametrize("call", ["remove", "erase"])
def test_removed_message_is_missing_once(six: Driven, call: str) -> None:
    take = getattr(six, call)
    size = six.size_of("a.0", b"", b"m")
    assert take(3) == Removed(1, size, ((3, 3),))
    assert take(3) is None
    assert six.load(3) is Missing.ABSENT
    state = six.state(deleted=True)
    assert (state.msgs, state.bytes, state.num_deleted) == (5, 5 * size, 1)
    assert state.deleted == SequenceSet([(3, 3)])
    assert live(six) == [1, 2, 4, 5, 6]


@pytest.mark.parametrize("seq", [0, 7, 2**63])
@pytest.mark.parametrize("call", ["remove", "erase"])
def test_missing_message_cannot_be_removed(six: Driven, call: str, seq: int) -> None:
    assert getattr(six, call)(seq) is None
    assert six.state().msgs == 6


def test_without_its_first_message_store_starts_at_the_next_live_one(six: Driven) -> None:
    six.remove(2)
    six.remove(3)
    six.remove(1)
    state = six.state(deleted=True)
    assert (state.first_seq, state.first_ts_ns, state.num_deleted) == (4, 40, 0)
    assert state.deleted == SequenceSet()


def test_without_its_last_message_store_still_ends_there(six: Driven) -> None:
    six.remove(6)
    state = six.state(deleted=True)
    assert (state.last_seq, state.last_ts_ns, state.num_deleted) == (6, 60, 1)
    assert state.deleted == SequenceSet([(6, 6)])


def test_emptied_store_starts_after_its_last_sequence(six: Driven) -> None:
    for seq in (6, 1, 3, 2, 5, 4):
        six.remove(seq)
    state = six.state(deleted=True)
    assert (state.msgs, state.bytes, state.num_subjects) == (0, 0, 0)
    assert (state.first_seq, state.last_seq) == (7, 6)
    assert (state.first_ts_ns, state.last_ts_ns) == (0, 60)
    assert (state.num_deleted, state.deleted) == (0, SequenceSet())


# -- purging


@pytest.mark.parametrize(
    ("request_", "left"),
    [
        ({}, []),
        ({"keep": 2}, [5, 6]),
        ({"keep": 6}, [1, 2, 3, 4, 5, 6]),
        ({"keep": 99}, [1, 2, 3, 4, 5, 6]),
        ({"before_seq": 0}, [1, 2, 3, 4, 5, 6]),
        ({"before_seq": 1}, [1, 2, 3, 4, 5, 6]),
        ({"before_seq": 4}, [4, 5, 6]),
        ({"before_seq": 7}, []),
        ({"subject": "a.0"}, [2, 4, 6]),
        ({"subject": "a.*"}, []),
        ({"subject": ">"}, []),
        ({"subject": "z"}, [1, 2, 3, 4, 5, 6]),
        ({"subject": "a.0", "keep": 1}, [2, 4, 5, 6]),
        ({"subject": "a.1", "keep": 3}, [1, 2, 3, 4, 5, 6]),
        ({"subject": "a.*", "keep": 1}, [6]),
        ({"subject": "a.*", "keep": 4}, [3, 4, 5, 6]),
        ({"subject": ">", "keep": 1}, [6]),
        ({"subject": "a.0", "before_seq": 5}, [2, 4, 5, 6]),
        ({"subject": "a.>", "before_seq": 4}, [4, 5, 6]),
        ({"subject": ">", "before_seq": 4}, [4, 5, 6]),
        ({"subject": "a.1", "before_seq": 20}, [1, 3, 5]),
    ],
    ids=str,
)
def test_purge_leaves_what_reference_leaves(
    six: Driven, request_: dict[str, Any], left: list[int]
) -> None:
    before = set(live(six))
    removed = six.purge(**request_)
    assert live(six) == left
    assert removed.msgs == 6 - len(left)
    assert removed.bytes == removed.msgs * six.size_of("a.0", b"", b"m")
    assert covered(removed) & before == before - set(left)
    state = six.state()
    assert state.last_seq == 6
    assert state.first_seq == (left[0] if left else 7)
    assert state.last_ts_ns == 60


@pytest.mark.parametrize("subject", [None, ">"])
def test_purge_up_to_sequence_to_come_continues_there(six: Driven, subject: str | None) -> None:
    assert six.purge(subject=subject, before_seq=20).msgs == 6
    state = six.state(deleted=True)
    assert (state.first_seq, state.last_seq, state.last_ts_ns) == (20, 19, 60)
    assert (state.num_deleted, state.deleted) == (0, SequenceSet())
    assert six.purge(before_seq=10) == NOTHING_REMOVED
    assert six.state().first_seq == 20
    assert six.purge(before_seq=30) == NOTHING_REMOVED
    assert put(six, "a") == [30]


def test_new_store_can_be_purged_to_start_elsewhere(store: Driven) -> None:
    assert store.purge() == NOTHING_REMOVED
    assert (store.state().first_seq, store.state().last_seq) == (1, 0)
    store.purge(before_seq=5)
    assert (store.state().first_seq, store.state().last_seq) == (5, 4)
    assert store.state().last_ts_ns == 0


def test_keep_counts_live_messages_only(six: Driven) -> None:
    six.remove(5)
    assert six.purge(keep=3).msgs == 2
    assert live(six) == [3, 4, 6]


def test_keep_and_sequence_do_not_go_together(six: Driven) -> None:
    with pytest.raises(ValueError, match="together"):
        six.purge(before_seq=4, keep=1)
    assert six.state().msgs == 6


def test_purged_twice_is_purged_once(six: Driven) -> None:
    six.purge(subject="a.0")
    assert six.purge(subject="a.0") == NOTHING_REMOVED
    assert six.state(deleted=True).deleted == SequenceSet([(3, 3), (5, 5)])


def test_purged_store_continues_as_any_other(make: Make) -> None:
    store = make(Limits(msgs_max=2, per_subject_max=1))
    put(store, "a b")
    store.purge()
    assert put(store, "a b c") == [3, 4, 5]
    assert live(store) == [4, 5]


# -- truncating


def test_truncated_sequences_are_given_out_again(six: Driven) -> None:
    removed = six.truncate(4)
    assert (removed.msgs, covered(removed)) == (2, {5, 6})
    state = six.state()
    assert (state.last_seq, state.last_ts_ns, state.msgs) == (4, 40, 4)
    assert six.load(5) is Missing.ABSENT
    assert six.load_last("a.0").seq == 3
    six.append("b", b"", b"new", 45)
    assert six.load(5).payload == b"new"
    assert live(six) == [1, 2, 3, 4, 5]


def test_truncated_to_sequence_that_was_removed_store_still_ends_there(six: Driven) -> None:
    six.remove(4)
    six.truncate(4)
    state = six.state(deleted=True)
    assert (state.last_seq, state.last_ts_ns) == (4, 30)
    assert state.deleted == SequenceSet([(4, 4)])
    assert put(six, "a") == [5]


@pytest.mark.parametrize("seq", [0, 2])
def test_truncated_below_its_first_message_store_is_empty_and_continues_there(
    six: Driven, seq: int
) -> None:
    six.purge(before_seq=4)
    assert six.truncate(seq).msgs == 3
    state = six.state()
    assert (state.msgs, state.first_seq, state.last_seq) == (0, seq + 1, seq)
    assert (state.first_ts_ns, state.last_ts_ns) == (0, 0)
    assert put(six, "a") == [seq + 1]


def test_truncated_at_its_end_store_stays_as_it_is(six: Driven) -> None:
    before = six.state(deleted=True)
    assert six.truncate(6) == NOTHING_REMOVED
    assert six.state(deleted=True) == before


def test_truncated_beyond_its_end_is_refused(six: Driven) -> None:
    with pytest.raises(ValueError, match=r"."):
        six.truncate(7)
    assert six.state().last_seq == 6


def test_truncated_deadlines_are_forgotten(store: Driven) -> None:
    store.append("a", b"", b"", 10, ttl_ns=100)
    store.append("a", b"", b"", 20, ttl_ns=30)
    store.truncate(1)
    store.append("a", b"", b"", 30)
    assert store.expire(60) == NOTHING_REMOVED
    assert live(store) == [1, 2]


def test_store_truncated_below_gap_continues(make: Make) -> None:
    store = make()
    store.append("a", b"", b"x", 1, seq=10)
    store.truncate(5)
    assert store.append("a", b"", b"y", 2) == Appended(6, NOTHING_REMOVED)
    assert live(store) == [6]
