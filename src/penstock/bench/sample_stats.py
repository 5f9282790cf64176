"""Medians, spreads and percentiles of small samples. Pure functions, no formatting."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Self


@dataclass(frozen=True, slots=True)
class Spread:
    """Several measurements of one figure: the median and the two extremes."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        return cls(median(values), min(values), max(values))

    @property
    def relative(self) -> float:
        """Return the distance between the extremes divided by the median; 0 for a median of 0."""
        return (self.high - self.low) / self.median if self.median else 0.0


@dataclass(frozen=True, slots=True)
class Latency:
    """Round-trip times in nanoseconds."""

    p50_ns: int
    p90_ns: int
    p99_ns: int
    max_ns: int

    @classmethod
    def of(cls, samples: Sequence[int]) -> Self:
        ordered = sorted(samples)
        return cls(
            percentile(ordered, 50), percentile(ordered, 90), percentile(ordered, 99), ordered[-1]
        )


def percentile(ordered: Sequence[int], percent: float) -> int:
    """Return the smallest value that `percent` of the samples do not exceed (nearest rank)."""
    rank = max(1, ceil(len(ordered) * percent / 100))
    return ordered[rank - 1]


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    """Return the quotient; None if a side is missing or the denominator is zero."""
    if numerator is None or not denominator:
        return None
    return numerator / denominator
