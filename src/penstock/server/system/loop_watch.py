"""LoopWatch: records how long the event loop is held; a histogram, the maximum, stall log lines.

The IoLoop reports every turn of at least NOTED_NS and counts the shorter ones; work outside a turn
runs through `run`. Dispatchers that measure their parts anyway call `note` with the longest part,
so a stall is logged with its cause: a request, a stream's commit, a garbage collection. Turns
shorter than NOTED_NS call nothing here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from penstock.server.server_log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.server.net.io_loop import IoLoop

MILLISECOND_NS: Final = 1_000_000
NOTED_NS: Final = 1_000_000
"""Turns shorter than this are only counted; io_loop.pyx has the same value."""
STALL_LOG_NS: Final = 250_000_000
"""A turn that holds the loop longer is logged, with the operation that took most of the time."""
BOUNDS_MS: Final = (1, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000)
"""Upper bounds of the histogram buckets."""


class LoopWatch:
    """Records what holds the event loop of one server."""

    def __init__(self, io_loop: IoLoop, *, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._io_loop = io_loop
        self._clock_ns = clock_ns
        self._counts = [0] * (len(BOUNDS_MS) + 1)
        self._part_ns = 0
        self._part = ""
        self._depth = 0
        self.total_ns = 0
        """Time of all recorded turns."""
        self.stalls = 0
        """Number of logged turns."""
        self.worst_ns = 0
        self.worst_operation = ""
        io_loop.set_watch(self)

    def note(self, span_ns: int, operation: str) -> None:
        """Record a part of the current turn; the longest one names the turn."""
        if span_ns > self._part_ns:
            self._part_ns, self._part = span_ns, operation

    def turn_ended(self, span_ns: int) -> None:
        """Record a turn of the IoLoop."""
        if not self._depth:
            self._ended(span_ns, "serving clients")

    def run(self, operation: str, call: Callable[[], object]) -> None:
        """Run and measure a callback of the event loop outside a turn."""
        began_ns = self._clock_ns()
        self._depth += 1
        try:
            call()
        finally:
            self._depth -= 1
            span_ns = self._clock_ns() - began_ns
            if span_ns >= NOTED_NS and not self._depth:
                self._ended(span_ns, operation)

    def _ended(self, span_ns: int, operation: str) -> None:
        if 2 * self._part_ns >= span_ns:
            operation = self._part
        self._part_ns = 0
        self.total_ns += span_ns
        for at, bound_ms in enumerate(BOUNDS_MS):
            if span_ns <= bound_ms * MILLISECOND_NS:
                self._counts[at] += 1
                break
        else:
            self._counts[-1] += 1
        if span_ns > self.worst_ns:
            self.worst_ns, self.worst_operation = span_ns, operation
        if span_ns > STALL_LOG_NS:
            self.stalls += 1
            log.warning(
                "the event loop was held for %d ms by: %s", span_ns // MILLISECOND_NS, operation
            )

    def histogram(self) -> list[tuple[int | None, int]]:
        """Return (bound in ms, turns up to that bound), cumulative; None: all turns."""
        total = self._io_loop.short_turns
        found: list[tuple[int | None, int]] = []
        for bound_ms, count in zip((*BOUNDS_MS, None), self._counts, strict=True):
            total += count
            found.append((bound_ms, total))
        return found


class CollectorWatch:
    """A garbage collector callback that reports long collections."""

    def __init__(
        self, watch: LoopWatch, *, clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._watch = watch
        self._clock_ns = clock_ns
        self._began_ns = 0

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began_ns = self._clock_ns()
            return
        span_ns = self._clock_ns() - self._began_ns
        if span_ns >= NOTED_NS:
            self._watch.note(span_ns, f"garbage collection, generation {info['generation']}")
