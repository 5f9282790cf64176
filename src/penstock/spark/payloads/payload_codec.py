"""Decode payloads to values of a declared type and encode them: text, JSON, Avro, protobuf.

`Decoder.decode` converts one payload to one value or raises `BadPayload`; `Encoder.encode` is its
inverse, for sinks. Schema registry headers are recognised: a zero byte and an id of four
(Confluent) or eight bytes (Apicurio), for protobuf also Confluent's message indexes. For Avro each
variant is tried; the right one consumes the payload to its end.
"""

from __future__ import annotations

import io
from datetime import date, datetime
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypedDict

import msgspec
import pyarrow as pa

from penstock.spark.payloads.payload_schema import (
    AVRO,
    JSON,
    TEXT,
    avro_schema,
    is_map,
    message_class,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MAGIC: Final = b"\0"
CONFLUENT_BYTES: Final = 5
APICURIO_BYTES: Final = 9
REASON_CHARS_MAX: Final = 200


class BadPayload(ValueError):
    """A payload that does not match the schema; the text contains no payload."""


class Decoder:
    """Decodes payloads of one kind for a column of one Arrow type."""

    def __init__(self, kind: str, schema: bytes, message: str, target: pa.DataType) -> None:
        self._decode = _decoder(kind, schema, message, target)
        self._kind = kind
        self._target = target

    def decode(self, payload: bytes) -> Any:
        try:
            return _fitted(self._decode(payload), self._target)
        except BadPayload:
            raise
        except Exception as error:
            # A parser may raise any exception for bytes it cannot parse.
            reason = f"{type(error).__name__}: {error}"[:REASON_CHARS_MAX]
            raise BadPayload(f"no {self._kind} of the schema: {reason}") from None

    def column(self, payloads: list[bytes]) -> tuple[pa.Array, list[str | None]]:
        """Return the values of all payloads, null for bad ones, and the reasons of the bad ones."""
        values: list[Any] = []
        reasons: list[str | None] = []
        for payload in payloads:
            try:
                values.append(self.decode(payload))
                reasons.append(None)
            except BadPayload as error:
                values.append(None)
                reasons.append(str(error))
        try:
            return pa.array(values, self._target), reasons
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return self._one_by_one(values, reasons)

    def _one_by_one(
        self, values: list[Any], reasons: list[str | None]
    ) -> tuple[pa.Array, list[str | None]]:
        """Find values that their type cannot hold, such as a number that is too large."""
        for at, value in enumerate(values):
            try:
                pa.array([value], self._target)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                values[at] = None
                reasons[at] = f"no {self._kind} of the schema: {error}"[:REASON_CHARS_MAX]
        return pa.array(values, self._target), reasons


class Encoder:
    """Encodes the values of one column as payloads of one kind."""

    def __init__(self, kind: str, schema: bytes = b"", message: str = "") -> None:
        self._encode = _encoder(kind, schema, message)
        self._kind = kind

    def encode(self, value: Any) -> bytes:
        try:
            return self._encode(value)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:REASON_CHARS_MAX]
            raise BadPayload(f"cannot be written as {self._kind}: {reason}") from None


def _decoder(kind: str, schema: bytes, message: str, target: pa.DataType) -> Callable[[bytes], Any]:
    if kind == TEXT:
        return _decode_text
    if kind == JSON:
        return _json_decoder(target)
    return _avro_decoder(schema) if kind == AVRO else _protobuf_decoder(schema, message)


def _encoder(kind: str, schema: bytes, message: str) -> Callable[[Any], bytes]:
    if kind == TEXT:
        return str.encode
    if kind == JSON:
        return msgspec.json.Encoder().encode
    return _avro_encoder(schema) if kind == AVRO else _protobuf_encoder(schema, message)


def _decode_text(payload: bytes) -> str:
    return payload.decode()


# -- JSON


def _json_decoder(target: pa.DataType) -> Callable[[bytes], Any]:
    decoder = msgspec.json.Decoder(_python_type(target, "Value"))

    def decode(payload: bytes) -> Any:
        if payload.startswith(MAGIC):
            payload = payload[payload.index(b"{") :]
        return decoder.decode(payload)

    return decode


def _python_type(kind: pa.DataType, name: str) -> Any:
    """Return a type that msgspec checks while it decodes."""
    if pa.types.is_struct(kind):
        fields = {one.name: _python_type(one.type, name + one.name) for one in kind}
        return TypedDict(  # type: ignore[operator]
            name, {key: value | None for key, value in fields.items()}, total=False
        )
    if pa.types.is_map(kind):
        return dict[str, _python_type(kind.item_type, name) | None]  # type: ignore[misc]
    if pa.types.is_list(kind):
        return list[_python_type(kind.value_type, name) | None]  # type: ignore[misc]
    checks: tuple[tuple[Callable[[pa.DataType], bool], Any], ...] = (
        (pa.types.is_boolean, bool),
        (pa.types.is_integer, int),
        (pa.types.is_floating, float),
        (pa.types.is_decimal, Decimal),
        (pa.types.is_timestamp, datetime),
        (pa.types.is_date, date),
        (pa.types.is_binary, bytes),
    )
    return next((found for check, found in checks if check(kind)), str)


# -- Avro


def _avro_decoder(schema: bytes) -> Callable[[bytes], Any]:
    import fastavro

    parsed = avro_schema(schema)

    def at(payload: bytes, skipped: int) -> Any:
        stream = io.BytesIO(payload)
        stream.seek(skipped)
        value = fastavro.schemaless_reader(stream, parsed, None)
        if stream.tell() != len(payload):
            raise BadPayload(f"{len(payload) - stream.tell()} bytes follow the Avro value")
        return value

    def decode(payload: bytes) -> Any:
        if payload.startswith(MAGIC):
            for skipped in (CONFLUENT_BYTES, APICURIO_BYTES):
                try:
                    return at(payload, skipped)
                except Exception:
                    continue
        return at(payload, 0)

    return decode


def _avro_encoder(schema: bytes) -> Callable[[Any], bytes]:
    import fastavro

    parsed = avro_schema(schema)

    def encode(value: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        return out.getvalue()

    return encode


# -- protobuf


def _protobuf_decoder(schema: bytes, name: str) -> Callable[[bytes], Any]:
    kind = message_class(schema, name)

    def decode(payload: bytes) -> Any:
        # No field has number 0, so a message never begins with a zero byte.
        return _plain(kind.FromString(_without_indexes(payload)))

    return decode


def _without_indexes(payload: bytes) -> bytes:
    if not payload.startswith(MAGIC):
        return payload
    at = CONFLUENT_BYTES
    count, at = _zigzag(payload, at)
    for _ in range(count):
        _, at = _zigzag(payload, at)
    return payload[at:]


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def _plain(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if is_map(field):
            found[field.name] = {
                key: _single(field.message_type.fields_by_name["value"], one)
                for key, one in value.items()
            }
        elif field.is_repeated:
            found[field.name] = [_single(field, one) for one in value]
        elif field.has_presence and not message.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = _single(field, value)
    return found


def _single(field: Any, value: Any) -> Any:
    if field.message_type:
        return _plain(value)
    if field.enum_type:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    return Decimal(value) if field.cpp_type == field.CPPTYPE_UINT64 else value


def _protobuf_encoder(schema: bytes, name: str) -> Callable[[Any], bytes]:
    json_format = import_module("google.protobuf.json_format")
    kind = message_class(schema, name)

    def encode(value: Any) -> bytes:
        text = msgspec.json.encode(value)
        message = json_format.Parse(text, kind(), ignore_unknown_fields=False)
        made: bytes = message.SerializeToString()
        return made

    return encode


# -- values in the form Arrow accepts


def _fitted(value: Any, kind: pa.DataType) -> Any:
    """Convert maps to pairs at every level; leave other values unchanged."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        return [(key, _fitted(one, kind.item_type)) for key, one in pairs]
    if pa.types.is_struct(kind):
        return {one.name: _fitted(value.get(one.name), one.type) for one in kind}
    return [_fitted(one, kind.value_type) for one in value]
