"""Random lives of stores and consumers, the power cut at every call: nothing promised is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from faults.lives import Life
from faults.verdicts import judged
from penstock.testing.crash_states import crash_states
from penstock.testing.recording import RecordingDisk
from penstock.testing.simdisk import SimDisk

if TYPE_CHECKING:
    from collections import Counter

STEPS = 70
LIVES = 12
IMAGES = 500


def cut_everywhere(seed: int, options: dict[str, Any], *, plain: bool) -> tuple[int, list[str]]:
    """How many disks a power cut could have left, and what is wrong with them."""
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


@pytest.mark.parametrize("life", range(LIVES))
def test_no_cut_at_any_call_of_a_life_loses_what_was_promised(
    life: int, rounds: int, tried: Counter[str]
) -> None:
    for seed in range(life, life + rounds * LIVES, LIVES):
        states, wrong = cut_everywhere(seed, {}, plain=True)
        tried["crash states of file stores"] += states
        assert wrong == []


def test_a_store_that_does_not_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordingDisk, "fdatasync", lambda _disk, _file: None)
    assert cut_everywhere(0, {}, plain=True)[1] != []
