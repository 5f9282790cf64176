"""Where a read begins and ends, in every way the options say it."""

from __future__ import annotations

import pytest

from penstock.spark.options import OptionError
from penstock.spark.read.start_positions import (
    AtSeq,
    AtTime,
    Earliest,
    Latest,
    StartPosition,
    places,
)

DAY_NS = 86_400_000_000_000


def start(seq: str = "", timestamp: str = "") -> dict[str, StartPosition]:
    return places(
        ("A", "B"),
        seq=("startingSeq", seq),
        timestamp=("startingTimestamp", timestamp),
        default=Earliest(),
    )


@pytest.mark.parametrize(
    ("seq", "wanted"),
    [("", Earliest()), ("Latest", Latest()), (" earliest ", Earliest()), ("17", AtSeq(17))],
)
def test_one_word_is_for_every_stream(seq: str, wanted: StartPosition) -> None:
    assert start(seq) == {"A": wanted, "B": wanted}


@pytest.mark.parametrize(
    ("timestamp", "ns"),
    [
        ("86400000", DAY_NS),
        ("1970-01-02", DAY_NS),
        ("1970-01-02T00:00:00Z", DAY_NS),
        ("1970-01-02T01:00:00.000001+01:00", DAY_NS + 1000),
    ],
)
def test_times_are_read(timestamp: str, ns: int) -> None:
    assert start(timestamp=timestamp)["A"] == AtTime(ns)


def test_json_is_by_stream_and_the_rest_is_default() -> None:
    assert start('{"A": 5}') == {"A": AtSeq(5), "B": Earliest()}
    assert start('{"B": "latest"}') == {"A": Earliest(), "B": Latest()}
    assert start(timestamp='{"A": 86400000}')["A"] == AtTime(DAY_NS)


@pytest.mark.parametrize(
    ("seq", "timestamp", "told"),
    [
        ("5", "5", "one of startingSeq, startingTimestamp"),
        ("first", "", "expected earliest, latest, a number"),
        ("-3", "", "expected earliest, latest, a number"),
        ('{"C": 1}', "", "names C, which stream does not"),
        ("{", "", "startingSeq is no JSON"),
        ("", "yesterday", "expected ISO 8601"),
    ],
)
def test_nonsense_is_reported(seq: str, timestamp: str, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        start(seq, timestamp)
