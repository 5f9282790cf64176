"""Records how far each copy is while the demo runs: the numbers behind its charts."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLE_SECONDS = 0.05

PUBLISHED, LIVE, EDGE, ARCHIVE = "published", "live fold", "edge fold", "Spark archive"


class Gauges:
    """Samples of counts by name; a count is read until its copy is closed."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._read: dict[str, Callable[[], int]] = {}
        self.samples: dict[str, list[tuple[float, int]]] = defaultdict(list)

    def now(self) -> float:
        return time.perf_counter() - self._began

    def watch(self, name: str, read: Callable[[], int]) -> None:
        self._read[name] = read

    def close(self, name: str) -> None:
        """Take a last sample; the copy is about to close."""
        self.record(name, self._read.pop(name)())

    def record(self, name: str, count: int) -> None:
        self.samples[name].append((self.now(), count))

    def latest(self) -> str:
        """Return the last counts, for a line on the screen."""
        return "  ".join(f"{name} {taken[-1][1]:,}" for name, taken in self.samples.items())

    async def run(self) -> None:
        """Sample all counts until cancelled."""
        while True:
            for name, read in self._read.items():
                self.record(name, read())
            await asyncio.sleep(SAMPLE_SECONDS)

    def rates(self, name: str, seconds: float) -> list[tuple[int, float]]:
        """Return the growth of a count per second, in windows of so many seconds in which it grew.

        The first of each pair is the number of changes published by then, so that pauses of the
        publisher take no room in a chart.
        """
        found: list[tuple[int, float]] = []
        taken = self.samples[name]
        first = taken[0] if taken else (0.0, 0)
        for (at, count), published in zip(taken, self._published_at(name), strict=True):
            if at - first[0] >= seconds:
                if count > first[1]:
                    found.append((published, (count - first[1]) / (at - first[0])))
                first = at, count
        return found

    def lags(self, name: str) -> list[tuple[int, int]]:
        """Return, for each sample of a copy, the changes published and those it did not have."""
        taken = zip(self.samples[name], self._published_at(name), strict=True)
        return [(published, max(0, published - count)) for (_, count), published in taken]

    def _published_at(self, name: str) -> list[int]:
        """Return the changes published at each sample of a count."""
        times = [at for at, _ in self.samples[PUBLISHED]]
        counts = [count for _, count in self.samples[PUBLISHED]]
        return [counts[max(0, bisect(times, at) - 1)] for at, _ in self.samples[name]]
