"""Query strings, judged in the reference's words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.monitor.query_string import PAIRS_MAX, BadQuery, Query


@pytest.mark.parametrize("word", ["1", "t", "T", "TRUE", "true", "True"])
def test_go_s_words_for_true_are_true(word: str) -> None:
    assert Query(f"auth={word}").flag("auth")


@pytest.mark.parametrize("raw", ["", "auth=", "auth=0", "auth=False", "other=1"])
def test_absent_empty_or_false_is_false(raw: str) -> None:
    assert not Query(raw).flag("auth")


@pytest.mark.parametrize(
    ("kind", "raw", "text"),
    [
        (
            "flag",
            "x=yes",
            "Error decoding boolean for 'x': strconv.ParseBool: parsing \"yes\": invalid syntax",
        ),
        (
            "integer",
            "x=a",
            "Error decoding int for 'x': strconv.Atoi: parsing \"a\": invalid syntax",
        ),
        (
            "integer",
            "x=99999999999999999999",
            "Error decoding int for 'x': strconv.Atoi: "
            'parsing "99999999999999999999": value out of range',
        ),
        (
            "unsigned",
            "x=-1",
            "Error decoding uint64 for 'x': strconv.ParseUint: parsing \"-1\": invalid syntax",
        ),
    ],
)
def test_value_of_wrong_kind_is_refused_with_reference_s_sentence(
    kind: str, raw: str, text: str
) -> None:
    with pytest.raises(BadQuery) as refusal:
        getattr(Query(raw), kind)("x")
    assert str(refusal.value) == text


def test_first_value_of_name_counts() -> None:
    assert Query("limit=2&limit=1").integer("limit") == 2


def test_numbers_may_carry_sign() -> None:
    assert Query("limit=-5").integer("limit") == -5


def test_endless_number_is_not_even_converted() -> None:
    with pytest.raises(BadQuery, match="value out of range"):
        Query("cid=" + "9" * 5000).unsigned("cid")


def test_pairs_beyond_bound_are_not_read() -> None:
    flood = "&".join(f"a{number}=1" for number in range(PAIRS_MAX)) + "&late=1"
    assert Query(flood).text("late") == ""


@given(st.text())
def test_no_query_string_breaks_reader(raw: str) -> None:
    query = Query(raw)
    for read in (query.flag, query.integer, query.unsigned):
        try:
            read("limit")
        except BadQuery:
            continue
