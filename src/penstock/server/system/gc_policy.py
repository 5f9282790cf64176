"""Freezer: keeps Python's garbage collector from scanning streams and consumers repeatedly.

A full collection scans every live object, and the server serves no client meanwhile: with 100,000
consumers that takes seconds. Streams and consumers live long, so after many were created, the
Freezer freezes all objects that survived a full collection; they are scanned once. After most of
the streams and consumers were deleted it unfreezes everything, because they may contain reference
cycles that only the collector frees.

Only for a dedicated server process: a program that embeds a server owns its collector settings.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FULL: Final = 2
"""The generation whose collection scans everything."""
ASSETS_STEP: Final = 1_000
"""Freezing also catches unrelated objects that happen to be alive, so it is done rarely. Scanning
fewer new streams and consumers than this takes some hundredths of a second."""


class Freezer:
    """A garbage collector callback; `count` returns the number of streams and consumers."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._frozen = count()

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if phase != "stop" or info["generation"] < FULL:
            return
        count = self._count()
        if count >= self._frozen + ASSETS_STEP:
            self._frozen = count
            gc.freeze()
        elif count < self._frozen // 2:
            self._frozen = count
            gc.unfreeze()
