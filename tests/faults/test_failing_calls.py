"""Every call to the disk fails once: what was promised stays, refusals are clear, nothing hangs.

A life runs until the n-th call fails, for every n until none is left to fail. Then the store must
refuse to write, in words, and still read; and both a new process on the healed disk and one after
a power cut must find everything that was promised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from faults.store_lives import Life, opened
from faults.sync_mutants import ignore_failed_syncs
from faults.verdicts import contents, judged, wrong_with
from penstock.store.errors import StoreError
from penstock.testing.sim_disk import DiskFault, SimDisk
from penstock.testing.sim_files import Choice, Lose

if TYPE_CHECKING:
    from collections import Counter

LONG_ROUNDS = 5
STEPS = 60
CALLS_MAX = 3000
"""A life that makes more calls than this has run away."""


def struck(
    seed: int, n: int, fault: DiskFault, options: dict[str, Any], *, for_ever: bool = True
) -> tuple[bool, list[str]]:
    """Whether the n-th call of this life failed, and what was wrong then."""
    disk = SimDisk()
    disk.fail_nth(n, fault, for_ever=for_ever)
    try:
        life = Life(disk, seed, options)
    except StoreError:
        disk.heal()
        return True, judged(disk.crash(Choice()), [_nothing()], {}, plain=True)
    try:
        life.live(STEPS)
    except StoreError as error:
        disk.heal()
        return True, _after(life, disk, error)
    return disk.faults_struck > 0, []


def _nothing() -> Any:
    return Life(SimDisk(), 0, {}).versions[0]


def _after(life: Life, disk: SimDisk, error: StoreError) -> list[str]:
    wrong = [] if str(error) else ["the error says nothing"]
    wrong += _refuses(life)
    versions = life.versions[life.durable :]
    wrong += [f"power cut: {one}" for one in judged(disk.crash(Lose()), versions, {}, plain=True)]
    wrong += [f"by chance: {one}" for one in judged(disk.crash(1), versions, {}, plain=True)]
    # Without a cut: what a failed sync left in doubt stays in doubt, so only the image is opened.
    wrong += [f"restart: {one}" for one in wrong_with(opened(disk.crash(Choice()), {}), versions)]
    return wrong


def _refuses(life: Life) -> list[str]:
    """A store whose work failed takes nothing any more, and reads what it had."""
    if life.working:
        held = contents(life.store)
        try:
            life.store.append("a", b"", b"", life.now_ns)
        except StoreError as refusal:
            if "earlier" not in str(refusal):
                return [f"refuses in other words: {refusal}"]
        else:
            return ["takes messages after its disk failed"]
        if contents(life.store) != held:
            return ["forgets what it held"]
    return []


@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("fault", list(DiskFault), ids=lambda fault: fault.value)
def test_call_that_fails_costs_nothing_promised(
    fault: DiskFault, for_ever: bool, rounds: int, tried: Counter[str]
) -> None:
    for seed in range(101, 101 + rounds):
        for n in range(1, CALLS_MAX):
            failed, wrong = struck(seed, n, fault, {}, for_ever=for_ever)
            assert wrong == [], f"seed {seed}, {fault.value} at call {n}"
            if not failed:
                assert n > STEPS // 4, "a life makes more calls than this"
                break
            tried["calls that failed"] += 1
        else:
            pytest.fail("the life runs on and on")


def test_store_that_takes_failed_sync_for_done_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ignore_failed_syncs(monkeypatch)
    disk = SimDisk()
    life = Life(disk, 100, {})
    disk.fail_nth(1, DiskFault.SYNC_ERROR, for_ever=True)
    life.live(STEPS)
    assert judged(disk.crash(Lose()), life.versions[life.durable :], {}, plain=True) != []


@pytest.mark.parametrize(
    "fault", [DiskFault.EIO, DiskFault.SYNC_ERROR], ids=lambda fault: fault.value
)
def test_cold_store_is_read_although_its_disk_fails(fault: DiskFault, tried: Counter[str]) -> None:
    """Whether or not a block had been replaced by then."""
    for n in range(1, CALLS_MAX):
        failed, wrong = struck(105, n, fault, {"warm_bytes_max": 0})
        assert wrong == [], f"call {n}"
        if not failed:
            break
        tried["calls that failed"] += 1
