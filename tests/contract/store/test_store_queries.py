"""Questions before a change: what would be refused, what would go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.store.contract import TTL_NEVER, Appended, Limits, Refusal
from support.messages import live, put
from support.stores import covered

if TYPE_CHECKING:
    from support.stores import Driven, Make

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    "limits",
    [
        Limits(msgs_max=2, discard_new=True),
        Limits(bytes_max=70, discard_new=True),
        Limits(per_subject_max=1, discard_new=True, discard_new_per_subject=True),
        Limits(msgs_max=2, per_subject_max=1, discard_new=True),
        Limits(msgs_max=2),
    ],
)
def test_refusal_can_be_predicted(make: Make, limits: Limits) -> None:
    store = make(limits)
    for subject, payload in [("a", b"1"), ("a", b""), ("b", b"22"), ("b", b"1"), ("c", b"")]:
        asked = store.refusal(subject, b"", payload)
        before = live(store)
        answer = store.append(subject, b"", payload, 40)
        assert asked == (None if isinstance(answer, Appended) else answer)
        assert asked is None or live(store) == before


def test_admitted_message_is_stored_over_limit(make: Make) -> None:
    limits = Limits(msgs_max=1, per_subject_max=1, discard_new=True, discard_new_per_subject=True)
    store = make(limits)
    put(store, "a")
    assert store.append("a", b"", b"", 40) is Refusal.MAX_PER_SUBJECT
    appended = store.append("a", b"", b"", 40, admitted=True)
    assert (appended.seq, covered(appended.removed)) == (2, {1})
    assert store.append("b", b"", b"", 40, admitted=True).seq == 3
    assert live(store) == [2, 3]


def test_due_messages_are_listed_and_stay(make: Make) -> None:
    store = make(Limits(age_ns_max=10 * SECOND))
    store.append("a", b"", b"", SECOND, ttl_ns=TTL_NEVER)
    store.append("b", b"", b"", SECOND)
    store.append("c", b"", b"", 2 * SECOND, ttl_ns=3 * SECOND)
    store.append("d", b"", b"", 2 * SECOND)
    assert store.due(5 * SECOND - 1) == ()
    assert store.due(5 * SECOND) == (3,)
    assert store.due(11 * SECOND) == (2, 3)
    assert store.due(12 * SECOND) == (2, 3, 4)
    assert len(store.due(12 * SECOND, at_most=2)) == 2
    assert live(store) == [1, 2, 3, 4]
    assert covered(store.expire(12 * SECOND)) == {2, 3, 4}


def test_due_messages_are_those_that_expire(make: Make) -> None:
    store: Driven = make(Limits(age_ns_max=4 * SECOND))
    for at in range(1, 9):
        store.append(f"s{at % 3}", b"", b"", at * SECOND, ttl_ns=(at % 4) * SECOND)
    for now_ns in range(2 * SECOND, 14 * SECOND, SECOND):
        asked = set(store.due(now_ns))
        assert covered(store.expire(now_ns)) == asked
    assert live(store) == []
