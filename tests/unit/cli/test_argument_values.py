"""Words of the command line become values, or are refused with what to write instead."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING

import pytest

from penstock.api.timestamps import parse_time
from penstock.cli import argument_values

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 1_000_000_000
HOUR = 3600 * SECOND


@pytest.mark.parametrize(
    ("text", "ns"),
    [("90s", 90 * SECOND), ("1h30m", HOUR + HOUR // 2), ("7d", 168 * HOUR), ("1d12h", 36 * HOUR)],
)
def test_duration_may_have_days(text: str, ns: int) -> None:
    assert argument_values.duration(text) == ns


@pytest.mark.parametrize("text", ["", "5", "1x", "h", "d"])
def test_invalid_duration_is_refused_with_example(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write it like"):
        argument_values.duration(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("4096", 4096), ("64KiB", 65536), ("64kb", 65536), ("1G", 1 << 30), ("-1", -1)],
)
def test_sizes_count_in_powers_of_1024(text: str, count: int) -> None:
    assert argument_values.size(text) == count


@pytest.mark.parametrize("text", ["", "many", "1.5K", "1 XB"])
def test_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        argument_values.size(text)


def test_header_keeps_colons_of_its_value() -> None:
    assert argument_values.header("Where: http://a") == ("Where", "http://a")


@pytest.mark.parametrize("text", ["no colon", ": x", "two words: x", "a: b\r\nc: d"])
def test_text_that_is_not_one_header_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        argument_values.header(text)


def test_moment_is_time_or_so_long_ago() -> None:
    assert argument_values.moment("2026-01-31T12:00:00Z") == "2026-01-31T12:00:00Z"
    before = time.time_ns() - HOUR
    assert before <= parse_time(argument_values.moment("1h")) <= time.time_ns() - HOUR
    with pytest.raises(argparse.ArgumentTypeError, match="neither a time"):
        argument_values.moment("yesterday")


def test_document_is_object_in_file(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"a": 1}))
    assert argument_values.document(str(file)) == {"a": 1}
    file.write_text("[]")
    with pytest.raises(argparse.ArgumentTypeError, match="not a JSON object"):
        argument_values.document(str(file))
    with pytest.raises(argparse.ArgumentTypeError, match="No such file"):
        argument_values.document(str(tmp_path / "none"))
