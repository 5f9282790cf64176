"""What readers may see: nothing a power cut could still undo, unless the store is lazy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store.contract import MessageRecord, Missing
from support.messages import live, put

if TYPE_CHECKING:
    from support.stores import Driven, Make


def test_durable_messages_are_visible(make: Make) -> None:
    store = make()
    put(store, "a b a")
    store.sync()
    assert store.visible_seq == store.durable_seq == 3
    assert live(store) == [1, 2, 3]


def test_nothing_is_seen_before_it_is_durable(synced_first: Driven) -> None:
    put(synced_first, "a")
    synced_first.sync()
    put(synced_first, "a b")
    assert synced_first.visible_seq == 1
    assert synced_first.load(2) is Missing.ABSENT
    assert synced_first.load_last("a").seq == 1
    assert synced_first.load_last("b") is Missing.ABSENT
    assert synced_first.next_match((), 2) is None
    assert synced_first.next_match(("b",), 0) is None
    assert synced_first.num_pending(0, ()) == 1
    assert synced_first.num_pending(0, ("a", "b")) == 1
    assert synced_first.num_pending(0, (), last_per_subject=True) == 1
    assert synced_first.num_pending(2, ()) == 0
    synced_first.sync()
    assert live(synced_first) == [1, 2, 3]


def test_next_append_plan_sees_all_messages(store: Driven) -> None:
    put(store, "a b a")
    assert store.load(3, unsynced=True).subject == "a"
    assert store.load_last("a", unsynced=True).seq == 3
    assert store.load_last("a", at_or_before=2, unsynced=True).seq == 1
    found = store.next_match(("b",), 0, unsynced=True)
    assert isinstance(found, MessageRecord)
    assert found.seq == 2
    assert store.num_pending(0, (), unsynced=True) == 3
    assert store.num_pending(0, (">",), last_per_subject=True, unsynced=True) == 2


def test_totals_and_removals_mean_everything(synced_first: Driven) -> None:
    put(synced_first, "a b")
    assert synced_first.state().msgs == 2
    assert synced_first.remove(2).msgs == 1
    assert set(synced_first.subject_states()) == {"a"}


def test_sequence_given_out_again_is_not_visible_before_its_own_sync(
    synced_first: Driven,
) -> None:
    put(synced_first, "a b c")
    synced_first.sync()
    put(synced_first, "d")
    work = synced_first.pending_sync()
    synced_first.truncate(1)
    put(synced_first, "x")
    assert synced_first.visible_seq == 1
    work.run()
    synced_first.synced(work)
    assert synced_first.visible_seq == 1
    assert synced_first.load(2) is Missing.ABSENT
    synced_first.sync()
    assert synced_first.load(2).subject == "x"


def test_sync_is_wanted_until_all_is_durable(synced_first: Driven) -> None:
    synced_first.sync()
    assert not synced_first.sync_wanted
    put(synced_first, "a")
    assert synced_first.sync_wanted
    synced_first.sync()
    assert not synced_first.sync_wanted
    synced_first.remove(1)
    assert synced_first.sync_wanted
