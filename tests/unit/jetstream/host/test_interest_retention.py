"""Messages kept for consumers go when the last of those who need them has settled them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.jetstream.host.interest_retention import acked_by_all, needed_by_none
from penstock.store.memstore import MemStore
from support.consumer_stage import Stage, pull_config

seqs = st.lists(st.integers(1, 12), max_size=12)


def reading(store: MemStore, acked: list[int]) -> Stage:
    """A consumer that has got ten messages and acknowledged some."""
    stage = Stage(pull_config(), store=store, by_interest=True)
    stage.pull("10")
    deliveries = stage.deliveries()
    for seq in acked:
        if seq <= len(deliveries):
            stage.ack(deliveries[seq - 1])
    return stage


def stream() -> MemStore:
    store = MemStore()
    for _ in range(12):
        store.append("a", b"", b"", 1)
    return store


@given(seqs, seqs)
def test_only_messages_acked_by_all_are_removed(one: list[int], other: list[int]) -> None:
    store = stream()
    stages = [reading(store, one), reading(store, other)]
    both = {seq for seq in one if seq in other and seq <= 10}
    consumers = [stage.consumer for stage in stages]
    everything = ((1, 12),)
    assert set(acked_by_all(store, consumers, everything)) == both
    swept: set[int] = set()
    at = 1
    while at <= 12:
        gone, at = needed_by_none(store, consumers, at, 12)
        swept |= set(gone)
    assert swept == both
    alone = acked_by_all(store, consumers[:1], everything)
    assert set(alone) == {seq for seq in one if seq <= 10}


@given(seqs, st.integers(1, 14), st.integers(0, 14))
def test_span_goes_as_its_messages_would_one_by_one(
    gone: list[int], first: int, length: int
) -> None:
    spanned, singly = stream(), stream()
    for seq in gone:
        spanned.remove(seq)
        singly.remove(seq)
    removed = spanned.remove_span(first, first + length)
    each = [singly.remove(seq) for seq in range(first, first + length + 1)]
    taken = [one for one in each if one is not None]
    assert (removed.msgs, removed.bytes) == (len(taken), sum(one.bytes for one in taken))
    assert spanned.state(deleted=True) == singly.state(deleted=True)
