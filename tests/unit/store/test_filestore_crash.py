"""Cut the power at every step of a file store's life: nothing acknowledged is ever lost."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from penstock.store.contract import Appended, Missing, Removed
from penstock.store.filestore import FileStore
from penstock.store.index.message_log import MessageRecord
from penstock.testing.crash_states import crash_states
from penstock.testing.recording_disk import RecordingDisk
from penstock.testing.sim_disk import SimDisk

if TYPE_CHECKING:
    from penstock.store.io.disk import Disk

BLOCK_BYTES = 700
STATES = 800


def opened(disk: Disk) -> FileStore:
    return FileStore.open(disk, incarnation=9, noise=bytes, block_bytes=BLOCK_BYTES)


def contents(store: FileStore) -> dict[int, bytes]:
    found = {}
    start = 0
    while (msg := store.next_match((), start, unsynced=True)) is not None:
        if not isinstance(msg, MessageRecord):
            work = store.fetch(msg)
            work.run()
            store.fetched(work)
            continue
        found[msg.seq] = msg.payload
        start = msg.seq + 1
    return found


def live(disk: RecordingDisk, seed: int, steps: int = 120) -> set[int]:
    """Appends, removals and syncs, marked when durable; answers what was removed."""
    removed = set()
    chance = random.Random(seed)
    store = opened(disk)
    for step in range(steps):
        action = chance.random()
        if action < 0.6:
            payload = bytes([step]) * chance.randrange(120)
            assert isinstance(store.append(f"s.{step % 5}", b"", payload, step + 1), Appended)
        elif action < 0.8 and (held := sorted(contents(store))):
            removed.add(victim := chance.choice(held))
            assert isinstance(store.remove(victim), Removed)
        elif chance.random() < 0.5 and store.appender.commit():
            disk.mark((contents(store), store.durable_seq))
        elif (work := store.pending_sync()) is not None:
            before = contents(store)
            work.run()
            store.synced(work)
            disk.mark((before, store.durable_seq))
    return removed


@pytest.mark.parametrize("seed", range(4))
def test_synced_bytes_survive_any_power_cut(seed: int) -> None:
    disk = RecordingDisk(SimDisk())
    removed = live(disk, seed)
    tried = 0
    for image in crash_states(disk, seed=seed, images_max=STATES):
        tried += 1
        durable: dict[int, bytes] = {}
        durable_seq = 0
        if image.marks:
            durable, durable_seq = image.marks[-1]  # type: ignore[misc]
        store = opened(image.disk)
        found = contents(store)
        # Later removals may or may not have reached the disk; nothing may be made up or changed.
        assert store.state().last_seq >= durable_seq, image.description
        assert durable.keys() - found.keys() <= removed, image.description
        assert all(first > durable_seq for first, _ in store.recovery.damaged), image.description
        for seq, payload in found.items():
            assert seq > durable_seq or durable.get(seq) == payload, image.description
        assert store.load(durable_seq + 10_000) is Missing.ABSENT
    assert tried > STATES // 2


def test_store_that_does_not_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: the same run without syncing loses what it called durable."""
    monkeypatch.setattr(RecordingDisk, "fdatasync", lambda _disk, _file: None)
    with pytest.raises(AssertionError):
        test_synced_bytes_survive_any_power_cut(0)
