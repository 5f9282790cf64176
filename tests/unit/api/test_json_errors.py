"""Faults of JSON: found exactly where a parser finds one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.json_errors import ENDS_EARLY, UNEXPLAINED, explain, explain_one

SPICE = st.text(alphabet='{}[]":,\\u0123456789.eE+-ntrfalse \x01', max_size=24)

LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError):
        return False
    return True


@given(SPICE)
def test_one_value_has_no_fault_exactly_if_parser_takes_it(text: str) -> None:
    if is_json(text):
        assert explain(text.encode()) == ""
    elif text.strip(" \t\r\n"):
        assert explain(text.encode()) or has_several_values(text)


def has_several_values(text: str) -> bool:
    """`1 2` is two values, each without fault."""
    at = 0
    while at < len(text):
        if text[at] in " \t\r\n":
            at += 1
            continue
        _, at = json.JSONDecoder().raw_decode(text, at)
    return True


@given(VALUES)
def test_value_cut_short_ends_early(value: object) -> None:
    whole = json.dumps(value).encode()
    assert explain(whole) == ""
    if isinstance(value, str | list | dict):
        for end in range(1, len(whole)):
            assert explain(whole[:end]) == ENDS_EARLY


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"{'a':1}", "invalid character '\\'' looking for beginning of object key string"),
        (b"\x00", "invalid character '\\x00' looking for beginning of value"),
        (b"\x7f", "invalid character '\\x7f' looking for beginning of value"),
        (b"\\", "invalid character '\\\\' looking for beginning of value"),
    ],
)
def test_characters_are_shown_so_that_they_can_be_seen(raw: bytes, fault: str) -> None:
    assert explain(raw).startswith(fault)


def test_long_text_is_refused_without_search_for_its_fault() -> None:
    short = b"[" + b"[]," * 1000
    assert explain(short + b"x").startswith("invalid character 'x'")
    assert explain(short * 20 + b"x") == explain_one(short * 20 + b"x") == UNEXPLAINED
