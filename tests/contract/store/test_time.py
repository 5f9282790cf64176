"""Age and deadlines: due to the nanosecond, and not before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.store.contract import NOTHING_REMOVED, TTL_NEVER, Limits
from support.messages import live, put
from support.stores import covered

if TYPE_CHECKING:
    from support.stores import Driven, Make

SECOND = 1_000_000_000


def test_nothing_falls_due_without_age_or_deadline(store: Driven) -> None:
    put(store, "a a")
    assert store.next_deadline_ns() is None
    assert store.expire(2**62) == NOTHING_REMOVED
    assert live(store) == [1, 2]


def test_message_is_old_when_its_age_is_reached(make: Make) -> None:
    store = make(Limits(age_ns_max=100))
    put(store, "a b c")
    assert store.expire(109) == NOTHING_REMOVED
    removed = store.expire(120)
    assert (removed.msgs, covered(removed)) == (2, {1, 2})
    assert removed.bytes == 2 * store.size_of("a", b"", b"m")
    assert live(store) == [3]
    assert store.state().first_seq == 3
    assert store.expire(130).msgs == 1
    assert store.next_deadline_ns() is None
    assert (store.state().first_seq, store.state().last_seq) == (4, 3)


def test_deadline_is_reached_to_nanosecond(store: Driven) -> None:
    store.append("a", b"", b"", 5 * SECOND, ttl_ns=3 * SECOND + 7)
    store.append("a", b"", b"", 5 * SECOND, ttl_ns=SECOND)
    store.append("a", b"", b"", 5 * SECOND)
    assert store.expire(6 * SECOND - 1) == NOTHING_REMOVED
    assert covered(store.expire(6 * SECOND)) == {2}
    assert store.expire(8 * SECOND + 6) == NOTHING_REMOVED
    assert covered(store.expire(8 * SECOND + 7)) == {1}
    assert store.expire(2**62) == NOTHING_REMOVED
    assert live(store) == [3]


def test_earlier_of_age_and_deadline_counts(make: Make) -> None:
    store = make(Limits(age_ns_max=100))
    store.append("long", b"", b"", 10, ttl_ns=500)
    store.append("short", b"", b"", 10, ttl_ns=50)
    assert covered(store.expire(60)) == {2}
    assert covered(store.expire(110)) == {1}
    assert store.next_deadline_ns() is None


def test_never_exempts_from_age_and_from_nothing_else(make: Make) -> None:
    store = make(Limits(age_ns_max=100, msgs_max=3))
    store.append("a", b"", b"", 10, ttl_ns=TTL_NEVER)
    store.append("a", b"", b"", 10)
    store.append("a", b"", b"", 10, ttl_ns=TTL_NEVER)
    assert covered(store.expire(2**62)) == {2}
    assert live(store) == [1, 3]
    assert store.next_deadline_ns() is None
    put(store, "a a")
    assert live(store) == [3, 4, 5]


def test_age_limit_that_comes_later_takes_effect_with_the_next_expiry(make: Make) -> None:
    store = make()
    put(store, "a a a")
    assert store.set_limits(Limits(age_ns_max=20)) == NOTHING_REMOVED
    assert covered(store.expire(40)) == {1, 2}
    store.set_limits(Limits())
    assert store.next_deadline_ns() is None
    assert store.expire(2**62) == NOTHING_REMOVED


def test_shorter_age_is_not_hidden_by_what_was_exempt_before(make: Make) -> None:
    store = make(Limits(age_ns_max=1000))
    store.append("a", b"", b"", 10, ttl_ns=TTL_NEVER)
    put(store, "a a")
    store.expire(100)
    store.set_limits(Limits(age_ns_max=50))
    assert covered(store.expire(100)) == {2, 3}


@pytest.mark.parametrize("take", ["remove", "erase", "purge"])
def test_removed_messages_do_not_expire(store: Driven, take: str) -> None:
    store.append("a", b"", b"", 10, ttl_ns=100)
    if take == "purge":
        store.purge()
    else:
        getattr(store, take)(1)
    assert store.next_deadline_ns() is None
    assert store.expire(2**62) == NOTHING_REMOVED


def test_next_deadline_is_never_late_and_at_most_second_early(make: Make) -> None:
    store = make(Limits(age_ns_max=10 * SECOND))
    store.append("a", b"", b"", SECOND)
    assert 10 * SECOND < store.next_deadline_ns() <= 11 * SECOND
    store.append("a", b"", b"", SECOND, ttl_ns=4 * SECOND + 5)
    assert 4 * SECOND < store.next_deadline_ns() <= 5 * SECOND + 5
    assert store.expire(store.next_deadline_ns()).msgs <= 1
    store.expire(5 * SECOND + 5)
    assert 10 * SECOND < store.next_deadline_ns() <= 11 * SECOND


def test_expiry_is_taken_in_portions_and_reports_there_is_more(make: Make) -> None:
    store = make(Limits(age_ns_max=100))
    put(store, "a a a")
    for _ in range(2):
        store.append("b", b"", b"", 40, ttl_ns=50)
    seen: set[int] = set()
    for left in (4, 3, 2, 1, 0):
        removed = store.expire(1000, at_most=1)
        assert removed.msgs == 1
        seen |= covered(removed)
        assert store.state().msgs == left
        due = store.next_deadline_ns()
        assert (due is not None and due <= 1000) == (left > 0)
    assert seen == {1, 2, 3, 4, 5}


def test_none_is_smallest_portion(make: Make) -> None:
    store = make(Limits(age_ns_max=100))
    put(store, "a")
    assert store.expire(1000, at_most=0) == NOTHING_REMOVED
    assert live(store) == [1]


def test_time_that_goes_back_expires_nothing(make: Make) -> None:
    store = make(Limits(age_ns_max=100))
    put(store, "a a")
    store.expire(110)
    assert store.expire(50) == NOTHING_REMOVED
    assert live(store) == [2]
