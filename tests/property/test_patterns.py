"""The index of patterns against asking each of them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.subjects.match import collides
from penstock.subjects.pattern_set import PatternIndex
from penstock.subjects.tokens import is_valid_subject

TOKENS = st.sampled_from(["a", "b", "c", "*", ">", "*x", ">y", "a*", ""])
ASKED = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)
PATTERNS = ASKED.filter(is_valid_subject)


@given(st.lists(PATTERNS, max_size=12, unique=True), st.data())
@settings(max_examples=500, deadline=None)
def test_index_finds_exactly_what_collides(patterns: list[str], data: st.DataObject) -> None:
    index: PatternIndex[str] = PatternIndex()
    for pattern in patterns:
        index.add(pattern, f"owner of {pattern}")
    removed = data.draw(st.sets(st.sampled_from(patterns))) if patterns else set()
    for pattern in removed:
        index.remove(pattern, f"owner of {pattern}")
    asked = data.draw(ASKED)
    expected = {
        f"owner of {one}" for one in patterns if one not in removed and collides(asked, one)
    }
    assert set(index.owners_meeting(asked)) == expected


@given(st.lists(PATTERNS, max_size=12, unique=True))
def test_nothing_remains_of_what_was_taken_out(patterns: list[str]) -> None:
    index: PatternIndex[str] = PatternIndex()
    for pattern in patterns:
        index.add(pattern, "one")
    for pattern in patterns:
        index.remove(pattern, "one")
    assert index._root.is_empty
