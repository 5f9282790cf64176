"""The collector skips long-lived objects once they are many, and scans them again when they may be
garbage."""

from __future__ import annotations

import gc

import pytest

from penstock.server.system.gc_policy import ASSETS_STEP, BLOCKS_MIN, FULL, LONG_NS, Freezer


class Process:
    """A process whose assets, objects and clock the test sets."""

    def __init__(self) -> None:
        self.assets = 0
        self.blocks = BLOCKS_MIN
        self.now_ns = 0
        self.done: list[str] = []
        self.freezer = Freezer(
            lambda: self.assets, clock_ns=lambda: self.now_ns, blocks=lambda: self.blocks
        )

    def collected(
        self, assets: int, *, span_ns: int = 0, generation: int = FULL, blocks: int = BLOCKS_MIN
    ) -> list[str]:
        """Return what the Freezer does after a collection."""
        self.assets, self.blocks = assets, blocks
        self.done.clear()
        self.freezer("start", {"generation": generation})
        self.now_ns += span_ns
        self.freezer("stop", {"generation": generation})
        return [*self.done]


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    made = Process()
    monkeypatch.setattr(gc, "freeze", lambda: made.done.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: made.done.append("unfreeze"))
    return made


def test_many_new_assets_are_frozen(process: Process) -> None:
    assert process.collected(ASSETS_STEP - 1) == []
    assert process.collected(ASSETS_STEP, generation=1) == []
    assert process.collected(ASSETS_STEP) == ["freeze"]
    assert process.collected(2 * ASSETS_STEP - 1) == []
    assert process.collected(2 * ASSETS_STEP) == ["freeze"]


def test_survivors_of_long_collection_are_frozen(process: Process) -> None:
    assert process.collected(1, span_ns=LONG_NS - 1) == []
    assert process.collected(1, span_ns=LONG_NS) == ["freeze"]
    assert process.collected(1, span_ns=LONG_NS, generation=1) == []


def test_deleting_most_assets_unfreezes_for_one_collection(process: Process) -> None:
    process.collected(4 * ASSETS_STEP)
    assert process.collected(2 * ASSETS_STEP + 1) == []
    assert process.collected(2 * ASSETS_STEP) == ["unfreeze"]
    assert process.collected(2 * ASSETS_STEP) == ["freeze"]
    assert process.collected(2 * ASSETS_STEP) == []


def test_deleting_few_assets_never_unfreezes(process: Process) -> None:
    process.collected(4, span_ns=LONG_NS)
    assert process.collected(0) == []


def test_twice_as_many_objects_unfreeze_for_one_collection(process: Process) -> None:
    assert process.collected(0, blocks=2 * BLOCKS_MIN - 1) == []
    assert process.collected(0, blocks=2 * BLOCKS_MIN, span_ns=LONG_NS) == ["unfreeze"]
    assert process.collected(0, blocks=3 * BLOCKS_MIN, span_ns=LONG_NS) == ["freeze"]
    assert process.collected(0, blocks=6 * BLOCKS_MIN - 1) == []
    assert process.collected(0, blocks=6 * BLOCKS_MIN) == ["unfreeze"]


def test_full_collection_skips_frozen_objects() -> None:
    """With the real collector: its callback may freeze and unfreeze."""
    count, blocks = 0, BLOCKS_MIN
    freezer = Freezer(lambda: count, blocks=lambda: blocks)
    was_frozen = gc.get_freeze_count() > 0
    gc.callbacks.append(freezer)
    try:
        count = ASSETS_STEP
        gc.collect()
        frozen = gc.get_freeze_count()
        blocks = 2 * BLOCKS_MIN
        gc.collect()
        assert frozen > 0
        assert gc.get_freeze_count() == 0
        gc.collect()
        assert gc.get_freeze_count() > 0
    finally:
        gc.callbacks.remove(freezer)
        gc.unfreeze()
        if was_frozen:
            gc.freeze()
