"""Build Arrow record batches of messages: the columns that every message source has.

| column | type | |
| --- | --- | --- |
| stream | string | its name |
| subject | string | |
| seq | bigint | its sequence in the stream |
| timestamp | timestamp | time of storage; truncated to microseconds |
| headers | map<string, array<string>> | values in order; null if there are none |
| data | binary | |
| size | int | bytes of data |

Only the columns of the schema are built, so a narrow schema costs less. Buffers are used without a
copy where their format allows. This module does not depend on the origin of the batches.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from penstock.bulk.header_columns import header_columns, without_sizes
from penstock.bulk.record_batch import Batch
from penstock.spark.options import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from penstock.spark.payloads.payload_plan import PayloadColumns

STREAM, SUBJECT, SEQ, TIMESTAMP = "stream", "subject", "seq", "timestamp"
HEADERS, DATA, SIZE = "headers", "data", "size"
COLUMNS: Final = (STREAM, SUBJECT, SEQ, TIMESTAMP, HEADERS, DATA, SIZE)


def message_schema(*, headers: bool = True) -> StructType:
    """Return the columns of a table of messages."""
    from pyspark.sql import types

    text = types.StringType()
    kinds: dict[str, types.DataType] = {
        STREAM: text,
        SUBJECT: text,
        SEQ: types.LongType(),
        TIMESTAMP: types.TimestampType(),
        HEADERS: types.MapType(text, types.ArrayType(text)),
        DATA: types.BinaryType(),
        SIZE: types.IntegerType(),
    }
    wanted = [name for name in COLUMNS if headers or name != HEADERS]
    return types.StructType([types.StructField(name, kinds[name]) for name in wanted])


def check_schema(schema: StructType) -> None:
    """Raise unless the user's schema has a subset of our columns, in any order, with our types."""
    ours = {field.name: field.dataType for field in message_schema().fields}
    for field in schema.fields:
        if field.name not in ours:
            raise OptionError(f"there is no column {field.name}: there are {', '.join(ours)}")
        if field.dataType.simpleString() != ours[field.name].simpleString():
            raise OptionError(
                f"column {field.name} is {ours[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}: cast it where you use it"
            )


def arrow_schema(schema: StructType | None = None) -> Any:
    """Return the schema as Spark expects it from a task, a `pyarrow.Schema`.

    A `pyarrow.Schema` is returned unchanged.
    """
    if schema is not None and not hasattr(schema, "fields"):
        return schema
    from penstock.spark.compat import to_arrow_schema

    return to_arrow_schema(schema or message_schema())


class RowMaker:
    """Converts the batches of one stream to record batches."""

    def __init__(
        self, stream: str, schema: StructType, payloads: PayloadColumns | None = None
    ) -> None:
        self._arrow = import_module("pyarrow")
        self._stream = stream
        self._schema = arrow_schema(schema)
        self._size_values: bytes | None = None
        self._payload_columns = payloads
        self._builders = [(field.name, field.type) for field in self._schema]

    @property
    def needs_payloads(self) -> bool:
        """True if a column needs payloads; the headers of a delivery carry their sizes."""
        return DATA in self._schema.names or self._payload_columns is not None

    def make(self, batch: Batch, *, headers_only: bool = False) -> Any:
        """Return a `pyarrow.RecordBatch`. `headers_only`: the batch came without payloads."""
        self._size_values = None
        if headers_only:
            batch, self._size_values = _stored(batch)
        decoded: dict[str, Any] = {}
        mask = None
        if self._payload_columns is not None:
            decoded, mask = self._payload_columns.make(batch)
        arrays = [
            decoded[name] if name in decoded else _BUILDERS[name](self, batch, kind)
            for name, kind in self._builders
        ]
        made = self._arrow.RecordBatch.from_arrays(arrays, schema=self._schema)
        return made if mask is None else made.filter(mask)

    def join(self, batches: Sequence[Any]) -> Any:
        """Return several record batches as one."""
        if len(batches) == 1:
            return batches[0]
        whole = self._arrow.Table.from_batches(batches).combine_chunks().to_batches()
        return whole[0]

    def _streams(self, batch: Batch, kind: Any) -> Any:
        return self._arrow.repeat(self._arrow.scalar(self._stream, kind), batch.count)

    def _subjects(self, batch: Batch, kind: Any) -> Any:
        return self._text(kind, batch.count, batch.subject_offsets, batch.subjects)

    def _seqs(self, batch: Batch, kind: Any) -> Any:
        return self._arrow.Array.from_buffers(
            kind, batch.count, [None, self._arrow.py_buffer(batch.seqs)]
        )

    def _timestamps(self, batch: Batch, kind: Any) -> Any:
        exact = self._arrow.timestamp("ns", tz="UTC")
        found = self._arrow.Array.from_buffers(
            exact, batch.count, [None, self._arrow.py_buffer(batch.times)]
        )
        return found.cast(kind, safe=False)

    def _payloads(self, batch: Batch, kind: Any) -> Any:
        return self._run(kind, batch.count, batch.payload_offsets, batch.payloads)

    def _sizes(self, batch: Batch, kind: Any) -> Any:
        if self._size_values is not None:
            return self._arrow.Array.from_buffers(
                kind, batch.count, [None, self._arrow.py_buffer(self._size_values)]
            )
        ends = self._arrow.Array.from_buffers(
            kind, batch.count + 1, [None, self._arrow.py_buffer(batch.payload_offsets)]
        )
        return import_module("pyarrow.compute").subtract(ends[1:], ends[:-1])

    def _header_maps(self, batch: Batch, kind: Any) -> Any:
        if not batch.headers:
            return self._arrow.nulls(batch.count, kind)
        arrow, buffer = self._arrow, self._arrow.py_buffer
        found = header_columns(batch.headers, batch.header_offsets)
        names = self._text(kind.key_type, found.name_count, found.name_offsets, found.names)
        values = self._text(arrow.string(), found.value_count, found.value_offsets, found.values)
        lists = arrow.Array.from_buffers(
            kind.item_type, found.name_count, [None, buffer(found.value_starts)], children=[values]
        )
        entries = arrow.StructArray.from_arrays(
            [names, lists], fields=[kind.key_field, kind.item_field]
        )
        return arrow.Array.from_buffers(
            kind, batch.count, [buffer(found.valid), buffer(found.starts)], children=[entries]
        )

    def _text(self, kind: Any, count: int, offsets: bytes, data: bytes) -> Any:
        """Return strings; invalid UTF-8 is replaced, because subjects and headers may hold any
        bytes."""
        found = self._run(kind, count, offsets, data)
        if data.isascii():  # then every slice of it is valid text
            return found
        try:
            found.validate(full=True)
        except self._arrow.ArrowInvalid:
            raw = self._run(self._arrow.binary(), count, offsets, data)
            return self._arrow.array(
                [value.decode("utf-8", "replace") for value in raw.to_pylist()], kind
            )
        return found

    def _run(self, kind: Any, count: int, offsets: bytes, data: bytes) -> Any:
        buffers = [None, self._arrow.py_buffer(offsets), self._arrow.py_buffer(data)]
        return self._arrow.Array.from_buffers(kind, count, buffers)


def _stored(batch: Batch) -> tuple[Batch, bytes]:
    """Return a batch without payloads with its stored headers, and the sizes of the payloads."""
    headers, offsets, sizes = without_sizes(batch.headers, batch.header_offsets)
    made = Batch(
        batch.count,
        batch.pending,
        batch.seqs,
        batch.times,
        batch.subjects,
        batch.subject_offsets,
        headers,
        offsets,
        batch.payloads,
        batch.payload_offsets,
    )
    return made, sizes


_BUILDERS: Final = {
    STREAM: RowMaker._streams,
    SUBJECT: RowMaker._subjects,
    SEQ: RowMaker._seqs,
    TIMESTAMP: RowMaker._timestamps,
    HEADERS: RowMaker._header_maps,
    DATA: RowMaker._payloads,
    SIZE: RowMaker._sizes,
}
