"""Freezer: keeps Python's garbage collector from scanning long-lived objects repeatedly.

A full collection scans every live object, and the server serves no client meanwhile: with 100,000
consumers, or streams with thousands of sources, that takes seconds. So after a full collection that
took long, or after many streams and consumers were created, the Freezer freezes all objects that
survived; they are scanned once. Frozen objects without references to them are freed as always, but
reference cycles among them are not. So it unfreezes everything, for one full collection, when the
number of allocated objects has doubled or when most streams and consumers were deleted. Doubling
bounds the memory of frozen garbage, and the number of such collections.

Only for a dedicated server process: a program that embeds a server owns its collector settings.
"""

from __future__ import annotations

import gc
import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FULL: Final = 2
"""The generation whose collection scans everything."""
ASSETS_STEP: Final = 1_000
"""Freezing also catches unrelated objects that happen to be alive, so it is done rarely. Scanning
fewer new streams and consumers than this takes some hundredths of a second."""
LONG_NS: Final = 5_000_000
"""After a full collection that took this long, its survivors are frozen."""
BLOCKS_MIN: Final = 1_000_000
"""Below this number of allocated objects, doubling does not unfreeze."""


class Freezer:
    """A garbage collector callback; `count` returns the number of streams and consumers."""

    def __init__(
        self,
        count: Callable[[], int],
        *,
        clock_ns: Callable[[], int] = time.thread_time_ns,
        blocks: Callable[[], int] = sys.getallocatedblocks,
    ) -> None:
        self._count = count
        self._clock_ns = clock_ns
        self._blocks = blocks
        self._frozen = count()
        self._scanned = max(blocks(), BLOCKS_MIN)
        """Allocated objects when a collection last scanned everything."""
        self._is_thawed = False
        self._began_ns = 0

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if info["generation"] < FULL:
            return
        if phase == "start":
            self._began_ns = self._clock_ns()
            return
        count, blocks = self._count(), self._blocks()
        is_long = self._clock_ns() - self._began_ns >= LONG_NS
        if self._is_thawed:
            self._is_thawed = False
            self._scanned = max(blocks, BLOCKS_MIN)
            self._freeze(count)
        elif blocks >= 2 * self._scanned or self._are_most_deleted(count):
            self._is_thawed = True
            self._frozen = count
            gc.unfreeze()
        elif is_long or count >= self._frozen + ASSETS_STEP:
            self._freeze(count)

    def _are_most_deleted(self, count: int) -> bool:
        return self._frozen - count >= max(ASSETS_STEP, self._frozen // 2)

    def _freeze(self, count: int) -> None:
        self._frozen = count
        gc.freeze()
