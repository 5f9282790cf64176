"""Lists of patterns: the trie finds what a comparison of all with all finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.base.slices import finish
from penstock.subjects.match import collides, is_subset
from penstock.subjects.pattern_set import PatternIndex, PatternList

TOKENS = st.sampled_from(["a", "b", "c", "*", ">", "*x", ">x", ""])
PATTERNS = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)
LISTS = st.lists(PATTERNS, max_size=12)


def filled(patterns: list[str]) -> PatternList:
    found = PatternList(patterns)
    finish(found.fill())
    return found


@given(LISTS)
def test_first_later_collision_is_that_of_all_pairs(patterns: list[str]) -> None:
    found = filled(patterns)
    for at, pattern in enumerate(patterns):
        later = (n for n in range(at + 1, len(patterns)) if collides(patterns[n], pattern))
        assert finish(found.met_later(at)) == next(later, None)
        assert found.is_duplicate(at) == (pattern in patterns[:at])


@given(LISTS)
def test_collisions_with_others_are_those_of_all_pairs(patterns: list[str]) -> None:
    found = filled(patterns)
    for at, pattern in enumerate(patterns):
        others = patterns[:at] + patterns[at + 1 :]
        assert finish(found.meets_other(at)) == any(collides(pattern, one) for one in others)


@given(LISTS)
def test_covered_patterns_are_those_of_all_pairs(patterns: list[str]) -> None:
    found = filled(patterns)
    for at, pattern in enumerate(patterns):
        others = patterns[:at] + patterns[at + 1 :]
        assert finish(found.is_covered(at)) == any(is_subset(pattern, one) for one in others)


@given(LISTS, PATTERNS)
def test_index_finds_every_pattern_that_meets_another(patterns: list[str], asked: str) -> None:
    index: PatternIndex[int] = PatternIndex()
    for at, pattern in enumerate(patterns):
        index.add(pattern, at)
    expected = {at for at, pattern in enumerate(patterns) if collides(asked, pattern)}
    assert set(index.owners_meeting(asked)) == expected
