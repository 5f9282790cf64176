"""Keeps Python's garbage collector from walking through streams and consumers again and again.

A full collection looks at everything that is alive, and nothing is served meanwhile: with 100,000
consumers that takes seconds. What streams and consumers are made of stays for long, so whenever
many have come, all that just survived a full collection is frozen: it is looked at once. Where
most of them are gone again, everything is thawed, since parts of them may refer to each other in
circles, which only the collector takes apart.

For a process that is nothing but a server: in a program that embeds one, the collector is not ours.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FULL: Final = 2
"""The generation whose collection looks at everything."""
ASSETS_STEP: Final = 1_000
"""Freezing catches others that are alive by chance, too: it is done seldom. Fewer new streams and
consumers than this are looked through in some hundredths of a second."""


class Freezer:
    """A callback of the collector; `count` tells how many streams and consumers there are."""

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
