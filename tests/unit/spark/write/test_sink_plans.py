"""What a sink refuses before it asks a server: options, columns, and streams by configuration."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.options import OptionError, parse
from penstock.spark.write.sink import plan_sink
from penstock.spark.write.sink_options import SinkOptions
from penstock.spark.write.sink_target import check_target
from penstock.spark.write.worker_publisher import SinkError

BASE = {"url": "nats://127.0.0.1:4222", "stream": "OUT"}
STRICT = {"delivery": "strict", "writeId": "w"}
FULL = "subject string, data binary, msgId string"
LINEAGE = "subject string, data binary, stream string, seq bigint"


TYPES: dict[str, type[DataType]] = {
    "string": StringType,
    "binary": BinaryType,
    "int": IntegerType,
    "bigint": LongType,
    "timestamp": TimestampType,
}


def fields(text: str) -> StructType:
    """A schema; Spark's own reading of it needs a session."""
    pairs = (one.split() for one in text.split(", "))
    return StructType([StructField(name, TYPES[kind]()) for name, kind in pairs])


def planned(options: dict[str, str], schema: str = FULL, *, is_streaming: bool = False) -> Any:
    return plan_sink(
        {**BASE, **options},
        fields(schema),
        overwrite=False,
        is_streaming=is_streaming,
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"deliverry": "strict"}, "did you mean delivery"),
        ({"delivery": "twice"}, "delivery"),
        ({"delivery": "strict"}, "writeId"),
        ({"delivery": "strict", "writeId": "a b"}, "writeId"),
        ({"delivery": "strict", "writeId": "a.>"}, "writeId"),
        ({"msgIdColumns": "msgId,nope"}, "no column nope"),
        ({"batchRows": "1000"}, "batchRows"),
        ({"batchRows": "0"}, "batchRows"),
        ({"maxInFlight": "0"}, "maxInFlight"),
        ({"writeId": "a/b"}, "writeId"),
        ({**STRICT, "onDuplicate": "skip"}, "onDuplicate"),
        ({"onBadRow": "drop"}, "onBadRow"),
        ({"onBadRow": "deadletter"}, "set one of deadLetterSubject, deadLetterPath"),
        (
            {"onBadRow": "deadletter", "deadLetterSubject": "a", "deadLetterPath": "b"},
            "set one of",
        ),
        ({"deadLetterSubject": "a"}, "need onBadRow deadletter"),
    ],
)
def test_wrong_option_is_named(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        planned(options)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("subject string, data binary", "needs a message id"),
        ("subject string, data binary, seq bigint", "needs a message id"),
        ("data binary, msgId string", "no column subject"),
        ("subject string, msgId string", "no column data"),
        ("subject string, data int, msgId string", "column data is binary or string, not integer"),
        ("subject int, data binary, msgId string", "column subject"),
        ("subject string, data binary, msgId string, headers string", "column headers"),
    ],
)
def test_rows_without_what_is_needed_are_refused(schema: str, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        planned({}, schema)


def test_overwriting_is_refused() -> None:
    with pytest.raises(OptionError, match="append"):
        plan_sink(BASE, fields(FULL), overwrite=True, is_streaming=False)


@pytest.mark.parametrize(
    ("options", "schema", "ids"),
    [
        ({}, FULL, ("msgId",)),
        ({"msgIdColumns": "subject, msgId"}, FULL, ("subject", "msgId")),
        ({}, f"{LINEAGE}, timestamp timestamp", ("stream", "seq")),
        ({"delivery": "atLeastOnce"}, LINEAGE, ()),
        ({"delivery": "strict", "writeId": "w"}, LINEAGE, ()),
        ({}, f"{FULL}, stream string, seq bigint", ("msgId",)),
        ({"delivery": "atLeastOnce"}, FULL, ()),
        (STRICT, FULL, ()),
    ],
)
def test_ids_come_from_columns_that_name_row(
    options: dict[str, str], schema: str, ids: tuple[str, ...]
) -> None:
    assert planned(options, schema).layout.ids.columns == ids


def test_source_without_its_times_is_refused_as_name() -> None:
    with pytest.raises(OptionError, match="need the column timestamp"):
        planned({}, LINEAGE)
    assert planned({"msgIdColumns": "stream,seq"}, LINEAGE).id_columns == ("stream", "seq")
    assert planned({"idScheme": "1"}, LINEAGE).id_columns == ("stream", "seq")


def test_streaming_query_names_its_own_ledger() -> None:
    assert planned({"delivery": "strict"}, is_streaming=True).options.ledger == "ledger.OUT"


@pytest.mark.parametrize(
    ("config", "options", "told"),
    [
        ({"duplicate_window": 10**9}, {}, "set its duplicate_window"),
        ({"duplicate_window": 0}, {}, "minDuplicateWindowMs"),
        ({}, {"minDuplicateWindowMs": "3600000"}, "minDuplicateWindowMs"),
        ({"no_ack": True}, {}, "no_ack"),
        ({"mirror": {"name": "X"}}, {}, "mirror"),
        ({"sealed": True}, {}, "sealed"),
        ({"allow_atomic": False}, STRICT, "allow_atomic"),
        ({"subjects": ["OUT.>"]}, STRICT, "ledger.OUT.>"),
        ({"retention": "workqueue"}, STRICT, "retention limits"),
        ({"retention": "interest"}, STRICT, "retention limits"),
    ],
)
def test_stream_that_cannot_keep_promise_is_refused_with_what_to_set(
    config: dict[str, Any], options: dict[str, str], told: str
) -> None:
    fine = {
        "name": "OUT",
        "subjects": ["OUT.>", "ledger.OUT.>"],
        "duplicate_window": 120 * 10**9,
        "retention": "limits",
        "allow_atomic": True,
    }
    chosen = parse(SinkOptions, {**BASE, **options})
    check_target(fine, parse(SinkOptions, {**BASE, **STRICT}))
    with pytest.raises(SinkError, match=f"(?i){told}"):
        check_target({**fine, **config}, chosen)
