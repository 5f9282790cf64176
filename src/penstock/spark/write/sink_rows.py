"""Arrow batches of a sink as columns to publish: subjects, payloads, message ids, header lines.

The layout is decided once per schema (`RowLayout`), then applied column by column in Arrow, without
a Python object per row. Invariant: no header value and no id can end its line. A row that cannot be
published raises `BadRow`, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.bulk.publish_frames import Values
from penstock.spark.options import OptionError
from penstock.spark.write.sink_ids import BadRow, RowIds

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SUBJECT: Final = "subject"
DATA: Final = "data"
HEADERS: Final = "headers"
#: Column with the reason why the payload of a row could not be encoded; null if it was.
REASON: Final = "penstock.reason"
NO_KEY: Final = r"^$|[\x00-\x20\x7f:]"
LINE_ENDS: Final = r"[\r\n]"
#: Headers that a server wrote, or would act on: a copy must not repeat them.
#: A rollup would remove rows that another task stored earlier.
OBEYED: Final = r"^(?i:nats-(msg-id|expected-|batch-|stream-source|incr|rollup))"


@dataclass(frozen=True, slots=True)
class SinkRows:
    """Columns of equal length, ready for encoding."""

    count: int
    subjects: Values
    payloads: Values
    ids: Values | None
    lines: Values | None


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Roles of the columns of a schema. `subject` is the subject of every row, if not a column."""

    subject: str
    ids: RowIds
    has_headers: bool
    drops_obeyed: bool = True

    def rows(self, batch: pa.RecordBatch, scope: str = "") -> SinkRows:
        """Return the columns of a batch; raises `BadRow` if a row cannot be published."""
        count = batch.num_rows
        if self.subject:
            subjects = Values.one(self.subject.encode(), count)
        else:
            subjects = values(_without_nulls(batch, SUBJECT))
        return SinkRows(
            count,
            subjects,
            values(payload_column(batch)),
            values(self.ids.checked(batch, scope)) if self.ids else None,
            values(self.lines(batch)) if self.has_headers else None,
        )

    def lines(self, batch: pa.RecordBatch) -> pa.Array:
        return header_lines(batch.column(HEADERS), self.drops_obeyed)

    def sizes(self, batch: pa.RecordBatch, scope: str) -> pa.Array:
        """Return the size of payload, id and header lines of each row; ids and headers must be
        valid."""
        found = pc.binary_length(payload_column(batch))
        if self.ids:
            found = pc.add(found, pc.binary_length(self.ids.texts(batch, scope)))
        return pc.add(found, pc.binary_length(self.lines(batch))) if self.has_headers else found

    def subject_at(self, batch: pa.RecordBatch, row: int) -> str | None:
        found: str | None = self.subject or batch.column(SUBJECT)[row].as_py()
        return found


def payload_column(batch: pa.RecordBatch) -> pa.Array:
    return pc.fill_null(_bytes(batch.column(DATA)), b"")


def check_columns(schema: StructType, kinds: dict[str, tuple[str, ...]], needed: set[str]) -> None:
    """Raise unless the needed columns exist, and existing ones have a supported type."""
    there = {field.name: field.dataType.typeName() for field in schema.fields}
    for name in sorted(needed - there.keys()):
        raise OptionError(f"the rows have no column {name} of type {' or '.join(kinds[name])}")
    for name, allowed in kinds.items():
        if name in there and there[name] not in allowed:
            raise OptionError(
                f"column {name} is {' or '.join(allowed)}, not {there[name]}: cast it"
            )


def values(column: pa.Array) -> Values:
    """Return an Arrow column of text or bytes, without nulls, as `Values`, without a copy."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        column = column.cast(pa.binary())
    _, offsets, data = column.buffers()
    if offsets is None or offsets.size == 0:
        return Values.one(b"", 0)
    return Values(len(column), offsets, data, column.offset)


def header_lines(column: pa.Array, drops_obeyed: bool) -> pa.Array:
    """Return the `Key: value` lines of each row, empty for a row without headers.

    Accepts a column of maps to text, bytes or lists of them, or of lists of pairs.
    """
    offsets, keys, texts = _pairs(column)
    if drops_obeyed:
        offsets, keys, texts = _without_obeyed(offsets, keys, texts)
    for mask, reason in _faulty_pairs(keys, texts):
        if pc.any(mask).as_py():
            raise BadRow(reason)
    pairs = pc.binary_join_element_wise(_bytes(keys), _bytes(texts), b": ")
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, pairs), b"\r\n")
    ended = pc.binary_join_element_wise(joined, b"", b"\r\n")
    return pc.if_else(pc.equal(pc.binary_length(joined), 0), b"", ended)


def faulty_headers(column: pa.Array) -> list[tuple[pa.Array, str]]:
    """Return masks of rows whose headers cannot be sent, with the reason."""
    offsets, keys, texts = _pairs(column)
    found = []
    for mask, reason in _faulty_pairs(keys, texts):
        before = pa.concat_arrays(
            [pa.array([0], pa.int64()), pc.cumulative_sum(mask.cast(pa.int64()))]
        ).take(offsets)
        found.append((pc.greater(pc.subtract(before[1:], before[:-1]), 0), reason))
    return found


def _faulty_pairs(keys: pa.Array, texts: pa.Array) -> list[tuple[pa.Array, str]]:
    return [
        (pc.match_substring_regex(keys, NO_KEY), "a header's name has a blank or a colon"),
        (pc.match_substring_regex(texts, LINE_ENDS), "a header's value has a line end"),
    ]


def _pairs(column: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the offsets of each row among the pairs, names and values; none for an absent map."""
    # A null entry may still span values in the child arrays; an empty list spans none.
    if column.null_count:
        column = _emptied(column)
    offsets = column.offsets
    if pa.types.is_map(column.type):
        keys, texts = column.keys, column.items
    else:
        keys, texts = column.values.field(0), column.values.field(1)
    if pa.types.is_list(texts.type):
        return _spread(offsets, keys, texts)
    return offsets, keys, pc.fill_null(_bytes(texts), b"")


def _emptied(column: pa.Array) -> pa.Array:
    kind = column.type
    taken = column.drop_null()
    counts = pc.fill_null(_lengths(column), 0)
    starts = pc.cumulative_sum(counts)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), starts.cast(pa.int32())])
    if pa.types.is_map(kind):
        first = taken.offsets[0].as_py() if len(taken) else 0
        return pa.MapArray.from_arrays(offsets, taken.keys[first:], taken.items[first:])
    return pa.ListArray.from_arrays(offsets, taken.flatten())


def _lengths(column: pa.Array) -> pa.Array:
    ends, starts = column.offsets[1:], column.offsets[:-1]
    return pc.if_else(column.is_valid(), pc.subtract(ends, starts), 0)


def _spread(
    offsets: pa.Array, keys: pa.Array, lists: pa.Array
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Expand a name with several values to as many pairs."""
    counts = pc.fill_null(pc.list_value_length(lists), 0)
    before = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts)])
    parents = pc.list_parent_indices(lists)
    texts = pc.fill_null(_bytes(lists.flatten()), b"")
    return before.take(offsets), keys.take(parents), texts


def _without_obeyed(
    offsets: pa.Array, keys: pa.Array, texts: pa.Array
) -> tuple[pa.Array, pa.Array, pa.Array]:
    kept = pc.invert(pc.match_substring_regex(keys, OBEYED))
    if pc.all(kept, min_count=0).as_py():
        return offsets, keys, texts
    counts = pc.cumulative_sum(kept.cast(pa.int32()))
    before = pa.concat_arrays([pa.array([0], pa.int32()), counts])
    return before.take(offsets), keys.filter(kept), texts.filter(kept)


def _bytes(column: pa.Array) -> pa.Array:
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _without_nulls(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(name)
    if column.null_count:
        raise BadRow(f"column {name}: a row has none")
    return column
