"""What a sync makes durable, and what a failed one ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.store.contract import Limits, Missing
from penstock.store.errors import StoreError
from support.messages import live, put
from support.stores import KINDS, Step

if TYPE_CHECKING:
    from support.stores import Driven


def test_memory_store_has_nothing_to_sync() -> None:
    for name, kind in KINDS.items():
        if kind.place.on_disk or kind.absence() is not None:
            continue
        store = kind.make()
        put(store, "a a")
        assert store.pending_sync() is None, name
        assert store.durable_seq == 2


def test_synced_messages_are_durable_up_to_the_last_sequence(store: Driven) -> None:
    put(store, "a b")
    store.skip(3, 5, 30)
    assert store.durable_seq <= 5
    store.sync()
    assert store.durable_seq == 5
    assert store.pending_sync() is None


def test_messages_after_the_start_of_sync_are_not_durable(on_disk: Driven) -> None:
    put(on_disk, "a")
    work = on_disk.pending_sync()
    put(on_disk, "b")
    work.run()
    assert on_disk.durable_seq == 0
    on_disk.synced(work)
    assert on_disk.durable_seq == 1
    on_disk.sync()
    assert on_disk.durable_seq == 2


def test_one_sync_runs_at_time(on_disk: Driven) -> None:
    put(on_disk, "a")
    work = on_disk.pending_sync()
    put(on_disk, "b")
    assert on_disk.pending_sync() is None
    work.run()
    on_disk.synced(work)
    assert on_disk.pending_sync() is not None


def test_removal_alone_needs_sync(on_disk: Driven) -> None:
    put(on_disk, "a b c")
    on_disk.sync()
    on_disk.remove(2)
    assert on_disk.pending_sync() is not None


def test_power_cut_keeps_what_was_synced(synced_first: Driven) -> None:
    put(synced_first, "a b a c")
    synced_first.remove(2)
    synced_first.take_step(Step.POWER_CUT)
    before = synced_first.state(deleted=True)
    put(synced_first, "d")
    synced_first.place.cut_power()
    synced_first.store = synced_first.place.open(Limits(), 1)
    assert synced_first.load(5) is Missing.ABSENT
    assert live(synced_first) == [1, 3, 4]
    assert synced_first.state(deleted=True) == before


def test_everything_found_at_opening_is_durable(on_disk: Driven) -> None:
    put(on_disk, "a b")
    on_disk.take_step(Step.REOPEN)
    assert on_disk.durable_seq == 2


def test_failed_sync_stops_writing_but_not_reading(on_disk: Driven) -> None:
    put(on_disk, "a")
    on_disk.sync()
    put(on_disk, "b")
    on_disk.synced(on_disk.pending_sync(), OSError(5, "Input/output error"))
    for write in (
        lambda: on_disk.append("c", b"", b"", 30),
        lambda: on_disk.skip(3, 4, 30),
        lambda: on_disk.remove(1),
        lambda: on_disk.erase(1),
        lambda: on_disk.purge(),
        lambda: on_disk.truncate(1),
        lambda: on_disk.set_limits(Limits(msgs_max=1)),
    ):
        with pytest.raises(StoreError):
            write()
    assert on_disk.durable_seq == 1
    assert on_disk.load(1).subject == "a"
    on_disk.close()


def test_close_makes_the_rest_durable(on_disk: Driven) -> None:
    put(on_disk, "a b")
    on_disk.close()
    on_disk.place.cut_power()
    on_disk.store = on_disk.place.open(Limits(), 1)
    assert live(on_disk) == [1, 2]


def test_limits_of_the_last_opening_apply(on_disk: Driven) -> None:
    put(on_disk, "a a a")
    on_disk.close()
    on_disk.store = on_disk.place.open(Limits(msgs_max=1), 1)
    assert live(on_disk) == [3]


def test_erased_bytes_are_no_longer_on_disk(on_disk: Driven) -> None:
    put(on_disk, "a", b"the secret")
    put(on_disk, "a a")
    on_disk.sync()
    on_disk.erase(1)
    on_disk.sync()
    disk = on_disk.place.disk
    for name in disk.files():
        file = disk.open(name, writable=False)
        assert b"the secret" not in disk.pread(file, disk.size(file), 0)
        disk.close_file(file)
