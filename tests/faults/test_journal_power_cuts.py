"""Random lives of a journal, the power cut at every call: every group has what was promised.

The mutants are the ways to get it wrong that the format and the order of calls exclude. Each must
be caught by the same judge, in a few lives.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from faults import journal_life
from faults.journal_life import SEGMENTS_MAX, JournalLife, judged
from faults.sync_mutants import ignore_failed_syncs
from penstock.records.journal_codec import SegmentKeys, TurnBuffer
from penstock.store.errors import StoreError
from penstock.store.format.encryption import ServerKey
from penstock.store.journal import journal as journal_module
from penstock.store.journal import journal_recovery
from penstock.store.journal.journal_anchor import JournalAnchor
from penstock.store.journal.segment_pool import SegmentPool
from penstock.testing.crash_states import crash_states
from penstock.testing.recording_disk import RecordingDisk
from penstock.testing.sim_disk import DiskFault, SimDisk
from penstock.testing.sim_files import Choice, Lose

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

LONG_ROUNDS = 35
"""That many lives give 100,000 crash states."""
FAILING_ROUNDS_MAX = 5
STEPS = 120
FAILING_STEPS = 60
IMAGES = 300
KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "plain": (12, {}),
    "encrypted": (2, {"key": ServerKey("secret")}),
}
"""How many lives, and how the journal is opened."""
MUTANT_LIVES = 12
CALLS_MAX = 3000


def cut_everywhere(seed: int, options: dict[str, Any]) -> tuple[int, list[str], JournalLife]:
    """How many disks a power cut could have left, and what is wrong with them."""
    disk = RecordingDisk(SimDisk())
    life = JournalLife(disk, seed, options)
    life.live(STEPS)
    tried, wrong = 0, []
    for image in crash_states(disk, seed=seed, images_max=IMAGES):
        tried += 1
        marks = dict(image.marks)  # type: ignore[call-overload]
        faults = judged(life, image.disk, marks, plain=not options)
        wrong += [f"seed {seed}, {image.description}: {fault}" for fault in faults]
    return tried, wrong, life


@pytest.mark.parametrize("kind", KINDS)
def test_no_cut_at_any_call_of_life_loses_what_was_promised(
    kind: str, rounds: int, tried: Counter[str]
) -> None:
    lives, options = KINDS[kind]
    segments = erased = 0
    for seed in range(lives * rounds):
        states, wrong, life = cut_everywhere(seed, options)
        tried[f"crash states of journals, {kind}"] += states
        assert wrong == []
        segments += life.segments_begun
        erased += len(life.erased)
    assert segments > lives * rounds * SEGMENTS_MAX, "segments are begun, freed and used again"
    assert erased or options, "some erases end"


# -- mutants


def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordingDisk, "fdatasync", lambda _disk, _file: None)


def checkpoint_before_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(life: JournalLife, group: int, index: int, total: int) -> None:
        life.journal.checkpointed(group, index)
        life._sync_all()
        life.checkpoints.write(group, index, total)

    monkeypatch.setattr(JournalLife, "_checkpointed", hasty)


def segment_freed_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SegmentPool, "is_held", lambda _pool, _segment: False)


def freed_before_the_anchor(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(anchor: JournalAnchor, value: Any) -> None:
        anchor.value = value

    monkeypatch.setattr(JournalAnchor, "note", forgetful)


def replay_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_life, "follows", lambda _index, _applied: True)


def mark_before_data(monkeypatch: pytest.MonkeyPatch) -> None:
    class Boastful(TurnBuffer):
        def close(self, turn: int, durable: int, stored: int, continues: bool) -> memoryview:
            return super().close(turn, turn, stored, continues)

    monkeypatch.setattr(journal_module, "TurnBuffer", Boastful)


def segment_not_in_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(incarnation: int, _number: int) -> SegmentKeys:
        return SegmentKeys(incarnation, 1)

    monkeypatch.setattr(journal_module, "SegmentKeys", careless)
    monkeypatch.setattr(journal_recovery, "SegmentKeys", careless)


def torn_turn_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trusting(journal_recovery.SegmentReader):
        def read(self, turn: Any) -> Any:
            return super().read(turn)._replace(is_whole=True)

    monkeypatch.setattr(journal_recovery, "SegmentReader", Trusting)


def later_turns_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def lenient(scan: Any, _one: Any, _reader: Any, _stop: int, number: int, _durable: int) -> bool:
        scan._expected = number
        return True

    monkeypatch.setattr(journal_recovery.JournalScan, "_missing", lenient)


MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    no_sync,
    checkpoint_before_sync,
    segment_freed_too_early,
    freed_before_the_anchor,
    replay_twice,
    mark_before_data,
    segment_not_in_the_keys,
    torn_turn_counts,
    later_turns_count,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_mutant_is_caught(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    for seed in range(MUTANT_LIVES):
        try:
            if cut_everywhere(seed, {})[1]:
                return
        except (AssertionError, KeyError, StoreError):
            return  # the life itself went wrong
    pytest.fail("no life shows it")


# -- failing calls


def struck(seed: int, n: int, fault: DiskFault, *, for_ever: bool) -> tuple[bool, list[str]]:
    """Whether the n-th call of this life failed, and what was wrong then."""
    disk = SimDisk()
    disk.fail_nth(n, fault, for_ever=for_ever)
    life = None
    try:
        life = JournalLife(disk, seed, {})
        life.live(FAILING_STEPS)
    except StoreError as error:
        disk.heal()
        if life is None:
            return True, [] if str(error) else ["the error says nothing"]
        return True, after_failure(life, disk)
    return disk.faults_struck > 0, []


def after_failure(life: JournalLife, disk: SimDisk) -> list[str]:
    epoch, durable, written = life.marks["life"]
    marks = {"life": (epoch, durable, written + 2)}
    wrong = [f"power cut: {one}" for one in judged(life, disk.crash(Lose()), marks)]
    wrong += [f"by chance: {one}" for one in judged(life, disk.crash(1), marks)]
    wrong += [f"restart: {one}" for one in judged(life, disk.crash(Choice()), marks)]
    life.journal.failed()
    with suppress(StoreError):
        life.journal.append_entry(99, 1, b"x")
        wrong.append("takes entries after a failure")
    if life.journal.pending_sync(life.now_ns) or life.journal.pending_upkeep():
        wrong.append("works after a failure")
    return wrong


@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("fault", list(DiskFault), ids=lambda fault: fault.value)
def test_call_that_fails_costs_nothing_promised(
    fault: DiskFault, for_ever: bool, rounds: int, tried: Counter[str]
) -> None:
    for seed in range(201, 201 + min(rounds, FAILING_ROUNDS_MAX)):
        for n in range(1, CALLS_MAX):
            failed, wrong = struck(seed, n, fault, for_ever=for_ever)
            assert wrong == [], f"seed {seed}, {fault.value} at call {n}"
            if not failed:
                assert n > FAILING_STEPS // 4, "a life makes more calls than this"
                break
            tried["calls of journals that failed"] += 1
        else:
            pytest.fail("the life runs on and on")


def test_journal_that_takes_failed_sync_for_done_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ignore_failed_syncs(monkeypatch)
    found = []
    for n in range(8, 60, 4):
        disk = SimDisk()
        disk.fail_nth(n, DiskFault.SYNC_ERROR, for_ever=True)
        life = JournalLife(disk, 3, {})
        with suppress(StoreError):  # the anchor remembers its failed sync by itself
            life.live(STEPS)
        found += judged(life, disk.crash(Lose()), life.marks)
    assert found != []
