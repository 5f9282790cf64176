"""Payload schemas and their Spark types: DDL, Avro schemas, protobuf descriptor sets.

`load_schema` reads the schema from the option itself, a file (`file:…`) or a KV bucket that serves
as registry (`kv:BUCKET/key`). It runs in the driver, so tasks need neither. `value_ddl` returns the
type of the column `value`. Heavy libraries are imported on first use.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.options import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import DataType

RAW, TEXT, JSON, AVRO, PROTOBUF = "raw", "text", "json", "avro", "protobuf"
FILE_MARK: Final = "file:"
BUCKET_MARK: Final = "kv:"
#: Prefixes of a DDL that is a type, not a list of columns.
NESTED: Final = ("struct<", "array<", "map<")
#: Limit that detects recursive records, which have no Spark type.
NESTING_MAX: Final = 32


def load_schema(text: str, from_bucket: Callable[[str, str], bytes]) -> bytes:
    """Return the bytes of a schema from the location that the option names."""
    if text.startswith(FILE_MARK):
        try:
            return Path(text.removeprefix(FILE_MARK)).read_bytes()
        except OSError as error:
            raise OptionError(f"option payloadSchema: {error.strerror}") from None
    if text.startswith(BUCKET_MARK):
        bucket, _, key = text.removeprefix(BUCKET_MARK).partition("/")
        if not bucket or not key:
            raise OptionError("option payloadSchema: write kv:BUCKET/key")
        return from_bucket(bucket, key)
    return text.encode()


def value_ddl(kind: str, schema: bytes, message: str) -> str:
    """Return the type of the column `value` as Spark DDL; no session is available here."""
    if kind == TEXT:
        return "string"
    if not schema:
        raise OptionError(f"payload {kind} needs payloadSchema")
    try:
        if kind == JSON:
            ddl = " ".join(schema.decode().split())
            return ddl if ddl.lower().startswith(NESTED) else f"struct<{ddl}>"
        return value_type(kind, schema, message).simpleString()
    except UnicodeDecodeError:
        raise OptionError("option payloadSchema is no DDL") from None


def value_type(kind: str, schema: bytes, message: str) -> DataType:
    """Return the same as a type, for Avro and protobuf."""
    try:
        if kind == AVRO:
            return _avro_type(avro_schema(schema), 0)
        return _message_type(message_class(schema, message).DESCRIPTOR, 0)
    except OptionError:
        raise
    except Exception as error:
        # fastavro and protobuf raise different exception types.
        raise OptionError(f"option payloadSchema is no {kind} schema: {error}") from None


# -- Avro


def avro_schema(schema: bytes) -> Any:
    """Return a schema parsed by fastavro, with names resolved."""
    import fastavro

    return fastavro.parse_schema(json.loads(schema))


def _avro_type(schema: Any, depth: int) -> DataType:
    from pyspark.sql import types

    if depth > NESTING_MAX:
        raise OptionError("option payloadSchema nests too deep, or contains itself")
    if isinstance(schema, list):
        kinds = [one for one in schema if one != "null"]
        if len(kinds) != 1:
            raise OptionError("option payloadSchema: unions of several types have no Spark type")
        return _avro_type(kinds[0], depth)
    if isinstance(schema, str):
        return _avro_primitive(schema)
    kind, logical = schema["type"], schema.get("logicalType", "")
    if kind == "record":
        fields = [
            types.StructField(one["name"], _avro_type(one["type"], depth + 1))
            for one in schema["fields"]
        ]
        return types.StructType(fields)
    if kind == "array":
        return types.ArrayType(_avro_type(schema["items"], depth + 1))
    if kind == "map":
        return types.MapType(types.StringType(), _avro_type(schema["values"], depth + 1))
    if kind == "enum":
        return types.StringType()
    if logical == "decimal":
        return types.DecimalType(schema["precision"], schema.get("scale", 0))
    if logical in ("timestamp-millis", "timestamp-micros"):
        return types.TimestampType()
    if logical == "date":
        return types.DateType()
    return types.BinaryType() if kind == "fixed" else _avro_type(kind, depth + 1)


def _avro_primitive(name: str) -> DataType:
    from pyspark.sql import types

    known: dict[str, DataType] = {
        "boolean": types.BooleanType(),
        "int": types.IntegerType(),
        "long": types.LongType(),
        "float": types.FloatType(),
        "double": types.DoubleType(),
        "bytes": types.BinaryType(),
        "string": types.StringType(),
    }
    if name not in known:
        raise OptionError(f"option payloadSchema: {name} has no Spark type")
    return known[name]


# -- protobuf


def message_class(schema: bytes, name: str) -> Any:
    """Return the class of a message from a descriptor set, by its full name."""
    descriptor_pb2 = import_module("google.protobuf.descriptor_pb2")
    descriptor_pool = import_module("google.protobuf.descriptor_pool")
    message_factory = import_module("google.protobuf.message_factory")
    if not name:
        raise OptionError("payload protobuf needs payloadMessage, the full name of a message")
    pool = descriptor_pool.DescriptorPool()
    for one in descriptor_pb2.FileDescriptorSet.FromString(schema).file:
        pool.Add(one)
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        raise OptionError(f"option payloadMessage: the descriptor set has no {name}") from None


def is_map(field: Any) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def _message_type(message: Any, depth: int) -> DataType:
    from pyspark.sql import types

    if depth > NESTING_MAX:
        raise OptionError("option payloadSchema nests too deep, or contains itself")
    fields = []
    for field in message.fields:
        if is_map(field):
            entry = field.message_type.fields_by_name
            kind: DataType = types.MapType(
                _field_type(entry["key"], depth), _field_type(entry["value"], depth)
            )
        else:
            kind = _field_type(field, depth)
            if field.is_repeated:
                kind = types.ArrayType(kind)
        fields.append(types.StructField(field.name, kind))
    return types.StructType(fields)


def _field_type(field: Any, depth: int) -> DataType:
    from pyspark.sql import types

    if field.message_type:
        return _message_type(field.message_type, depth + 1)
    known: dict[int, DataType] = {
        field.CPPTYPE_INT32: types.IntegerType(),
        field.CPPTYPE_UINT32: types.LongType(),
        field.CPPTYPE_INT64: types.LongType(),
        field.CPPTYPE_UINT64: types.DecimalType(20, 0),
        field.CPPTYPE_FLOAT: types.FloatType(),
        field.CPPTYPE_DOUBLE: types.DoubleType(),
        field.CPPTYPE_BOOL: types.BooleanType(),
        field.CPPTYPE_ENUM: types.StringType(),
        field.CPPTYPE_STRING: types.StringType(),
    }
    if field.type == field.TYPE_BYTES:
        return types.BinaryType()
    return known[field.cpp_type]
