"""Payloads decode to the values that were encoded, and bad ones are detected."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from importlib import import_module
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type

from penstock.spark.options import OptionError
from penstock.spark.payloads.payload_codec import BadPayload, Decoder, Encoder
from penstock.spark.payloads.payload_schema import load_schema, value_ddl, value_type

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A", "B"]}},
    ],
}
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ORDER = {"id": 7, "name": "x", "tags": ["a"], "at": AT, "kind": "B"}


JSON_TYPE = pa.struct(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "tags": pa.list_(pa.string()),
        "more": pa.map_(pa.string(), pa.int32()),
        "at": pa.timestamp("us", tz="UTC"),
    }
)


def decoder(kind: str, schema: bytes = b"", message: str = "") -> Decoder:
    target = {"json": JSON_TYPE, "text": pa.string()}.get(kind)
    if target is None:
        target = to_arrow_type(value_type(kind, schema, message), timezone="UTC")
    return Decoder(kind, schema, message, target)


def values(made: Decoder, *payloads: bytes) -> list[Any]:
    column, reasons = made.column(list(payloads))
    assert reasons == [None] * len(payloads)
    found: list[Any] = column.to_pylist()
    return found


def test_json_has_types_of_ddl() -> None:
    made = decoder("json")
    text = b'{"id": 7, "tags": ["a"], "more": {"k": 1}, "at": "2026-01-02T03:04:05Z", "x": 1}'
    (found,) = values(made, text)
    assert (found["id"], found["name"], found["tags"]) == (7, None, ["a"])
    assert found["more"] == [("k", 1)]
    assert found["at"] == AT
    assert values(made, b"\0\0\0\0\x05" + text) == [found]


@pytest.mark.parametrize("bad", [b"", b"{", b"[]", b'{"id": "x"}', b'{"id": 1e30}', b"\xff"])
def test_json_of_another_type_is_bad(bad: bytes) -> None:
    column, reasons = decoder("json").column([bad, b'{"id": 1}'])
    assert column.to_pylist()[0] is None
    assert reasons[0] is not None
    assert reasons[1] is None


def test_number_that_its_type_does_not_hold_is_bad_alone() -> None:
    made = Decoder("json", b"", "", pa.struct({"id": pa.int32()}))
    column, reasons = made.column([b'{"id": 3000000000}', b'{"id": 3}'])
    assert column.to_pylist() == [None, {"id": 3}]
    assert [reason is None for reason in reasons] == [False, True]


@pytest.mark.parametrize("header", [b"", b"\0\0\0\0\x2a", b"\0" + (42).to_bytes(8, "big")])
def test_avro_is_read_after_registry_headers(header: bytes) -> None:
    schema = json.dumps(AVRO).encode()
    payload = Encoder("avro", schema).encode(ORDER)
    assert values(decoder("avro", schema), header + payload) == [ORDER]


def test_avro_that_begins_with_zero_is_no_header() -> None:
    schema = json.dumps(AVRO).encode()
    order = ORDER | {"id": 0, "name": None}
    payload = Encoder("avro", schema).encode(order)
    assert payload.startswith(b"\0\0")
    assert values(decoder("avro", schema), payload) == [order]


def test_avro_with_bytes_left_over_is_bad() -> None:
    schema = json.dumps(AVRO).encode()
    payload = Encoder("avro", schema).encode(ORDER) + b"x"
    with pytest.raises(BadPayload, match="1 bytes follow"):
        decoder("avro", schema).decode(payload)


def descriptor_set() -> bytes:
    pb = import_module("google.protobuf.descriptor_pb2")
    file = pb.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    number = pb.FieldDescriptorProto
    kinds = {"id": number.TYPE_INT64, "name": number.TYPE_STRING, "big": number.TYPE_UINT64}
    for at, (name, kind) in enumerate(kinds.items(), 1):
        message.field.add(name=name, number=at, type=kind, label=number.LABEL_OPTIONAL)
    message.field.add(name="tags", number=4, type=number.TYPE_STRING, label=number.LABEL_REPEATED)
    made: bytes = pb.FileDescriptorSet(file=[file]).SerializeToString()
    return made


@pytest.mark.parametrize("header", [b"", b"\0\0\0\0\x01\0", b"\0\0\0\0\x01\x02\x00"])
def test_protobuf_is_read_by_its_descriptor(header: bytes) -> None:
    schema = descriptor_set()
    order = {"id": 7, "name": "x", "big": 2**63, "tags": ["a", "b"]}
    payload = header + Encoder("protobuf", schema, "shop.Order").encode(order)
    (found,) = values(decoder("protobuf", schema, "shop.Order"), payload)
    assert found == order | {"big": Decimal(2**63)}


def test_message_that_descriptor_set_lacks_is_refused() -> None:
    with pytest.raises(OptionError, match=r"has no shop\.Bill"):
        value_type("protobuf", descriptor_set(), "shop.Bill")
    with pytest.raises(OptionError, match="payloadMessage"):
        value_type("protobuf", descriptor_set(), "")


def test_text_must_be_utf8() -> None:
    column, reasons = decoder("text").column(["ü".encode(), b"\xff"])
    assert column == pa.array(["ü", None])
    assert reasons[1] is not None


def test_schemas_that_are_none_are_refused() -> None:
    for kind, schema in (("avro", b"{}"), ("avro", b"x"), ("json", b""), ("json", b"\xff")):
        with pytest.raises(OptionError, match="payloadSchema"):
            value_ddl(kind, schema, "")


def test_columns_of_ddl_are_fields_of_value() -> None:
    assert value_ddl("json", b"id bigint,\n name string", "") == "struct<id bigint, name string>"
    assert value_ddl("json", b"array<int>", "") == "array<int>"
    assert value_ddl("text", b"", "") == "string"


def test_schema_comes_from_where_option_reports(tmp_path: Any) -> None:
    (tmp_path / "s").write_bytes(b"id int")

    def from_bucket(bucket: str, key: str) -> bytes:
        return f"{bucket} {key}".encode()

    assert load_schema(f"file:{tmp_path}/s", from_bucket) == b"id int"
    assert load_schema("kv:B/a.b", from_bucket) == b"B a.b"
    assert load_schema("id int", from_bucket) == b"id int"
    for wrong in ("kv:B", f"file:{tmp_path}/none"):
        with pytest.raises(OptionError, match="payloadSchema"):
            load_schema(wrong, from_bucket)
