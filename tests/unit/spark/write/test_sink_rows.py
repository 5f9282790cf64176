"""Arrow columns of a sink become what is published, and nothing that would end a line."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bulk.publish_frames import encode
from penstock.spark.write.sink import in_order, in_slices
from penstock.spark.write.sink_ids import BadRow, RowIds
from penstock.spark.write.sink_rows import RowLayout, faulty_headers, header_lines

TEXT_MAP = pa.map_(pa.string(), pa.string())
LIST_MAP = pa.map_(pa.string(), pa.list_(pa.string()))
PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
words = st.text("abcXYZ-", min_size=1, max_size=5)


@given(
    st.lists(st.none() | st.lists(st.tuples(words, st.lists(words, max_size=3)), max_size=4)),
    st.integers(0, 3),
)
def test_headers_of_any_rows_are_lines_in_their_order(
    rows: list[list[tuple[str, list[str]]] | None], skipped: int
) -> None:
    column = pa.array(rows, LIST_MAP).slice(skipped)
    wanted = [
        "".join(f"{key}: {value}\r\n" for key, values in row or [] for value in values).encode()
        for row in rows[skipped:]
    ]
    assert header_lines(column, True).to_pylist() == wanted


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        (TEXT_MAP, [("A", "b"), ("C", None)]),
        (PAIRS, [{"key": "A", "value": b"b"}, {"key": "C", "value": None}]),
    ],
)
def test_maps_and_lists_of_pairs_are_headers_too(kind: pa.DataType, row: list[Any]) -> None:
    assert header_lines(pa.array([None, row], kind), True).to_pylist() == [b"", b"A: b\r\nC: \r\n"]


def test_headers_that_are_commands_are_not_copied() -> None:
    row = [("Nats-Expected-Last-Sequence", "7"), ("nats-msg-id", "x"), ("Nats-TTL", "5s")]
    column = pa.array([row], TEXT_MAP)
    assert header_lines(column, True).to_pylist() == [b"Nats-TTL: 5s\r\n"]
    assert b"nats-msg-id: x" in header_lines(column, False).to_pylist()[0]


@pytest.mark.parametrize("pair", [("a b", "c"), ("", "c"), ("a:", "c"), ("a", "c\r\nX: y")])
def test_header_cannot_end_its_line(pair: tuple[str, str]) -> None:
    with pytest.raises(BadRow, match="header"):
        header_lines(pa.array([[pair]], TEXT_MAP), True)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch(columns)


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        (["a", None], "no message id"),
        (["a", ""], "empty"),
        (["a", "b\n"], "control codes"),
        (["a", "b", "a"], "'a' names two rows"),
    ],
)
def test_id_that_names_no_row_alone_is_refused(ids: list[str | None], told: str) -> None:
    with pytest.raises(BadRow, match=told):
        RowIds(("msgId",)).checked(batch(msgId=ids), "")


def test_ids_of_several_columns_are_joined() -> None:
    rows = batch(stream=["EV", "EV"], seq=pa.array([1, 2], pa.int64()))
    found = RowIds(("stream", "seq")).checked(rows, "unused")
    assert found.to_pylist() == ["EV:1", "EV:2"]


def test_ids_of_lineage_name_source_time_target_and_write() -> None:
    times = pa.array([1_700_000_000_000_001, None], pa.timestamp("us", tz="UTC"))
    rows = batch(
        stream=["EV", "EV"],
        seq=pa.array([1, 2], pa.int64()),
        timestamp=times,
        subject=["a", "b"],
    )
    ids = RowIds(("stream", "seq"), is_lineage=True, stored_at="timestamp", target="subject")
    assert ids.checked(rows, "q7").to_pylist() == ["EV:1:1700000000000001:a:q7", "EV:2::b:q7"]
    assert ids.first_scheme().checked(rows, "q7").to_pylist() == ["EV:1", "EV:2"]


def test_ids_may_repeat_where_rows_are_deduplicated_by_them() -> None:
    ids = RowIds(("msgId",), may_repeat=True)
    assert ids.checked(batch(msgId=["a", "a"]), "").to_pylist() == ["a", "a"]


def test_rows_with_faulty_headers_are_found_in_slice_too() -> None:
    column = pa.array([[("x y", "1")], [("a", "b")], None, [("c", "d\n"), ("e", "f")]], TEXT_MAP)
    masks = [mask.to_pylist() for mask, _ in faulty_headers(column)]
    assert masks == [[True, False, False, False], [False, False, False, True]]
    masks = [mask.to_pylist() for mask, _ in faulty_headers(column.slice(1))]
    assert masks == [[False] * 3, [False, False, True]]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_data_of_any_width_is_published_and_null_is_empty(kind: pa.DataType) -> None:
    data = pa.array([b"x", None, b"yz"], pa.binary()).cast(kind)
    rows = RowLayout(subject="s", ids=RowIds(), has_headers=False).rows(batch(data=data))
    said = encode(rows.subjects, rows.payloads).data
    assert said == b"PUB s 1\r\nx\r\nPUB s 0\r\n\r\nPUB s 2\r\nyz\r\n"


def test_slice_of_batch_is_published_as_slice() -> None:
    whole = batch(subject=["a", "b", "c"], data=[b"1", b"2", b"3"], msgId=["x", "y", "z"])
    rows = RowLayout(subject="", ids=RowIds(("msgId",)), has_headers=False).rows(whole.slice(1, 1))
    said = encode(rows.subjects, rows.payloads, ids=rows.ids).data
    assert said == b"HPUB b 28 29\r\nNATS/1.0\r\nNats-Msg-Id: y\r\n\r\n2\r\n"


def test_row_without_subject_is_refused() -> None:
    layout = RowLayout(subject="", ids=RowIds(), has_headers=False)
    with pytest.raises(BadRow, match="subject"):
        layout.rows(batch(subject=["a", None], data=[b"", b""]))


@given(st.lists(st.integers(0, 9), max_size=6), st.integers(1, 5))
def test_slices_tile_batches_and_last_one_is_marked(sizes: list[int], most: int) -> None:
    numbers = iter(range(100))
    batches = [
        batch(n=pa.array([next(numbers) for _ in range(size)], pa.int64())) for size in sizes
    ]
    slices = list(in_slices(batches, most))
    assert [row for piece, _ in slices for row in piece["n"].to_pylist()] == list(range(sum(sizes)))
    assert all(1 <= piece.num_rows <= most for piece, _ in slices)
    assert [is_last for _, is_last in slices] == [False] * (len(slices) - 1) + [True] * bool(slices)


@given(st.permutations(range(8)), st.integers(1, 7))
def test_rows_with_ids_come_in_one_order_however_they_arrive(order: list[int], cut: int) -> None:
    batches = [batch(id=order[:cut]), batch(id=order[cut:])]
    assert [row for one in in_order(batches, ("id",)) for row in one["id"].to_pylist()] == [
        *range(8)
    ]
