"""Which message makes room, and which is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.store.contract import NOTHING_REMOVED, Appended, Limits, Refusal, Removed
from support.messages import live, put
from support.stores import covered

if TYPE_CHECKING:
    from support.stores import Driven, Make

FULL, HEAVY, CROWDED = Refusal.MAX_MSGS, Refusal.MAX_BYTES, Refusal.MAX_PER_SUBJECT


def unit(store: Driven) -> int:
    """The size of a message `put` makes of a subject of one letter."""
    size: int = store.size_of("a", b"", b"m")
    return size


@pytest.mark.parametrize("no_limit", [0, -1, -5])
def test_limits_below_one_mean_unlimited(make: Make, no_limit: int) -> None:
    store = make(Limits(no_limit, no_limit, no_limit, no_limit))
    assert put(store, "a " * 5) == [1, 2, 3, 4, 5]
    assert store.expire(2**62) == NOTHING_REMOVED
    assert store.state().msgs == 5


# -- the oldest makes room


def test_over_max_msgs_the_oldest_is_removed(make: Make) -> None:
    store = make(Limits(msgs_max=3))
    put(store, "a b c")
    assert store.append("d", b"", b"", 40) == Appended(4, Removed(1, unit(store), ((1, 1),)))
    assert live(store) == [2, 3, 4]
    assert store.state().first_seq == 2


def test_max_bytes_may_be_reached_but_not_exceeded(make: Make) -> None:
    size = unit(make())
    exact, short = make(Limits(bytes_max=3 * size)), make(Limits(bytes_max=3 * size - 1))
    put(exact, "a a a")
    put(short, "a a a")
    assert live(exact) == [1, 2, 3]
    assert live(short) == [2, 3]
    put(exact, "a", b"")
    assert live(exact) == [2, 3, 4]


def test_large_message_removes_as_many_old_ones_as_needed(make: Make) -> None:
    store = make(Limits(bytes_max=4 * unit(make())))
    put(store, "a a a a")
    removed = store.append("a", b"", b"m" * (1 + unit(store)), 50).removed
    assert covered(removed) == {1, 2}
    assert (removed.msgs, removed.bytes) == (2, 2 * unit(store))
    assert live(store) == [3, 4, 5]


def test_message_larger_than_max_bytes_removes_everything_and_itself(make: Make) -> None:
    store = make(Limits(bytes_max=3 * unit(make())))
    put(store, "a a")
    appended = store.append("a", b"", b"m" * 300, 30)
    assert appended.seq == 3
    assert covered(appended.removed) == {1, 2, 3}
    assert appended.removed.bytes == 2 * unit(store) + store.size_of("a", b"", b"m" * 300)
    state = store.state()
    assert (state.msgs, state.bytes, state.first_seq, state.last_seq) == (0, 0, 4, 3)
    assert (state.first_ts_ns, state.last_ts_ns) == (0, 30)


def test_over_max_per_subject_its_oldest_is_removed(make: Make) -> None:
    store = make(Limits(per_subject_max=2))
    assert put(store, "a a b a a") == [1, 2, 3, 4, 5]
    assert live(store) == [3, 4, 5]
    assert live(store, "a") == [4, 5]


def test_subject_limit_applies_before_store_limit(make: Make) -> None:
    store = make(Limits(msgs_max=2, per_subject_max=1))
    put(store, "a b b")
    assert live(store) == [1, 3]
    put(store, "c")
    assert live(store) == [3, 4]


# -- the new one is refused


def test_with_discard_new_full_store_refuses(make: Make) -> None:
    store = make(Limits(msgs_max=2, discard_new=True))
    assert put(store, "a a a") == [1, 2, FULL]
    assert live(store) == [1, 2]


def test_with_discard_new_max_bytes_may_be_reached_but_not_exceeded(make: Make) -> None:
    size = unit(make())
    assert put(make(Limits(bytes_max=3 * size, discard_new=True)), "a a a a") == [1, 2, 3, HEAVY]
    assert put(make(Limits(bytes_max=3 * size - 1, discard_new=True)), "a a a") == [1, 2, HEAVY]


def test_max_msgs_is_checked_before_max_bytes(make: Make) -> None:
    store = make(Limits(msgs_max=1, bytes_max=unit(make()), discard_new=True))
    assert put(store, "a a") == [1, FULL]


def test_full_subject_is_replaced_in_full_store(make: Make) -> None:
    store = make(Limits(msgs_max=2, per_subject_max=1, discard_new=True))
    assert put(store, "a b a c b") == [1, 2, 3, FULL, 4]
    assert live(store) == [3, 4]


def test_discard_new_per_subject_refuses_full_subject(make: Make) -> None:
    store = make(
        Limits(msgs_max=3, per_subject_max=1, discard_new=True, discard_new_per_subject=True)
    )
    assert put(store, "a b a c d b") == [1, 2, CROWDED, 3, FULL, CROWDED]


def test_full_subject_accepts_message_no_larger_than_its_oldest(make: Make) -> None:
    store = make(Limits(bytes_max=2 * unit(make()), per_subject_max=1, discard_new=True))
    assert put(store, "a b a") == [1, 2, 3]
    assert put(store, "a", b"") == [4]
    # One byte is free now, but what goes would be smaller than what comes.
    assert put(store, "b") == [5]
    assert put(store, "b", b"mm") == [HEAVY]
    assert put(store, "c") == [HEAVY]
    assert live(store) == [4, 5]


def test_size_of_the_oldest_of_subject_counts(make: Make) -> None:
    store = make(Limits(bytes_max=3 * unit(make()) + 9, per_subject_max=2, discard_new=True))
    put(store, "a", b"m" * 10)
    put(store, "a b")
    assert put(store, "a", b"mmmm") == [4]
    assert put(store, "a", b"m" * 5) == [HEAVY]
    assert live(store, "a") == [2, 4]


# -- changed limits


def test_lower_limits_remove_messages(make: Make) -> None:
    store = make()
    put(store, "a a b b a")
    removed = store.set_limits(Limits(per_subject_max=1))
    assert removed.msgs == 3
    assert covered(removed) >= {1, 2, 3}
    assert live(store) == [4, 5]
    removed = store.set_limits(Limits(msgs_max=1))
    assert (removed.msgs, removed.bytes, covered(removed)) == (1, unit(store), {4})
    assert store.set_limits(Limits(bytes_max=unit(store) - 1)).msgs == 1
    assert store.state().first_seq == 6


def test_lower_totals_remove_nothing_with_discard_new(make: Make) -> None:
    store = make()
    put(store, "a a b b a")
    limits = Limits(msgs_max=2, bytes_max=2 * unit(store), discard_new=True)
    assert store.set_limits(limits) == NOTHING_REMOVED
    assert put(store, "a") == [FULL]
    assert live(store) == [1, 2, 3, 4, 5]


def test_lower_subject_limit_removes_even_with_discard_new(make: Make) -> None:
    store = make()
    put(store, "a a b b a")
    limits = Limits(per_subject_max=1, discard_new=True, discard_new_per_subject=True)
    assert store.set_limits(limits).msgs == 3
    assert live(store) == [4, 5]


def test_store_over_its_totals_still_replaces_full_subject(make: Make) -> None:
    store = make()
    put(store, "a b c d e")
    store.set_limits(Limits(msgs_max=2, per_subject_max=1, discard_new=True))
    assert put(store, "b f") == [6, FULL]
    assert live(store) == [1, 3, 4, 5, 6]


def test_higher_limits_admit_more(make: Make) -> None:
    store = make(Limits(msgs_max=1))
    put(store, "a a")
    assert store.set_limits(Limits(msgs_max=3)) == NOTHING_REMOVED
    put(store, "a a")
    assert live(store) == [2, 3, 4]
