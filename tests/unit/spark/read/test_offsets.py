"""Offsets as Spark keeps them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.spark.read.offsets import Offset, OffsetError, Position, batch_start

A = Position(5, "2026-01-01T00:00:00Z")
B = Position(9, "2026-02-01T00:00:00Z")


def test_offset_comes_back_as_it_was() -> None:
    for offset in (
        Offset({"A": A, "B": B}),
        Offset({"A": A}, is_initial=True),
        Offset({}, began={"A": A}),
    ):
        assert Offset.from_json(json.loads(json.dumps(offset.as_json()))) == offset


def test_equal_offsets_are_equal_text() -> None:
    one = Offset({"A": A, "B": B}).as_json()
    two = Offset({"B": B, "A": A}).as_json()
    assert json.dumps(one) == json.dumps(two)
    assert one == {
        "v": 1,
        "streams": {
            "A": {"seq": 5, "created": "2026-01-01T00:00:00Z"},
            "B": {"seq": 9, "created": "2026-02-01T00:00:00Z"},
        },
    }


def test_offset_of_another_version_is_refused() -> None:
    with pytest.raises(OffsetError, match=r"version 2.*new checkpointLocation"):
        Offset.from_json({"v": 2, "streams": {}})


def test_end_of_the_first_batch_reports_where_it_began() -> None:
    asked_anew = Offset({"A": B}, is_initial=True)
    end = Offset({"A": B}, began={"A": A})
    assert batch_start(asked_anew, end) == Offset({"A": A})
    assert batch_start(end, Offset({"A": B})) == end


def test_checkpoint_of_the_first_version_is_understood_for_ever() -> None:
    kept = (Path(__file__).parents[3] / "golden" / "spark-offset-1.json").read_text()
    offset = Offset.from_json(json.loads(kept))
    created = "2026-11-16T07:05:29.222909111Z"
    assert offset.streams == {"EV": Position(5, created)}
    assert offset.began == {"EV": Position(0, created)}
    assert json.dumps(offset.as_json()) == kept.strip()
