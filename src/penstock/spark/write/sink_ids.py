"""Message ids of rows: the user's own, or derived from the origin and target of a row.

Without their own ids, rows read from a stream are identified by it: stream, sequence, the time of
storage (a recreated stream stores another message at another time), then the target subject or key
and a hash of the query or write. So the same source written twice, under other subjects or by
another query, has different ids, and a restart of the same query has the same ids. No I/O; works on
Arrow columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

MSG_ID: Final = "msgId"
LINEAGE: Final = ("stream", "seq")
STORED_AT: Final = "timestamp"
ID_SEPARATOR: Final = ":"
CONTROLS: Final = r"[\x00-\x1f\x7f]"


class BadRow(ValueError):
    """A row that cannot be published."""


@dataclass(frozen=True, slots=True)
class RowIds:
    """The columns that identify a row. Lineage columns are extended by `stored_at`, by the column
    `target` and by the scope of the write, unless only `stream:seq` is wanted (scheme 1)."""

    columns: tuple[str, ...] = ()
    is_lineage: bool = False
    stored_at: str = ""
    target: str = ""
    may_repeat: bool = False

    def __bool__(self) -> bool:
        return bool(self.columns)

    @property
    def label(self) -> str:
        return ", ".join(self.columns)

    def first_scheme(self) -> RowIds:
        """Return the ids that versions before 0.2 used for the same rows."""
        return RowIds(self.columns, may_repeat=self.may_repeat)

    def texts(self, batch: pa.RecordBatch, scope: str) -> pa.Array:
        """Return the id of each row; null where a part of it is missing."""
        parts = [pc.cast(batch.column(name), pa.string()) for name in self.columns]
        if self.is_lineage:
            parts += self._origin(batch)
            parts += [pc.cast(batch.column(self.target), pa.string())] if self.target else []
            parts += [scope] if scope else []
        if len(parts) == 1:
            return parts[0]
        return pc.binary_join_element_wise(*parts, ID_SEPARATOR)

    def _origin(self, batch: pa.RecordBatch) -> list[Any]:
        if not self.stored_at:
            return []
        exact = batch.column(self.stored_at).cast(pa.int64())
        return [pc.fill_null(exact.cast(pa.string()), "")]

    def checked(self, batch: pa.RecordBatch, scope: str) -> pa.Array:
        """Return the same; raises `BadRow` if a row has no usable id, or two rows share one."""
        ids = self.texts(batch, scope)
        for mask, reason in faulty_ids(ids):
            if pc.any(mask).as_py():
                raise BadRow(f"column {self.label}: {reason}")
        if not self.may_repeat and pc.count_distinct(ids).as_py() != len(ids):
            raise BadRow(repetition(self.label, _twice(ids)))
        return ids


def faulty_ids(ids: pa.Array) -> list[tuple[pa.Array, str]]:
    """Return masks of rows whose id cannot be sent, with the reason."""
    return [
        (pc.is_null(ids), "a row has no message id"),
        (pc.equal(pc.binary_length(ids), 0), "an empty message id"),
        (pc.match_substring_regex(ids, CONTROLS), "a message id with control codes"),
    ]


def repetition(label: str, id: str) -> str:
    return (
        f"column {label}: the message id {id!r} names two rows, of which the stream would "
        "keep one; set msgIdColumns to columns that tell them apart, or onDuplicate to skip if "
        "rows of one id are meant to be stored once"
    )


def _twice(ids: pa.Array) -> str:
    counts = pc.value_counts(ids)
    at = pc.index(pc.greater(counts.field("counts"), 1), True).as_py()
    return str(counts.field("values")[at].as_py())


def row_ids(
    schema: StructType,
    named: tuple[str, ...],
    *,
    target: str,
    scheme: str,
    may_repeat: bool,
    needs_time: bool = True,
) -> RowIds:
    """Return how rows of a schema are identified: by the requested columns, or by existing ones.

    `needs_time` is False if ids only order the rows of a source, and name none.
    """
    kinds = {field.name: field.dataType.typeName() for field in schema.fields}
    missing = [name for name in named if name not in kinds]
    if missing:
        raise OptionError(f"option msgIdColumns: the rows have no column {', '.join(missing)}")
    if named or MSG_ID in kinds:
        return RowIds(named or (MSG_ID,), may_repeat=may_repeat)
    if not kinds.keys() >= set(LINEAGE):
        return RowIds()
    if scheme == "1":
        return RowIds(LINEAGE, may_repeat=may_repeat)
    has_time = kinds.get(STORED_AT) == "timestamp"
    if needs_time and not has_time:
        raise OptionError(
            "rows with the columns stream and seq need the column timestamp too, as it was read: a "
            "stream that is deleted and created again counts from 1 again. Keep it, or set "
            "msgIdColumns to stream,seq if that never happens"
        )
    return RowIds(
        LINEAGE,
        is_lineage=True,
        stored_at=STORED_AT if has_time else "",
        target=target,
        may_repeat=may_repeat,
    )
