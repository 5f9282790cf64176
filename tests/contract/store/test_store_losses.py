"""What counts as lost: messages that went while they were the newest of their subject."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.store.contract import Limits
from support.messages import put

if TYPE_CHECKING:
    from support.stores import Driven, Make


def floor(store: Driven) -> int:
    return store.store.loss_floor


def test_new_store_has_lost_nothing(make: Make) -> None:
    assert floor(make()) == 0
    assert floor(make(first_seq=100)) == 0


def test_overwritten_messages_are_not_losses(make: Make) -> None:
    store = make(Limits(per_subject_max=1))
    put(store, "a b a b a b a b c a b")
    assert store.state().first_seq == 9
    assert floor(store) == 0


def test_lower_subject_limit_causes_no_loss(make: Make) -> None:
    store = make()
    put(store, "a b a b a b")
    store.set_limits(Limits(per_subject_max=1))
    assert store.state().msgs == 2
    assert floor(store) == 0


@pytest.mark.parametrize("call", ["remove", "erase"])
def test_removing_the_newest_of_subject_is_loss(make: Make, call: str) -> None:
    store = make()
    put(store, "a b a b")
    getattr(store, call)(1)
    assert floor(store) == 0
    getattr(store, call)(4)
    assert floor(store) == 4
    getattr(store, call)(3)
    assert floor(store) == 4


def test_purge_loses_the_last_message_it_removes(make: Make) -> None:
    store = make()
    put(store, "a b a b a")
    store.purge(subject="b", keep=1)
    assert floor(store) == 0
    store.purge(subject="b")
    assert floor(store) == 4
    store.purge()
    assert floor(store) == 5


def test_purge_up_to_sequence_loses_nothing_newer(make: Make) -> None:
    store = make()
    put(store, "a b c a b")
    store.purge(before_seq=5)
    assert floor(store) == 4  # a, of which there is no other
    assert floor(rolled_up(make)) == 0


def rolled_up(make: Make) -> Driven:
    """What a message that replaces all others of its subject does to them."""
    store = make()
    put(store, "a a b a")
    store.purge(subject="a", before_seq=4)
    return store


def test_empty_sequence_is_no_loss(make: Make) -> None:
    store = make()
    put(store, "a b")
    store.skip(3, 9, 90)
    store.purge(before_seq=2)
    assert floor(store) == 1
    store.purge(before_seq=30)
    assert floor(store) == 2


def test_removal_for_space_loses_only_messages_without_newer_one(make: Make) -> None:
    store = make(Limits(msgs_max=3))
    put(store, "a b a b a b")
    assert floor(store) == 0
    put(store, "c d")
    assert floor(store) == 5


def test_message_that_does_not_fit_is_loss(make: Make) -> None:
    store = make(Limits(bytes_max=200))
    store.append("a", b"", bytes(500), 10)
    assert store.state().msgs == 0
    assert floor(store) == 1


def test_expired_message_is_loss_unless_newer_one_stays(make: Make) -> None:
    store = make()
    store.append("a", b"", b"", 10, ttl_ns=5)
    store.append("a", b"", b"", 10)
    store.append("b", b"", b"", 10, ttl_ns=5)
    store.append("c", b"", b"", 10)
    store.expire(15)
    assert store.state().msgs == 2
    assert floor(store) == 3


def test_aged_out_message_is_loss(make: Make) -> None:
    store = make(Limits(age_ns_max=100))
    store.append("a", b"", b"", 10)
    store.append("b", b"", b"", 20)
    store.append("a", b"", b"", 90)
    store.expire(115)
    assert floor(store) == 0
    store.expire(120)
    assert floor(store) == 2


def test_message_replaced_by_truncated_one_is_loss(make: Make) -> None:
    store = make(Limits(per_subject_max=1))
    put(store, "a b a")
    store.truncate(2)
    assert floor(store) >= 1
    assert floor(store) <= 2


def test_losses_before_store_became_copy_are_kept(make: Make) -> None:
    store = make()
    store.skip(1, 5, 10)
    put(store, "a")
    store.note_lost(4)
    store.note_lost(2)
    store.take_step(store.step)
    assert floor(store) == 4
