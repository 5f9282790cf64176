"""A lazy store: seen at once, synced later, and never a sequence twice."""

from __future__ import annotations

import random

import pytest

from penstock.store.append_commit import RESERVE_MAX, RESERVE_MIN
from penstock.store.contract import Missing
from penstock.store.filestore import FileStore
from penstock.testing.crash_states import crash_states
from penstock.testing.recording_disk import RecordingDisk
from penstock.testing.sim_disk import SimDisk
from penstock.testing.sim_files import Choice, Lose
from support.files import contents, fill, opened, sync

STATES = 600


def lazy(disk: SimDisk | RecordingDisk) -> FileStore:
    return opened(disk, sync_always=False)


def write(store: FileStore) -> None:
    work = store.pending_sync(write_only=True)
    if work is not None:
        work.run()
        store.synced(work)


def test_appended_messages_are_visible_at_once_and_durable_after_sync() -> None:
    store = lazy(SimDisk())
    fill(store, 3)
    assert (store.visible_seq, store.durable_seq) == (3, 0)
    assert store.load(3) is not Missing.ABSENT
    assert not store.sync_wanted
    sync(store)
    assert store.durable_seq == 3


def test_sync_is_wanted_when_reserved_sequences_run_short() -> None:
    store = lazy(SimDisk())
    store.skip(1, RESERVE_MIN // 2, 1)
    assert not store.sync_wanted
    store.skip(RESERVE_MIN // 2 + 1, RESERVE_MIN - 2, 1)
    assert store.sync_wanted
    fill(store, 2)
    assert store.visible_seq == RESERVE_MIN
    fill(store, 1)
    assert store.visible_seq == RESERVE_MIN, "beyond it nothing is seen"
    sync(store)
    assert store.visible_seq == RESERVE_MIN + 1


def test_heavy_use_reserves_many_sequences_up_to_bound() -> None:
    store = lazy(SimDisk())
    store.skip(1, 10 * RESERVE_MAX, 1)
    sync(store)
    before = store.state().last_seq
    store.skip(before + 1, before + RESERVE_MAX + 5, 1)
    assert store.visible_seq == before + RESERVE_MAX


def test_power_cut_leaves_gap_where_messages_may_have_been_seen() -> None:
    disk = SimDisk()
    store = lazy(disk)
    fill(store, 5)
    sync(store)
    fill(store, 4)
    assert store.visible_seq == 9
    again = lazy(disk.crash(Lose()))
    first, last = again.recovery.unsynced or (0, 0)
    assert first == 6
    assert last >= 9
    assert fill(again, 1) == [last + 1]
    assert again.state().damaged == ()
    assert sorted(contents(again)) == [1, 2, 3, 4, 5, last + 1]


def test_killed_process_loses_nothing_that_was_written() -> None:
    disk = SimDisk()
    store = lazy(disk)
    fill(store, 5)
    write(store)
    assert store.durable_seq == 0
    assert store.pending_sync(write_only=True) is None
    again = lazy(disk.crash(Choice()))
    assert sorted(contents(again)) == [1, 2, 3, 4, 5]


def test_sync_covers_what_was_only_written_before() -> None:
    disk = SimDisk()
    store = lazy(disk)
    fill(store, 30)
    write(store)
    sync(store)
    assert store.durable_seq == 30
    assert len(contents(lazy(disk.crash(Lose())))) == 30


def test_closing_gives_reserved_sequences_back() -> None:
    disk = SimDisk()
    store = lazy(disk)
    fill(store, 5)
    store.close()
    again = lazy(disk.crash(Lose()))
    assert again.recovery.unsynced is None
    assert again.recovery.clean
    assert fill(again, 1) == [6]


def test_store_that_is_no_longer_lazy_keeps_gap() -> None:
    disk = SimDisk()
    store = lazy(disk)
    fill(store, 5)
    again = opened(disk.crash(Lose()))
    assert again.recovery.unsynced is not None
    assert again.state().last_seq >= 5


def live(disk: RecordingDisk, seed: int) -> None:
    """Appends, removals, writes and syncs, marked with what was seen."""
    chance = random.Random(seed)
    store = lazy(disk)
    for _ in range(80):
        action = chance.random()
        if action < 0.6:
            fill(store, chance.randrange(1, 4))
        elif action < 0.7 and (held := sorted(contents(store))):
            store.remove(chance.choice(held))
        elif action < 0.85:
            write(store)
        else:
            sync(store)
        disk.mark(store.visible_seq)


@pytest.mark.parametrize("seed", range(3))
def test_no_cut_gives_sequence_out_again_that_was_seen(seed: int) -> None:
    disk = RecordingDisk(SimDisk())
    live(disk, seed)
    for image in crash_states(disk, seed=seed, images_max=STATES):
        seen = image.marks[-1] if image.marks else 0
        again = lazy(image.disk)
        assert again.state().last_seq >= seen, image.description
        assert again.recovery.damaged == (), image.description


def test_store_that_reserves_nothing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: seen sequences come again without reservations on disk."""
    monkeypatch.setattr(FileStore, "_note_reserved", lambda store: store._log.last_seq + 4096)
    with pytest.raises(AssertionError):
        test_no_cut_gives_sequence_out_again_that_was_seen(0)
