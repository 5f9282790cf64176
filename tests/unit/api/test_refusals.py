"""The catalogue of refusals."""

from __future__ import annotations

import copy

import pytest

from penstock.api import refusals
from penstock.api.refusals import CATALOGUE, ApiError, Template, refusal

ENTRIES = {
    name: entry for name, entry in vars(refusals).items() if isinstance(entry, ApiError | Template)
}


def test_every_name_is_in_catalogue_and_every_entry_has_name() -> None:
    assert {entry.err_code for entry in ENTRIES.values()} == set(CATALOGUE)
    assert len(ENTRIES) == len(CATALOGUE)


def test_entries_stand_in_order_of_their_codes() -> None:
    codes = list(CATALOGUE)
    assert codes == sorted(codes)


def test_code_is_given_once() -> None:
    with pytest.raises(AssertionError, match="10059 is taken"):
        refusal(404, 10059, "again")


def test_gaps_are_filled_by_name_and_braces_in_values_stay() -> None:
    made = refusals.STREAM_WRONG_LAST_SEQUENCE(seq=7)
    assert made == ApiError(400, 10071, "wrong last sequence: 7")
    assert refusals.STREAM_INVALID_CONFIG(err="{x}").description == "{x}"


def test_gap_must_be_filled() -> None:
    with pytest.raises(KeyError):
        refusals.STREAM_WRONG_LAST_SEQUENCE()


def test_refusals_are_values() -> None:
    same = ApiError(404, 10059, "stream not found")
    assert same == refusals.STREAM_NOT_FOUND == copy.copy(same)
    assert hash(same) == hash(refusals.STREAM_NOT_FOUND)
    assert same != ApiError(404, 10059, "another text")
    assert str(same) == "stream not found (10059)"
