"""Subjects with wildcards, as regular expressions, match what a server would match."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.jobs.message_selection import regex_of
from penstock.subjects.match import match_literal

tokens = st.sampled_from(["a", "b", "a+b", "$x", "*", ">"])
subjects = st.lists(st.sampled_from(["a", "b", "a+b", "$x", "aa"]), min_size=1, max_size=4)


@given(st.lists(tokens, min_size=1, max_size=4), subjects)
def test_a_pattern_means_what_it_means_to_a_server(pattern: list[str], subject: list[str]) -> None:
    if ">" in pattern[:-1]:
        return
    found = re.fullmatch(regex_of(".".join(pattern)), ".".join(subject)) is not None
    assert found == match_literal(".".join(subject), ".".join(pattern))
