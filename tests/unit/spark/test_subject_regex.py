"""Subject patterns as regular expressions match what the server matches."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.subject_regex import LITERAL_TOKEN, TOKEN, regex_of, whole_regex
from penstock.subjects.match import match_literal

tokens = st.sampled_from(["a", "b", "a+b", "$x", "*", ">"])
subjects = st.lists(st.sampled_from(["a", "b", "a+b", "$x", "aa"]), min_size=1, max_size=4)


@pytest.mark.parametrize("token", [TOKEN, LITERAL_TOKEN])
@given(pattern=st.lists(tokens, min_size=1, max_size=4), subject=subjects)
def test_regex_matches_what_server_matches(
    token: str, pattern: list[str], subject: list[str]
) -> None:
    if ">" in pattern[:-1]:
        return
    found = re.fullmatch(regex_of(".".join(pattern), token=token), ".".join(subject)) is not None
    assert found == match_literal(".".join(subject), ".".join(pattern))


@pytest.mark.parametrize(
    ("subject", "is_matched"),
    [("a.b", True), ("a.*b", True), ("a.*", False), ("a.>", False), ("a. b", False), ("a.", False)],
)
def test_literal_token_excludes_wildcards_and_spaces(subject: str, *, is_matched: bool) -> None:
    found = re.match(whole_regex(["x", "a.>"], token=LITERAL_TOKEN), subject) is not None
    assert found is is_matched


def test_no_patterns_match_no_subject() -> None:
    assert re.match(whole_regex([]), "a") is None
