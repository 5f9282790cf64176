"""Values of a column become payloads; a value that cannot be encoded has a reason."""

from __future__ import annotations

import json
from decimal import Decimal
from importlib import import_module
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.spark.options import OptionError
from penstock.spark.payloads.payload_codec import Decoder
from penstock.spark.write.sink import plan_sink
from penstock.spark.write.sink_payloads import SinkPayloads
from penstock.spark.write.sink_rows import DATA, REASON

KIND = pa.struct(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "more": pa.map_(pa.string(), pa.int32()),
        "prices": pa.list_(pa.decimal128(10, 2)),
    }
)
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "more", "type": {"type": "map", "values": "int"}},
        {
            "name": "prices",
            "type": {
                "type": "array",
                "items": {
                    "type": "bytes",
                    "logicalType": "decimal",
                    "precision": 10,
                    "scale": 2,
                },
            },
        },
    ],
}
ORDER = {"id": 7, "name": "x", "more": [("a", 1)], "prices": [Decimal("1.50")]}
NAMELESS = {"id": 8, "name": None, "more": [], "prices": []}


def encoded(plan: SinkPayloads, *values: Any) -> pa.RecordBatch:
    rows = pa.RecordBatch.from_pydict(
        {"subject": pa.array(["s"] * len(values)), "value": pa.array(values, KIND)}
    )
    [found] = plan.encoded([rows])
    assert found.schema.names == ["subject", DATA, REASON]
    return found


@pytest.mark.parametrize(("kind", "schema"), [("json", b""), ("avro", json.dumps(AVRO).encode())])
def test_value_is_read_as_it_was_written(kind: str, schema: bytes) -> None:
    found = encoded(SinkPayloads(kind, schema, ""), ORDER, None)
    assert found.column(REASON).null_count == 2
    payload, empty = found.column(DATA).to_pylist()
    assert Decoder(kind, schema, "", KIND).column([payload])[0].to_pylist() == [ORDER]
    assert empty == b""


def test_value_that_schema_does_not_take_has_reason_and_is_shown_as_json() -> None:
    plan = SinkPayloads("avro", json.dumps(AVRO).encode(), "")
    found = encoded(plan, ORDER, NAMELESS)
    good, reason = found.column(REASON).to_pylist()
    assert good is None
    assert reason.startswith("cannot be written as avro: ")
    assert json.loads(found.column(DATA)[1].as_py())["id"] == 8


def test_protobuf_is_written_by_its_descriptor() -> None:
    pb = import_module("google.protobuf.descriptor_pb2")
    file = pb.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
    message, field = file.message_type.add(name="Order"), pb.FieldDescriptorProto
    message.field.add(name="big", number=1, type=field.TYPE_UINT64, label=field.LABEL_OPTIONAL)
    message.field.add(name="raw", number=2, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    schema = pb.FileDescriptorSet(file=[file]).SerializeToString()
    kind = pa.struct({"big": pa.decimal128(20, 0), "raw": pa.binary()})
    order = {"big": Decimal(2**63), "raw": b"\0\xff"}
    rows = pa.RecordBatch.from_pydict({"value": pa.array([order, {"big": -1}], kind)})
    [found] = SinkPayloads("protobuf", schema, "shop.Order").encoded([rows])
    payload = found.column(DATA)[0].as_py()
    decoder = Decoder("protobuf", schema, "shop.Order", kind)
    assert decoder.column([payload])[0].to_pylist() == [order]
    assert "cannot be written as protobuf" in found.column(REASON)[1].as_py()


@pytest.mark.parametrize(
    ("options", "columns", "told"),
    [
        ({"payload": "json"}, ["data"], "have no column value"),
        ({"payload": "json"}, ["data", "value"], "drop the column data"),
        ({"payload": "json", "payloadSchema": "id long"}, ["value"], "no payloadSchema"),
        ({"payload": "avro"}, ["value"], "needs payloadSchema"),
        ({"payload": "avro", "payloadSchema": "{"}, ["value"], "is no avro schema"),
        ({"payloadSchema": "{}"}, ["data"], "need payload, which is raw"),
        ({}, ["value"], "have no column data"),
    ],
)
def test_wrong_combinations_are_refused(
    options: dict[str, str], columns: list[str], told: str
) -> None:
    value = StructType([StructField("id", LongType())])
    kinds = {"data": StringType(), "value": value}
    schema = StructType(
        [StructField("msgId", StringType()), *(StructField(one, kinds[one]) for one in columns)]
    )
    chosen = {"url": "nats://h:1", "stream": "OUT", "subject": "OUT.a", **options}
    with pytest.raises(OptionError, match=told):
        plan_sink(chosen, schema, overwrite=False, is_streaming=False)
