"""Validity of subjects and the wildcard tests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.subjects.tokens import (
    has_wildcard,
    is_valid_literal,
    is_valid_subject,
    token_at,
    tokenise,
)

TEXT = st.text(alphabet="ab.*> \t", max_size=12)


@pytest.mark.parametrize(
    "subject",
    ["a", "a.b", "a.*", "*", ">", "*.>", "a.>", "f*o.b>r", "foo*", "grüße", "\x00.a"],
)
def test_row_of_non_empty_tokens_is_valid_subject(subject: str) -> None:
    assert is_valid_subject(subject)


@pytest.mark.parametrize("subject", ["", ".", "a.", ".a", "a..b", "a.>.b", ">.a", ">.>"])
def test_empty_tokens_and_tokens_after_tail_wildcard_are_invalid(subject: str) -> None:
    assert not is_valid_subject(subject)


@pytest.mark.parametrize("blank", [" ", "\t", "\n", "\r", "\f"])
def test_blank_characters_are_invalid_anywhere(blank: str) -> None:
    assert not is_valid_subject(blank)
    assert not is_valid_subject(f"a{blank}b")
    assert not is_valid_subject(f"a.{blank}")


@pytest.mark.parametrize("subject", ["f*o", "*a", "a>", ">>", "**", "a.*b.c"])
def test_wildcard_character_inside_token_is_ordinary(subject: str) -> None:
    assert not has_wildcard(subject)
    assert is_valid_literal(subject)


@pytest.mark.parametrize("subject", ["*", ">", "a.*", "*.a", "a.*.b", "a.>"])
def test_whole_wildcard_token_makes_pattern(subject: str) -> None:
    assert has_wildcard(subject)
    assert not is_valid_literal(subject)


def test_tokens_are_counted_from_one() -> None:
    assert [token_at("a.b.c", position) for position in range(5)] == ["", "a", "b", "c", ""]


@given(TEXT)
def test_cut_into_tokens_can_be_undone(subject: str) -> None:
    assert ".".join(tokenise(subject)) == subject


@given(TEXT)
def test_validity_agrees_with_walk_over_characters(subject: str) -> None:
    assert is_valid_subject(subject) == _walk(subject)


def _walk(subject: str) -> bool:
    token = ""
    tail_seen = False
    for char in f"{subject}.":
        if char in " \t\n\r\f":
            return False
        if char != ".":
            token += char
            continue
        if token == "" or tail_seen:
            return False
        tail_seen = token == ">"
        token = ""
    return True
