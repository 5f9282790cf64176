"""How subjects compare, and where they overlap, against the model that tries every literal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import subjects as model
from penstock.subjects.match import collides, is_subset, match_literal, overlap
from penstock.subjects.tokens import has_wildcard, is_valid_subject

TOKEN = st.sampled_from((*model.ALPHABET, "*", ">"))
PATTERN = (
    st.lists(TOKEN, min_size=1, max_size=model.TOKENS_MAX).map(".".join).filter(is_valid_subject)
)
LITERAL = st.sampled_from(model.LITERALS)
ANYTHING = st.text(alphabet="ab.*>", max_size=10)


@given(LITERAL, PATTERN)
def test_literal_matches_as_in_model(literal: str, pattern: str) -> None:
    assert match_literal(literal, pattern) == model.matches(literal, pattern)


@given(PATTERN, PATTERN)
def test_subset_matches_nothing_outside_its_superset(inner: str, outer: str) -> None:
    assert is_subset(inner, outer) == (model.matched(inner) <= model.matched(outer))


@given(PATTERN, PATTERN)
def test_patterns_collide_when_they_share_literal(left: str, right: str) -> None:
    assert collides(left, right) == bool(model.matched(left) & model.matched(right))


@given(PATTERN, PATTERN)
def test_patterns_overlap_in_what_both_match(left: str, right: str) -> None:
    common = overlap(left, right)
    both = model.matched(left) & model.matched(right)
    assert (set() if common is None else model.matched(common)) == both


@given(ANYTHING, ANYTHING)
def test_collision_is_symmetric_even_on_garbage(left: str, right: str) -> None:
    assert collides(left, right) == collides(right, left)


@given(ANYTHING)
def test_subject_with_empty_token_is_found_by_no_pattern(subject: str) -> None:
    broken = f"{subject}..x"
    assert not any(match_literal(broken, pattern) for pattern in (">", "*.>", broken))


@pytest.mark.parametrize(
    ("literal", "pattern", "found"),
    [("a.*", "a.*", True), ("a.*", "a.>", True), ("a.*", "a.b", False), ("a.>", "a.*", True)],
)
def test_wildcards_in_published_subject_are_ordinary_tokens(
    literal: str, pattern: str, found: bool
) -> None:
    assert match_literal(literal, pattern) is found


def test_nothing_matches_tail_wildcard_with_no_token() -> None:
    assert not match_literal("a", "a.>")
    assert not is_subset("a", "a.>")
    assert not collides("a", "a.>")


@pytest.mark.parametrize(("left", "right"), [("*x.*", "a.*"), (">x.*", "a.*"), ("*.a", "*.*x")])
def test_among_patterns_token_starting_with_wildcard_collides(left: str, right: str) -> None:
    assert has_wildcard(left)
    assert has_wildcard(right)
    assert collides(left, right)


def test_in_subset_token_starting_with_star_covers_any_literal_token() -> None:
    assert is_subset("a.b", "*x.b")
    assert not is_subset("*.b", "*x.b")
