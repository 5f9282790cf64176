"""Typed payloads of a sink: encodes the column `value` to the column `data`.

The driver creates the plan, with the bytes of the schema, and sends it to the tasks. A value that
cannot be encoded is a bad row: its reason is in the column REASON, which `RowFilter` reads, and its
payload is the value as JSON, for dead letters. A null value is an empty payload.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from penstock.spark.options import OptionError
from penstock.spark.payloads.payload_codec import BadPayload, Encoder
from penstock.spark.payloads.payload_plan import from_bucket
from penstock.spark.payloads.payload_schema import JSON, RAW, load_schema, value_ddl
from penstock.spark.write.sink_rows import DATA, REASON

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql.types import StructType

    from penstock.spark.write.sink_options import SinkOptions

VALUE: Final = "value"


@dataclass(frozen=True, slots=True)
class SinkPayloads:
    """How values are encoded."""

    kind: str
    schema: bytes
    message: str

    @classmethod
    def of(cls, options: SinkOptions, columns: StructType) -> SinkPayloads | None:
        """Return the plan of a sink; None if the rows have raw payloads."""
        if options.payload == RAW:
            if options.payload_schema or options.payload_message:
                raise OptionError("payloadSchema and payloadMessage need payload, which is raw")
            return None
        names = columns.fieldNames()
        if VALUE not in names:
            raise OptionError(f"payload {options.payload}: the rows have no column value")
        if DATA in names:
            raise OptionError(
                f"payload {options.payload} is made of the column value: drop the column data"
            )
        if options.payload == JSON:
            if options.payload_schema:
                raise OptionError("payload json has the type of the column value: no payloadSchema")
            return cls(JSON, b"", "")
        schema = load_schema(
            options.payload_schema, lambda bucket, key: from_bucket(options, bucket, key)
        )
        value_ddl(options.payload, schema, options.payload_message)
        return cls(options.payload, schema, options.payload_message)

    def encoded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with `data` and REASON instead of `value`."""
        encoder = Encoder(self.kind, self.schema, self.message)
        for batch in batches:
            yield _encoded(batch, encoder)


def _encoded(batch: pa.RecordBatch, encoder: Encoder) -> pa.RecordBatch:
    column = batch.column(VALUE)
    payloads: list[bytes] = []
    reasons: list[str | None] = []
    for found in column.to_pylist():
        value = _with_dicts(found, column.type)
        try:
            payloads.append(b"" if value is None else encoder.encode(value))
            reasons.append(None)
        except BadPayload as error:
            payloads.append(_shown(value))
            reasons.append(str(error))
    columns = {name: batch.column(name) for name in batch.schema.names if name != VALUE}
    columns[DATA] = pa.array(payloads, pa.binary())
    columns[REASON] = pa.array(reasons, pa.string())
    return pa.RecordBatch.from_pydict(columns)


def _shown(value: Any) -> bytes:
    """Return a value as JSON, or as its Python repr."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError):
        return repr(value).encode()


def _with_dicts(value: Any, kind: pa.DataType) -> Any:
    """Convert maps to dictionaries at every level: Arrow represents them as pairs."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_map(kind):
        return {key: _with_dicts(one, kind.item_type) for key, one in value}
    if pa.types.is_struct(kind):
        return {one.name: _with_dicts(value[one.name], one.type) for one in kind}
    return [_with_dicts(one, kind.value_type) for one in value]
