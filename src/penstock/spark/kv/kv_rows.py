"""Convert batches of a bucket's stream to rows of keys.

Columns are built from the buffers without a copy; only records whose headers name an operation
(deletes, purges, markers the server creates) are examined one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.kv.bucket_records import MARKER_REASON, OPERATION, operation, prefix_of
from penstock.kv.kv_types import Op
from penstock.spark.message_rows import arrow_schema
from penstock.spark.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock.bulk.record_batch import Batch

KEY, VALUE, OP, REVISION, CREATED = "key", "value", "op", "revision", "created"
PUT: Final = "put"
OPERATIONS: Final = {Op.PUT: PUT, Op.DELETE: "delete", Op.PURGE: "purge"}
_MARKED: Final = b"\r\n(" + OPERATION + b"|" + MARKER_REASON + b"):"


def bucket_schema() -> StructType:
    """Return the columns of a bucket."""
    from pyspark.sql import types

    kinds: dict[str, types.DataType] = {
        KEY: types.StringType(),
        VALUE: types.BinaryType(),
        OP: types.StringType(),
        REVISION: types.LongType(),
        CREATED: types.TimestampType(),
    }
    return types.StructType([types.StructField(name, kind) for name, kind in kinds.items()])


def check_bucket_schema(schema: StructType) -> None:
    """Raise unless the user's schema has a subset of our columns, in any order, with our types."""
    ours = {field.name: field.dataType.simpleString() for field in bucket_schema().fields}
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if ours.get(field.name) != kind:
            raise OptionError(
                f"there is no column {field.name} of type {kind}: there are "
                + ", ".join(f"{name} {its}" for name, its in ours.items())
            )


class KeyRows:
    """Converts the batches of a bucket to record batches. `prefixes` selects the keys."""

    def __init__(self, bucket: str, prefixes: tuple[str, ...], schema: StructType) -> None:
        self._skipped = len(prefix_of(bucket))
        self._prefixes = prefixes
        self.schema: pa.Schema = arrow_schema(schema)
        self.full: pa.Schema = arrow_schema(bucket_schema())

    def make(self, batch: Batch) -> pa.RecordBatch:
        """Return all columns, whatever the schema: `narrowed` selects those of the schema."""
        keys = self._keys(batch)
        operations = _operations(batch)
        values = _run(pa.binary(), batch.count, batch.payload_offsets, batch.payloads)
        if operations.null_count < len(operations):
            values = pc.if_else(pc.is_null(operations), values, pa.scalar(None, pa.binary()))
        arrays = {
            KEY: keys,
            VALUE: values,
            OP: pc.fill_null(operations, PUT),
            REVISION: pa.Array.from_buffers(
                pa.int64(), batch.count, [None, pa.py_buffer(batch.seqs)]
            ),
            CREATED: pa.Array.from_buffers(
                pa.timestamp("ns", tz="UTC"), batch.count, [None, pa.py_buffer(batch.times)]
            ),
        }
        rows = pa.RecordBatch.from_arrays(
            [arrays[field.name].cast(field.type, safe=False) for field in self.full],
            schema=self.full,
        )
        return self._wanted(rows)

    def narrowed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.select(self.schema.names).cast(self.schema)

    def _keys(self, batch: Batch) -> pa.Array:
        subjects = _run(pa.string(), batch.count, batch.subject_offsets, batch.subjects)
        try:
            subjects.validate(full=True)
        except pa.ArrowInvalid:
            # Not written through a KV client: a server accepts any bytes as a subject.
            raw = subjects.view(pa.binary()).to_pylist()
            return pa.array(
                [subject[self._skipped :].decode("utf-8", "replace") for subject in raw]
            )
        return pc.utf8_slice_codeunits(subjects, self._skipped)

    def _wanted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Filter by prefix: subject filters match whole tokens, but a prefix may end within one."""
        if all(not prefix or prefix.endswith(".") for prefix in self._prefixes):
            return rows
        keys = rows.column(KEY)
        kept = pc.starts_with(keys, self._prefixes[0])
        for prefix in self._prefixes[1:]:
            kept = pc.or_(kept, pc.starts_with(keys, prefix))
        return rows.filter(kept)


def _operations(batch: Batch) -> pa.Array:
    """Return what each record does to its key; null for a plain put."""
    if not batch.headers:
        return pa.nulls(batch.count, pa.string())
    blocks = _run(pa.binary(), batch.count, batch.header_offsets, batch.headers)
    marked = pc.match_substring_regex(blocks, _MARKED)
    found: list[str | None] = [None] * batch.count
    for at in pc.indices_nonzero(marked).to_pylist():
        done, _ = operation(blocks[at].as_py())
        found[at] = None if done is Op.PUT else OPERATIONS[done]
    return pa.array(found, pa.string())


def _run(kind: Any, count: int, offsets: bytes, data: bytes) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def newest_of(rows: pa.Table) -> pa.Table:
    """Return the row with the highest revision of each key."""
    latest = rows.group_by(KEY).aggregate([(REVISION, "max")])[f"{REVISION}_max"]
    return rows.filter(pc.is_in(rows[REVISION], value_set=latest.combine_chunks()))
