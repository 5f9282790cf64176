"""Subjects under another name, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.subjects.match import match_literal
from penstock.subjects.pattern_rewrite import Renaming
from penstock.subjects.transform import TransformFault

WORDS = st.lists(st.sampled_from(("a", "b", "c")), min_size=3, max_size=3)


@pytest.mark.parametrize(
    ("theirs", "ours", "there", "here"),
    [
        ("$JS.API.>", "their.api.>", "$JS.API.STREAM.NAMES", "their.api.STREAM.NAMES"),
        ("a.*", "p.a.*", "a.x", "p.a.x"),
        ("a.*.b.*", "x.$2.$1", "a.1.b.2", "x.2.1"),
        ("a.*.*", "{{wildcard(2)}}.q.{{Wildcard( 1 )}}", "a.1.2", "2.q.1"),
        ("a.>", "a.>", "a.b.c", "a.b.c"),
        ("one", "other", "one", "other"),
    ],
)
def test_subjects_have_another_name_here(theirs: str, ours: str, there: str, here: str) -> None:
    renaming = Renaming(theirs, ours)
    assert renaming.inward(there) == here
    assert renaming.outward(here) == there
    assert match_literal(here, renaming.ours)


@given(WORDS, st.permutations((1, 2, 3)))
def test_exported_and_imported_data_are_equal(words: list[str], order: list[int]) -> None:
    renaming = Renaming("x.*.*.*.>", ".".join(f"${n}" for n in order) + ".y.>")
    subject = ".".join(["x", *words, "tail", "end"])
    assert renaming.outward(renaming.inward(subject)) == subject


def test_patterns_are_renamed_as_literals_are() -> None:
    renaming = Renaming("a.*.b.*", "x.$2.$1")
    assert renaming.ours == "x.*.*"
    assert renaming.outward("x.*.1") == "a.1.b.*"
    assert Renaming("a.>", "b.>").outward("b.*") == "a.*"


def test_one_subject_there_is_one_whatever_is_asked_for_here() -> None:
    assert Renaming("one", "any.*").outward("any.thing") == "one"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("a.*", "b"), ("a.*", "b.$2"), ("a.*.*", "b.$1"), ("a.>", "b"), ("a.*", "{{left(1,2)}}")],
)
def test_irreversible_changes_are_refused(theirs: str, ours: str) -> None:
    with pytest.raises(TransformFault):
        Renaming(theirs, ours)
