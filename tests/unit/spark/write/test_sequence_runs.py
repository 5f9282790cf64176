"""Sets of sequences as runs: packing loses nothing, and a shared sequence is found."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.write.sequence_runs import SequenceRuns

RUNS = st.lists(st.tuples(st.integers(1, 200), st.integers(0, 9)), max_size=20)


def members(runs: list[tuple[int, int]]) -> list[int]:
    return [seq for first, more in runs for seq in range(first, first + more + 1)]


@given(RUNS)
def test_shared_sequence_is_found_if_and_only_if_there_is_one(
    runs: list[tuple[int, int]],
) -> None:
    made = SequenceRuns()
    made.extend((first, first + more) for first, more in runs)
    packed = SequenceRuns()
    packed.unpack(made.packed())
    all_of_them = members(runs)
    for one in (made, packed):
        shared = one.shared()
        if shared is None:
            assert len(set(all_of_them)) == len(all_of_them)
        else:
            assert all_of_them.count(shared) > 1


def test_runs_that_touch_are_one() -> None:
    made = SequenceRuns()
    made.extend([(1, 5), (6, 6), (7, 9), (2_000_000_000_000, 2_000_000_000_001)])
    assert len(made) == 2
    assert made.shared() is None


def test_runs_of_several_tasks_are_compared() -> None:
    first, second, both = SequenceRuns(), SequenceRuns(), SequenceRuns()
    first.extend([(1, 5), (20, 30)])
    second.extend([(6, 19), (30, 31)])
    both.unpack(first.packed())
    both.unpack(second.packed())
    assert both.shared() == 30


def test_nothing_is_shared_by_nothing() -> None:
    empty = SequenceRuns()
    empty.unpack(SequenceRuns().packed())
    assert empty.shared() is None
