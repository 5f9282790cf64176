"""The collector skips assets once there are many new ones, and looks when most were removed."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from penstock.server.system.gc_policy import ASSETS_STEP, FULL, Freezer

if TYPE_CHECKING:
    import pytest


def test_frozen_objects_follow_number_of_assets(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: done.append("unfreeze"))
    count = 0
    freezer = Freezer(lambda: count)

    def collected(assets: int, phase: str = "stop", generation: int = FULL) -> list[str]:
        nonlocal count
        count = assets
        done.clear()
        freezer(phase, {"generation": generation})
        return [*done]

    assert collected(ASSETS_STEP - 1) == []
    assert collected(ASSETS_STEP, phase="start") == []
    assert collected(ASSETS_STEP, generation=1) == []
    assert collected(ASSETS_STEP) == ["freeze"]
    assert collected(2 * ASSETS_STEP - 1) == []
    assert collected(2 * ASSETS_STEP) == ["freeze"]
    assert collected(ASSETS_STEP) == []
    assert collected(ASSETS_STEP - 1) == ["unfreeze"]
    assert collected(0) == ["unfreeze"]
    assert collected(0) == []


def test_full_collection_does_not_look_at_what_was_frozen() -> None:
    """Of the real collector: freezing within its callback is allowed, and thawing brings back."""
    count = 0
    freezer = Freezer(lambda: count)
    was_frozen = gc.get_freeze_count() > 0
    gc.callbacks.append(freezer)
    try:
        count = ASSETS_STEP
        gc.collect()
        frozen = gc.get_freeze_count()
        count = 0
        gc.collect()
        assert frozen > 0
        assert gc.get_freeze_count() == 0
    finally:
        gc.callbacks.remove(freezer)
        gc.unfreeze()
        if was_frozen:
            gc.freeze()
