"""Medians, percentiles and ratios, against their definitions."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.sample_stats import Latency, Spread, percentile, ratio


@given(st.lists(st.integers(0, 1000), min_size=1), st.integers(1, 100))
def test_percentile_is_least_value_that_enough_samples_do_not_exceed(
    samples: list[int], percent: int
) -> None:
    found = percentile(sorted(samples), percent)
    enough = [
        value
        for value in samples
        if sum(other <= value for other in samples) * 100 >= percent * len(samples)
    ]
    assert found == min(enough)


def test_latency_of_hundred_samples_reads_off_ranks() -> None:
    assert Latency.of(range(100, 0, -1)) == Latency(50, 90, 99, 100)


def test_spread_keeps_middle_and_extremes() -> None:
    spread = Spread.of([4.0, 1.0, 2.0])
    assert (spread.median, spread.low, spread.high) == (2.0, 1.0, 4.0)
    assert spread.relative == 1.5


def test_spread_around_zero_has_no_relative_width() -> None:
    assert Spread.of([0.0, 0.0]).relative == 0.0


def test_ratio_needs_both_sides() -> None:
    assert ratio(6.0, 3.0) == 2.0
    assert ratio(None, 3.0) is None
    assert ratio(6.0, None) is None
    assert ratio(6.0, 0.0) is None
