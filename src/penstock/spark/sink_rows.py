"""Arrow batches of a sink as columns to publish: subjects, payloads, message ids, header lines.

Decided once for a schema (`Layout`), then done column by column in Arrow, no Python object per row.
Invariant: nothing in a header value or an id can end its line. A row that cannot be published is
a `BadRow`, which says which row and what is wrong with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.bulk.frames import Values
from penstock.spark.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SUBJECT: Final = "subject"
DATA: Final = "data"
HEADERS: Final = "headers"
MSG_ID: Final = "msgId"
LINEAGE: Final = ("stream", "seq")
ID_SEPARATOR: Final = ":"
CONTROLS: Final = r"[\x00-\x1f\x7f]"
NO_KEY: Final = r"^$|[\x00-\x20\x7f:]"
LINE_ENDS: Final = r"[\r\n]"
#: What a server wrote into a header, or would obey: not to be said again by a copy.
OBEYED: Final = r"^(?i:nats-(msg-id|expected-|batch-|stream-source|incr))"


class BadRow(ValueError):
    """A row that cannot be published."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of one length, ready to be encoded."""

    count: int
    subjects: Values
    payloads: Values
    ids: Values | None
    lines: Values | None


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns of a schema are what. `subject` is what every row has, if not a column."""

    subject: str
    ids: tuple[str, ...]
    has_headers: bool
    drops_obeyed: bool = True

    def rows(self, batch: pa.RecordBatch) -> Rows:
        """The columns of a batch; ids are left out where there are none."""
        count = batch.num_rows
        if self.subject:
            subjects = Values.one(self.subject.encode(), count)
        else:
            subjects = values(_without_nulls(batch, SUBJECT))
        return Rows(
            count,
            subjects,
            values(pc.fill_null(_bytes(batch.column(DATA)), b"")),
            values(id_column(batch, self.ids)) if self.ids else None,
            values(header_lines(batch.column(HEADERS), self.drops_obeyed))
            if self.has_headers
            else None,
        )


def id_columns(schema: StructType, named: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that name a row: those asked for, or those that are there; maybe none."""
    there = set(schema.fieldNames())
    missing = [name for name in named if name not in there]
    if missing:
        raise OptionError(f"option msgIdColumns: the rows have no column {', '.join(missing)}")
    if named:
        return named
    if MSG_ID in there:
        return (MSG_ID,)
    return LINEAGE if there.issuperset(LINEAGE) else ()


def check_columns(schema: StructType, kinds: dict[str, tuple[str, ...]], needed: set[str]) -> None:
    """Columns that are needed are there, and those that are there have a type we can write."""
    there = {field.name: field.dataType.typeName() for field in schema.fields}
    for name in sorted(needed - there.keys()):
        raise OptionError(f"the rows have no column {name} of type {' or '.join(kinds[name])}")
    for name, allowed in kinds.items():
        if name in there and there[name] not in allowed:
            raise OptionError(
                f"column {name} is {' or '.join(allowed)}, not {there[name]}: cast it"
            )


def values(column: pa.Array) -> Values:
    """An Arrow column of text or bytes, without nulls, as it stands."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        column = column.cast(pa.binary())
    _, offsets, data = column.buffers()
    if offsets is None or offsets.size == 0:
        return Values.one(b"", 0)
    return Values(len(column), offsets, data, column.offset)


def id_column(batch: pa.RecordBatch, names: tuple[str, ...]) -> pa.Array:
    """The id of each row; an id that comes twice would be stored once, so it is refused."""
    parts = [pc.cast(_without_nulls(batch, name), pa.string()) for name in names]
    ids = pc.binary_join_element_wise(*parts, ID_SEPARATOR) if len(parts) > 1 else parts[0]
    named = ", ".join(names)
    _refuse_any(pc.equal(pc.binary_length(ids), 0), f"column {named}: an empty message id")
    _refuse_any(
        pc.match_substring_regex(ids, CONTROLS), f"column {named}: a message id with control codes"
    )
    if pc.count_distinct(ids).as_py() != len(ids):
        counts = pc.value_counts(ids)
        at = pc.index(pc.greater(counts.field("counts"), 1), True).as_py()
        twice = counts.field("values")[at].as_py()
        raise BadRow(
            f"column {named}: the message id {twice!r} names two rows, of which the stream would "
            "keep one; set msgIdColumns to columns that tell them apart"
        )
    return ids


def header_lines(column: pa.Array, drops_obeyed: bool) -> pa.Array:
    """`Key: value` lines of each row, empty where it has no headers.

    A column of maps to text, bytes or lists of them, or of lists of pairs.
    """
    offsets, keys, texts = _pairs(column)
    if drops_obeyed:
        offsets, keys, texts = _without_obeyed(offsets, keys, texts)
    _refuse_any(pc.match_substring_regex(keys, NO_KEY), "a header's name has a blank or a colon")
    _refuse_any(pc.match_substring_regex(texts, LINE_ENDS), "a header's value has a line end")
    pairs = pc.binary_join_element_wise(_bytes(keys), _bytes(texts), b": ")
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, pairs), b"\r\n")
    ended = pc.binary_join_element_wise(joined, b"", b"\r\n")
    return pc.if_else(pc.equal(pc.binary_length(joined), 0), b"", ended)


def _pairs(column: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Offsets of each row among the pairs, names, values; a row without headers has none."""
    # A null may stand before values that are nobody's: an empty list has none.
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
    """A name with several values is as many pairs."""
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


def _refuse_any(found: Any, reason: str) -> None:
    if pc.any(found).as_py():
        raise BadRow(reason)
