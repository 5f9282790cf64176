"""Random lives of stores and consumers, the power cut at every call: nothing promised is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from faults.store_lives import Life
from faults.verdicts import judged
from penstock.store.errors import NotFound
from penstock.store.format.compression import BlockCompression
from penstock.store.format.encryption import ServerKey
from penstock.testing.crash_states import crash_states
from penstock.testing.recording_disk import RecordingDisk
from penstock.testing.sim_disk import SimDisk
from support.consumer_states import Run, as_model, reopened, small_logs

if TYPE_CHECKING:
    from collections import Counter

    from penstock.testing.crash_states import CrashImage

LONG_ROUNDS = 10
STEPS = 70
IMAGES = 500
KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "plain": (8, {}),
    "cold": (2, {"warm_bytes_max": 0}),
    "lazy": (3, {"sync_always": False}),
    "compressed": (3, {"compression": BlockCompression.ZSTD}),
    "encrypted": (3, {"key": ServerKey("secret")}),
}
"""How many lives, and how the store is opened."""
CONSUMERS = 4
CONSUMER_TURNS = 14


def cut_everywhere(seed: int, options: dict[str, Any]) -> tuple[int, list[str]]:
    """How many disks a power cut could have left, and what is wrong with them."""
    plain = not options.keys() & {"compression", "key"}
    disk = RecordingDisk(SimDisk())
    life = Life(disk, seed, options)
    life.live(STEPS)
    tried, wrong = 0, []
    for image in crash_states(disk, seed=seed, images_max=IMAGES):
        tried += 1
        marks = dict(image.marks)  # type: ignore[call-overload]
        versions = life.versions[marks.get("durable", 0) : marks.get("did", 0) + 1]
        wrong += [
            f"seed {seed}, {image.description}: {fault}"
            for fault in judged(image.disk, versions, options, plain=plain)
        ]
    return tried, wrong


@pytest.mark.parametrize(
    ("kind", "life"), [(kind, life) for kind, (lives, _) in KINDS.items() for life in range(lives)]
)
def test_no_cut_at_any_call_of_life_loses_what_was_promised(
    kind: str, life: int, rounds: int, tried: Counter[str]
) -> None:
    lives, options = KINDS[kind]
    for seed in range(life, life + rounds * lives, lives):
        states, wrong = cut_everywhere(seed, options)
        tried[f"crash states of file stores, {kind}"] += states
        assert wrong == []


@pytest.mark.usefixtures(small_logs.__name__)
def test_no_cut_at_any_call_of_consumer_loses_what_was_promised(
    rounds: int, tried: Counter[str]
) -> None:
    for seed in range(500, 500 + CONSUMERS * rounds):
        disk = RecordingDisk(SimDisk())
        run = Run(disk, seed)
        disk.mark(("durable", 0))
        for turn in range(CONSUMER_TURNS):
            run.changes(run.rng.randrange(30))
            disk.mark(("did", run.store.recorded_seq))
            if turn % 7 == 6:
                reopen(run)
            else:
                run.sync()
            disk.mark(("durable", run.store.durable_seq))
        for image in crash_states(disk, seed=seed, images_max=IMAGES):
            tried["crash states of consumers"] += 1
            assert consumer_faults(run, image) == [], f"seed {seed}, {image.description}"


def reopen(run: Run) -> None:
    run.store.close()
    run.store, report = reopened(run.disk)  # type: ignore[arg-type]
    assert report.clean


def consumer_faults(run: Run, image: CrashImage) -> list[str]:
    marks = dict(image.marks)  # type: ignore[call-overload]
    try:
        store, report = reopened(image.disk)
    except NotFound:
        return ["is not there"] if marks else []
    wrong = [f"called damaged: {report}"] if report.damage or report.lost else []
    if not marks.get("durable", 0) <= store.recorded_seq <= marks.get("did", 0):
        wrong.append(f"at {store.recorded_seq}, promised was {marks}")
    if as_model(store.state) != run.history[store.recorded_seq]:
        wrong.append(f"not the state after change {store.recorded_seq}")
    return wrong


def test_store_that_does_not_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordingDisk, "fdatasync", lambda _disk, _file: None)
    assert cut_everywhere(0, {})[1] != []
