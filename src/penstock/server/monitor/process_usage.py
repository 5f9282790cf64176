"""Resource usage of this process: processors, memory, share of a processor.

The share is measured between two samples at least SAMPLE_NS_MIN apart, so that frequent scrapes do
not measure themselves.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

SAMPLE_NS_MIN: Final = 1_000_000_000
RESIDENT_FIELD: Final = 1
_STATM: Final = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 if the system does not report it."""
    try:
        pages = int(_STATM.read_text().split()[RESIDENT_FIELD])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def processors() -> int:
    return os.cpu_count() or 1


def usable_processors() -> int:
    return len(os.sched_getaffinity(0))


class ProcessorShare:
    """Percentage of one processor since the previous sample."""

    def __init__(self) -> None:
        self._looked_ns = time.monotonic_ns()
        self._spent_ns = time.process_time_ns()
        self._percent = 0.0

    def percent(self) -> float:
        now_ns, spent_ns = time.monotonic_ns(), time.process_time_ns()
        span_ns = now_ns - self._looked_ns
        if span_ns >= SAMPLE_NS_MIN:
            self._percent = round(100 * (spent_ns - self._spent_ns) / span_ns, 1)
            self._looked_ns, self._spent_ns = now_ns, spent_ns
        return self._percent
