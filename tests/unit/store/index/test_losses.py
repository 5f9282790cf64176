"""Losses of a file store: said in the log, kept through whatever blocks go through, never too low.

A reader that knows the newest message of every subject up to the loss floor, and reads on, must
know the newest of every subject. That is checked in every state that a power cut can leave, against
everything that was ever durable.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple, cast

import pytest

from penstock.store.contract import Appended, Limits
from penstock.store.filestore import FileStore
from penstock.store.format.range_kinds import FLOOR, MARK, REMOVE, RESERVE, SKIP
from penstock.store.index.losses import SUSPECTED_LOSSES, Losses
from penstock.store.index.message_log import MessageLog
from penstock.store.index.record_log import RecordLog
from penstock.store.index.removal_index import lose_one
from penstock.testing.crash_states import crash_states
from penstock.testing.recording_disk import RecordingDisk
from penstock.testing.sim_disk import SimDisk

if TYPE_CHECKING:
    from typing import Any

    from penstock.store.io.disk import Disk

BLOCK_BYTES = 700
STATES = 600
#: What the fold of a bucket of history 1 meets, and of one that is full at times.
LIMITS = (Limits(per_subject_max=1), Limits(per_subject_max=2, msgs_max=6))


class Unaware(MessageLog):
    """The log of a version that knew of no losses."""

    def note_loss(self) -> int:
        """It had no word for it."""
        return 0


def opened(disk: Disk, limits: Limits, **options: Any) -> FileStore:
    return FileStore.open(
        disk, incarnation=9, noise=bytes, block_bytes=BLOCK_BYTES, limits=limits, **options
    )


def sync(store: FileStore) -> None:
    while (work := store.pending_sync()) is not None:
        work.run()
        store.synced(work)


def compact(store: FileStore) -> None:
    while (work := store.pending_compaction()) is not None:
        work.run()
        store.compacted(work)
        sync(store)


# -- what the records tell


@pytest.mark.parametrize(
    ("records", "floor", "unsaid"),
    [
        ([], 0, False),
        ([(REMOVE, 3, 7)], 7, True),
        ([(REMOVE, 3, 7), (REMOVE, 1, 0)], 0, False),
        ([(REMOVE, 3, 7), (REMOVE, 5, 4)], 4, False),
        ([(REMOVE, 5, 4), (REMOVE, 6, 6), (MARK, 1, 900)], 6, True),
        ([(REMOVE, 5, 4), (REMOVE, 2, 2)], 4, True),
        ([(SKIP, 3, 9)], 9, True),
        ([(SKIP, 3, 2), (RESERVE, 3, 99)], 0, False),
        ([(FLOOR, 8, 8)], 7, True),
        ([(REMOVE, 9, 8), (FLOOR, 4, 4), (REMOVE, 7, 6)], 8, False),
    ],
)
def test_removals_after_last_record_count(
    records: list[tuple[int, int, int]], floor: int, unsaid: bool
) -> None:
    losses = Losses()
    for record in records:
        losses.note(*record)
    assert (losses.floor, losses.is_unsaid) == (floor, unsaid)


def test_suspected_losses_stay_suspected() -> None:
    losses = Losses()
    losses.suspect(5)
    losses.note(REMOVE, 3, 2)
    assert (losses.floor, losses.is_unsaid) == (5, True)
    losses.note(REMOVE, 7, 6)
    assert (losses.floor, losses.count) == (6, SUSPECTED_LOSSES)


# -- kept


@pytest.mark.parametrize("sync_always", [True, False])
def test_floor_survives_blocks_that_recorded_it(sync_always: bool) -> None:
    disk = SimDisk()
    store = opened(disk, LIMITS[0], sync_always=sync_always)
    for n in range(6):
        store.append(f"s.{n}", b"", b"", n + 1)
    store.remove(4)
    for n in range(300):  # overwriting alone, through many blocks, of which most go
        store.append("s.0", b"", bytes(50), 10 + n)
        if n % 7 == 0:
            sync(store)
            compact(store)
    assert store.loss_floor == 4
    store.close()
    assert opened(disk, LIMITS[0], sync_always=sync_always).loss_floor == 4


@pytest.mark.parametrize("sync_always", [True, False])
def test_count_outlives_blocks_that_noted_it(sync_always: bool) -> None:
    disk = SimDisk()
    store = opened(disk, LIMITS[0], sync_always=sync_always)
    for n in range(6):
        store.append(f"s.{n}", b"", b"", n + 1)
    sync(store)
    store.remove(4)
    store.purge(subject="s.5")
    assert store.losses == 0  # nothing on disk counts them yet
    for n in range(300):
        store.append("s.0", b"", bytes(50), 10 + n)
        if n % 7 == 0:
            sync(store)
            compact(store)
    assert store.losses == 2
    store.close()
    store = opened(disk, LIMITS[0], sync_always=sync_always)
    assert store.losses == 2
    store.purge()
    store.close()
    assert opened(disk, LIMITS[0], sync_always=sync_always).losses == 6


def test_limits_count_only_where_older_message_stays() -> None:
    store = opened(SimDisk(), Limits(msgs_max=4))
    store.append("a", b"", b"", 1)
    store.append("a", b"", b"", 2, ttl_ns=5)
    store.append("b", b"", b"", 3, ttl_ns=5)
    store.expire(6)
    sync(store)
    assert store.losses == 0
    store.expire(7)  # "a" falls back to its first message
    sync(store)
    assert store.losses == 1
    store.expire(100)
    for n in range(9):
        store.append(f"c.{n}", b"", b"", 200)
    sync(store)
    assert store.losses == 1


def test_kill_after_writing_costs_nothing_in_lazy_store() -> None:
    disk = SimDisk()
    store = opened(disk, LIMITS[0], sync_always=False)
    for n in range(40):
        store.append(f"s.{n % 3}", b"", b"", n + 1)
        if (work := store.pending_sync(write_only=True)) is not None:
            work.run()
            store.synced(work)
    # Not closed: what was written is there, as after a kill.
    assert opened(disk, LIMITS[0], sync_always=False).loss_floor == 0


def test_message_that_cannot_be_read_is_lost_for_good() -> None:
    log = RecordLog(incarnation=3, durable=True)
    for subject in "aba":
        log.append(subject, b"", b"", 1)
    lose_one(log, 1)
    assert log.loss_floor == 0
    lose_one(log, 3)
    assert (log.loss_floor, log.is_loss_unsaid) == (3, False)


def test_store_of_before_counts_whatever_went(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk()
    with monkeypatch.context() as before:
        before.setattr("penstock.store.filestore.MessageLog", Unaware)
        store = opened(disk, LIMITS[0])
        for n in range(9):
            store.append(f"s.{n % 4}", b"", b"", n + 1)
        sync(store)
        store.close()
    store = opened(disk, LIMITS[0])
    assert store.loss_floor == 5
    store.append("s.0", b"", b"", 99)  # which overwrites 9
    store.close()
    assert opened(disk, LIMITS[0]).loss_floor == 5


# -- in every state a power cut can leave


class Seen(NamedTuple):
    """What a follower knows once it has read everything: how far, the losses, and the newest."""

    durable_seq: int
    losses: int
    newest: dict[str, int]


def seen(store: FileStore) -> Seen:
    newest = {name: state.last for name, state in store.subject_states().items()}
    return Seen(store.durable_seq, store.losses, newest)


def live(disk: RecordingDisk, seed: int, limits: Limits, steps: int = 140) -> dict[int, str]:
    """Writes, removals, purges, syncs and rewritings; answers the subject of every sequence."""
    chance = random.Random(seed)
    subjects: dict[int, str] = {}
    store = opened(disk, limits)
    for step in range(steps):
        action = chance.random()
        if action < 0.6:
            subject = f"s.{chance.randrange(8)}"
            appended = store.append(subject, b"", bytes(chance.randrange(90)), step + 1)
            assert isinstance(appended, Appended)
            subjects[appended.seq] = subject
        elif action < 0.66:
            store.remove(chance.randrange(1, store.last_seq + 2))
        elif action < 0.68:
            store.purge(subject=f"s.{chance.randrange(8)}")
        elif action < 0.8 and store.appender.commit():
            disk.mark(seen(store))
        elif (work := store.pending_sync()) is not None:
            work.run()
            store.synced(work)
            disk.mark(seen(store))
            if chance.random() < 0.3:
                compact(store)
    return subjects


def check_count(store: FileStore, mark: Seen, there: dict[str, int], *, is_full: bool) -> None:
    """With the count a follower knows, what it has is the newest, unless more follows."""
    if store.losses != mark.losses:
        assert store.losses > mark.losses
        return
    for subject, seq in mark.newest.items():
        now = there.get(subject, seq if is_full else 0)
        assert now == seq or now > mark.durable_seq, f"{subject} {seq} is uncounted, now {now}"


def check(seed: int) -> int:
    limits = LIMITS[seed % len(LIMITS)]
    disk = RecordingDisk(SimDisk())
    subjects = live(disk, seed, limits)
    tried = 0
    for image in crash_states(disk, seed=seed, images_max=STATES):
        tried += 1
        marks = cast("list[Seen]", image.marks)
        durable = marks[-1].durable_seq if marks else 0
        # The limits are enforced as the store is opened: that must count, too.
        store = opened(image.disk, limits)
        floor = store.loss_floor
        newest = {subject: seq for seq, subject in subjects.items() if seq <= durable}
        there = {name: state.last for name, state in store.subject_states().items()}
        for subject, seq in newest.items():
            missed = seq > max(floor, there.get(subject, 0))
            assert not missed, f"{image.description}: {subject} {seq} is lost, floor {floor}"
        for mark in marks:
            check_count(store, mark, there, is_full=limits.msgs_max > 0)
    return tried


@pytest.mark.parametrize("seed", range(6))
def test_no_loss_goes_unsaid_whatever_cut_leaves(seed: int) -> None:
    assert check(seed) > STATES // 2


def test_omitting_removals_after_last_record_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Losses, "floor", property(lambda losses: losses._recorded))
    with pytest.raises(AssertionError, match="is lost"):
        sum(map(check, range(6)))


def test_leaving_out_count_of_what_went_after_the_last_note_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Losses, "count", property(lambda losses: losses._counted))
    with pytest.raises(AssertionError, match="uncounted"):
        sum(map(check, range(6)))
