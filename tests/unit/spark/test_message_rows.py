"""Batches as rows: every column, and only those wanted."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from penstock.bulk.direct_range import DirectRow, batch_of
from penstock.spark.message_rows import RowMaker, arrow_schema, check_schema, message_schema
from penstock.spark.options import OptionError

SECOND_NS = 1_000_000_000
BLOCK = b"NATS/1.0\r\nA: 1\r\nB:2 \r\nA: 3\r\n\r\n"
BATCH = batch_of(
    [
        DirectRow(1, SECOND_NS + 1999, b"a.b", b"", b"xyz"),
        DirectRow(5, 2 * SECOND_NS, b"a.c", BLOCK, b""),
        DirectRow(6, 3 * SECOND_NS, b"a.\xff", BLOCK, b"q"),
    ]
)


def test_every_column_is_what_spark_expects() -> None:
    made = RowMaker("S", message_schema()).make(BATCH)
    made.validate(full=True)
    assert made.schema == arrow_schema()
    assert made.to_pylist()[0] == {
        "stream": "S",
        "subject": "a.b",
        "seq": 1,
        "timestamp": datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC),
        "headers": None,
        "data": b"xyz",
        "size": 3,
    }
    assert made.column("headers").to_pylist()[1:] == [[("A", ["1", "3"]), ("B", ["2"])]] * 2
    assert made.column("size").to_pylist() == [3, 0, 1]


def test_subject_that_is_no_text_is_still_row() -> None:
    made = RowMaker("S", message_schema()).make(BATCH)
    assert made.column("subject").to_pylist() == ["a.b", "a.c", "a.\N{REPLACEMENT CHARACTER}"]


def test_schema_chooses_columns_in_its_order() -> None:
    schema = StructType([message_schema()["size"], message_schema()["seq"]])
    made = RowMaker("S", schema).make(BATCH)
    assert made.to_pydict() == {"size": [3, 0, 1], "seq": [1, 5, 6]}


def test_joined_batches_are_one() -> None:
    maker = RowMaker("S", message_schema())
    made = maker.make(BATCH)
    joined = maker.join([made, made])
    assert joined.num_rows == 6
    assert joined.schema == made.schema
    assert maker.join([made]) is made


def test_schema_of_others_is_refused() -> None:
    with pytest.raises(OptionError, match="there is no column key"):
        check_schema(StructType().add("key", StringType()))
    with pytest.raises(OptionError, match="column seq is bigint, not int: cast it"):
        check_schema(StructType().add("seq", IntegerType()))
    check_schema(StructType().add("seq", LongType(), nullable=False))
