"""The consumer state store under power cuts, and the mutants that the judge must catch.

The store of these tests has logs of the smallest size the format allows for a page, so that a
few hundred changes go through several checkpoints.
"""

from __future__ import annotations

import pytest

from penstock.jetstream.consumers.state import consumer_recovery, delta_log, state_files
from penstock.jetstream.consumers.state.consumer_deltas import ConsumerState, replay
from penstock.jetstream.consumers.state.state_files import ConsumerStateStore
from penstock.store.errors import NotFound, StoreError
from penstock.store.io.slots import SlotFile
from penstock.testing.crash_states import crash_states
from penstock.testing.damage import zero_page
from penstock.testing.recording_disk import RecordingDisk
from penstock.testing.sim_disk import DiskFault, SimDisk
from penstock.testing.sim_files import Choice
from support.consumer_states import (
    HALF,
    INCARNATION,
    NAME,
    STATE,
    Run,
    as_model,
    reopened,
    settled,
    small_logs,
    workload,
)

MUTANT_SEEDS = 40

pytestmark = pytest.mark.usefixtures(small_logs.__name__)


# -- power cuts


def test_no_power_cut_at_any_call_loses_what_was_durable() -> None:
    disk = RecordingDisk(SimDisk())
    run = Run(disk, 11)
    disk.mark(0)
    for _ in range(12):
        run.changes(25)
        run.sync()
        disk.mark(run.store.durable_seq)
    images = 0
    for image in crash_states(disk, images_max=1500):
        images += 1
        try:
            store, report = reopened(image.disk)
        except NotFound:
            assert image.marks == ()
            continue
        assert store.recorded_seq >= max((0, *image.marks)), image.description
        assert as_model(store.state) == run.history[store.recorded_seq], image.description
        assert (report.damage, report.lost) == ((), None), image.description
    assert images > 500


def recoveries(seed: int) -> list[str]:
    """Cut the power while a cut or damaged consumer is being opened: what is wrong then."""
    run = Run(SimDisk(), seed)
    for _ in range(8):
        run.changes(25)
        run.sync()
    run.changes(25)
    run.store.flush()
    image = run.disk.crash(seed)
    if seed % 2:
        zero_page(image, STATE, seed // 2 % 2)
    disk = RecordingDisk(image)
    store, _ = ConsumerStateStore.open(disk, NAME, incarnation=INCARNATION)
    wrong = []
    for cut_again in crash_states(disk, images_max=60):
        again, _ = reopened(cut_again.disk)
        if again.state != store.state:
            wrong.append(cut_again.description)
    return wrong


def test_power_cut_while_opening_is_recovered_to_the_same_state() -> None:
    assert [wrong for seed in range(40) for wrong in recoveries(seed)] == []


# -- mutants: each breaks one rule, and the judge must see it


def found_wrong(seeds: int = MUTANT_SEEDS) -> bool:
    for seed in range(seeds):
        try:
            wrong = workload(Run(SimDisk(), seed), 40)
        except StoreError as error:
            wrong = [repr(error)]
        if wrong:
            return True
    return False


def test_mutant_slot_overwritten_before_the_other_was_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SlotFile, "ready", property(lambda slots: True))
    assert found_wrong()


def test_mutant_checkpoint_before_its_log_was_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ConsumerStateStore._prepare_log

    def switch_at_once(store: ConsumerStateStore) -> None:
        if store._slots.ready:
            store._next, store._next_synced = right(store), True
            step(store)

    step = ConsumerStateStore._checkpoint
    monkeypatch.setattr(ConsumerStateStore, "_checkpoint", switch_at_once)
    assert found_wrong()


def test_mutant_durable_when_written(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ConsumerStateStore.flush

    def flush(store: ConsumerStateStore) -> None:
        right(store)
        store.durable_seq = store._written_seq

    monkeypatch.setattr(ConsumerStateStore, "flush", flush)
    assert found_wrong()


def test_mutant_changes_after_hole_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    def apply_all(
        state: ConsumerState, seq: int, logs: list[delta_log.LogReading]
    ) -> tuple[int, int]:
        for log in logs:
            for frame in (*log.frames, *log.frames_from):
                if frame.last > seq:
                    replay(state, frame.changes)
                    seq = frame.last
        return seq, 0

    monkeypatch.setattr(consumer_recovery, "_apply", apply_all)
    assert found_wrong()


def test_mutant_frames_not_bound_to_their_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_log, "frame_key", lambda key, generation: key)
    assert found_wrong()


def test_mutant_logs_overwritten_before_checkpoint_of_recovery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = state_files._start_over

    def logs_first(disk, key, slots, files, found):  # type: ignore[no-untyped-def]
        for file in files:
            delta_log.ConsumerLog.fresh(disk, file, key, slots.generation, HALF)
            disk.fdatasync(file)
        return right(disk, key, slots, files, found)

    monkeypatch.setattr(state_files, "_start_over", logs_first)
    assert any(recoveries(seed) for seed in range(MUTANT_SEEDS))


def test_without_mutant_judge_finds_nothing() -> None:
    assert not found_wrong(seeds=12)


def test_whichever_call_fails_while_opening_the_next_try_finds_the_same_state() -> None:
    run = settled()
    zero_page(run.disk, STATE, 0)
    nth, struck = 0, True
    while struck:
        nth += 1
        image = run.disk.crash(Choice())
        image.fail_nth(nth, DiskFault.EIO)
        try:
            store, _ = reopened(image)
        except StoreError:
            assert not image._machine.handles
            store, _ = reopened(image.crash(nth))
        struck = bool(image.faults_struck)
        assert as_model(store.state) == run.model
    assert nth > 10
