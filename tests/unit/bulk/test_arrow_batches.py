"""Batches as Arrow, where pyarrow is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.bulk.arrow_batches import COLUMNS, record_batch
from penstock.bulk.wire_reader import WireReader
from support.deliveries import TIME_NS, delivery

if TYPE_CHECKING:
    from penstock.bulk.record_batch import Batch

pyarrow = pytest.importorskip("pyarrow")


def batch_of(*subjects: bytes) -> Batch:
    intake = WireReader(frame_bytes_max=1000, records_max=10, bytes_max=1000)
    intake.follow(7)
    for number, subject in enumerate(subjects, 1):
        data = delivery("S", b"%d" % number, seq=number, consumer_seq=number)
        data = data.replace(b"MSG S ", b"MSG %b " % subject)
        intake.space()[: len(data)] = data
        intake.filled(len(data))
        assert intake.next() is None
    return intake.take()


def test_columns_come_as_they_are() -> None:
    table = record_batch(batch_of(b"a.b", "ü".encode()))
    assert tuple(table.schema.names) == COLUMNS
    assert table["subject"].to_pylist() == ["a.b", "ü"]
    assert table["seq"].to_pylist() == [1, 2]
    assert table["time"].cast(pyarrow.int64()).to_pylist() == [TIME_NS + 1, TIME_NS + 2]
    assert table["headers"].to_pylist() == [b"", b""]
    assert table["payload"].to_pylist() == [b"1", b"2"]


def test_no_records_are_empty_table() -> None:
    assert record_batch(batch_of()).num_rows == 0


def test_subject_that_is_no_text_is_refused() -> None:
    with pytest.raises(pyarrow.ArrowInvalid):
        record_batch(batch_of(b"\xff"))
