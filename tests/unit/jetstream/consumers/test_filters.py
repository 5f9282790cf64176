"""The filter's question, against the relation it stands for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from models.subjects import LITERALS, matches
from penstock.jetstream.consumers.filters import SubjectFilter

tokens = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3)
patterns = st.tuples(tokens, st.sampled_from(["", ".>"])).map(lambda p: ".".join(p[0]) + p[1])


@given(st.lists(patterns, max_size=3) | st.lists(patterns, min_size=8, max_size=20))
def test_filter_matches_what_some_pattern_matches(row: list[str]) -> None:
    asked = SubjectFilter(tuple(row))
    for literal in LITERALS:
        assert asked.matches(literal) == (not row or any(matches(literal, p) for p in row))
