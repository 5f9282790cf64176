"""Plans tile what is to be read, keep their limits, and detect what was removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bulk.bulk_requests import StreamSummary
from penstock.spark.errors import DataLoss
from penstock.spark.read.offsets import Offset, Position
from penstock.spark.read.read_plan import (
    ReadLimits,
    SeqRange,
    StreamView,
    advanced,
    available,
    checked_start,
    clipped,
    ranges_between,
    shared,
    split,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"

ranges = st.lists(
    st.builds(
        lambda name, start, length: SeqRange(name, OLD, start, start + length),
        st.sampled_from("ABC"),
        st.integers(1, 1000),
        st.integers(1, 1000),
    ),
    max_size=3,
    unique_by=lambda one: one.stream,
)


def view(name: str, first: int, last: int, **more: object) -> StreamView:
    return StreamView(name, OLD, first, last, **more)  # type: ignore[arg-type]


def members(parts: Sequence[SeqRange]) -> list[tuple[str, int]]:
    return [(one.stream, seq) for one in parts for seq in range(one.start, one.stop)]


@given(ranges, st.integers(0, 20), st.integers(1, 300))
def test_parts_tile_ranges(whole: list[SeqRange], least: int, most: int) -> None:
    parts = split(whole, partitions_min=least, records_max=most)
    assert members(parts) == members(whole)
    assert all(0 < len(one) <= most for one in parts)
    assert len(parts) >= min(least, sum(map(len, whole)))


@given(st.dictionaries(st.sampled_from("ABCDE"), st.integers(0, 50)), st.integers(1, 100))
def test_shared_limit_is_used_up_and_not_exceeded(room: dict[str, int], most: int) -> None:
    given_out = shared(room, most)
    assert sum(given_out.values()) == min(most, sum(room.values()))
    assert all(0 <= given_out[name] <= count for name, count in room.items())


def test_small_streams_are_not_starved_by_large_ones() -> None:
    assert shared({"large": 1_000_000, "small": 1}, 10) == {"large": 9, "small": 1}


@given(
    st.dictionaries(st.sampled_from("AB"), st.tuples(st.integers(0, 50), st.integers(0, 50))),
    st.integers(0, 30),
)
def test_batches_walk_to_the_end_without_gap(spans: dict[str, tuple[int, int]], most: int) -> None:
    views = {name: view(name, 1, begun + more) for name, (begun, more) in spans.items()}
    offset = Offset({name: Position(begun, OLD) for name, (begun, _) in spans.items()})
    wanted = members(
        [SeqRange(name, OLD, begun + 1, begun + more + 1) for name, (begun, more) in spans.items()]
    )
    read: list[tuple[str, int]] = []
    while available(offset, views):
        end = advanced(offset, views, ReadLimits(offsets_max=most))
        found = members(ranges_between(offset, end))
        assert found
        assert not most or len(found) <= most
        read += found
        offset = end
    assert sorted(read) == sorted(wanted)


def test_limit_in_bytes_goes_by_average() -> None:
    views = {"A": view("A", 1, 100, byte_count=10_000)}
    start = Offset({"A": Position(0, OLD)})
    assert advanced(start, views, ReadLimits(bytes_max=2_500)).streams["A"].seq == 25
    assert advanced(start, views, ReadLimits(bytes_max=1)).streams["A"].seq == 1


def test_sequences_before_stream_are_not_planned() -> None:
    views = {"A": view("A", 7, 20), "B": view("B", 9, 9)}
    whole = [SeqRange("A", OLD, 1, 10), SeqRange("B", OLD, 1, 4)]
    assert clipped(whole, views) == [SeqRange("A", OLD, 7, 10)]


def test_stream_recreated_between_two_offsets_is_read_from_its_beginning() -> None:
    start, end = Offset({"A": Position(50, OLD)}), Offset({"A": Position(3, NEW)})
    assert ranges_between(start, end) == [SeqRange("A", NEW, 1, 4)]


@pytest.mark.parametrize(
    ("now", "told", "mended"),
    [
        (StreamView("A", NEW, 3, 9), "recreated", Position(2, NEW)),
        (view("A", 1, 8), "truncated or restored", Position(8, OLD)),
        (view("A", 12, 20), "begins at 12, though 11 is next", Position(10, OLD)),
    ],
)
def test_missing_messages_are_reported_or_skipped(
    now: StreamView, told: str, mended: Position
) -> None:
    start = Offset({"A": Position(10, OLD)})
    with pytest.raises(DataLoss, match=told):
        checked_start(start, {"A": now}, fail_on_loss=True)
    assert checked_start(start, {"A": now}, fail_on_loss=False).streams == {"A": mended}


def test_ordinary_removal_is_no_loss() -> None:
    start = Offset({"A": Position(10, OLD)})
    now = {"A": view("A", 12, 20, sheds=True)}
    assert checked_start(start, now, fail_on_loss=True) == start
    assert checked_start(start, {"A": view("A", 11, 20)}, fail_on_loss=True) == start


@pytest.mark.parametrize(
    ("config", "consumes", "sheds"),
    [
        ({"retention": "limits", "max_msgs_per_subject": -1}, False, False),
        ({"retention": "limits", "max_msgs_per_subject": 1}, False, True),
        ({"retention": "workqueue"}, True, True),
        ({"retention": "interest"}, True, True),
    ],
)
def test_retention_decides_what_reading_removes(
    config: dict[str, object], consumes: bool, sheds: bool
) -> None:
    found = StreamView.of(StreamSummary("A", 1, 1, 5, 5, config))
    assert (found.consumes, found.sheds) == (consumes, sheds)
