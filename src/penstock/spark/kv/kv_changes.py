"""Convert rows of a DataFrame to changes of a KV bucket: subjects, payloads and header lines.

No I/O; works on Arrow columns. A change is a publish: its operation, expected revision and time to
live are header lines. Rows of one key are put in separate waves, so that a later row is never sent
before an earlier row of its key is stored.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.kv.bucket_records import KEY as KEY_PATTERN
from penstock.kv.bucket_records import prefix_of
from penstock.spark.kv.kv_rows import KEY, OP, OPERATIONS, PUT, VALUE
from penstock.spark.write.sink_ids import BadRow, RowIds
from penstock.spark.write.sink_rows import SinkRows, values

if TYPE_CHECKING:
    from collections.abc import Iterator

LINES: Final = {
    PUT: b"",
    "delete": b"KV-Operation: DEL\r\n",
    "purge": b"KV-Operation: PURGE\r\nNats-Rollup: sub\r\n",
}
EXPECTED: Final = b"Nats-Expected-Last-Subject-Sequence: "
TTL: Final = b"Nats-TTL: "
ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class ChangeLayout:
    """Roles of the columns; an empty name means that the column does not exist."""

    bucket: str
    has_op: bool
    ids: RowIds = field(default_factory=RowIds)
    revision: str = ""
    ttl: str = ""
    ttl_ms: int = 0

    def changes(self, batch: pa.RecordBatch, scope: str = "") -> BucketChanges:
        keys = key_column(batch)
        operations = operation_column(batch) if self.has_op else None
        payloads = value_column(batch, operations)
        revisions = revision_column(batch, self.revision) if self.revision else None
        return BucketChanges(
            keys=keys,
            payloads=payloads,
            revisions=revisions,
            ids=self.ids.checked(batch, scope).cast(pa.binary())
            if self.ids
            else self._ids(keys, payloads, operations, revisions),
            lines=self._lines(batch, operations, revisions),
            prefix=prefix_of(self.bucket).encode(),
        )

    def _ids(self, keys: Any, payloads: Any, operations: Any, revisions: Any) -> pa.Array:
        """Return an id for each row.

        The id of a change that depends on a revision is a hash of the change, which can happen only
        once; any other id is unique to this attempt.
        """
        attempt = secrets.token_hex(ID_BYTES)
        rows = pa.array(range(len(keys)), pa.int64()).cast(pa.string())
        ids = pc.binary_join_element_wise(attempt, rows, ".").cast(pa.binary())
        if revisions is None:
            return ids
        named = [
            None if revision is None else _name(key, revision, payload, operation)
            for key, revision, payload, operation in zip(
                keys.to_pylist(),
                revisions.to_pylist(),
                payloads.to_pylist(),
                operations.to_pylist() if operations is not None else [PUT] * len(keys),
                strict=True,
            )
        ]
        return pc.coalesce(pa.array(named, pa.binary()), ids)

    def _lines(self, batch: pa.RecordBatch, operations: Any, revisions: Any) -> pa.Array | None:
        parts = []
        if operations is not None:
            parts.append(_looked_up(operations))
        if revisions is not None:
            parts.append(_line(EXPECTED, revisions))
        lifetimes = self._lifetimes(batch, operations)
        if lifetimes is not None:
            parts.append(_line(TTL, pc.binary_join_element_wise(lifetimes, "ms", "")))
        return pc.binary_join_element_wise(*parts, b"") if parts else None

    def _lifetimes(self, batch: pa.RecordBatch, operations: Any) -> pa.Array | None:
        """Return lifetimes in milliseconds as text; null for values without expiry."""
        count = batch.num_rows
        default: Any = pa.nulls(count, pa.int64())
        if self.ttl_ms:
            default = pa.repeat(pa.scalar(self.ttl_ms, pa.int64()), count)
            if operations is not None:
                default = pc.if_else(
                    pc.equal(operations, PUT), default, pa.scalar(None, pa.int64())
                )
        if not self.ttl:
            return default.cast(pa.string()) if self.ttl_ms else None
        chosen = batch.column(self.ttl).cast(pa.int64())
        if pc.any(pc.less(chosen, 1000)).as_py():
            raise BadRow(f"column {self.ttl}: a time to live is 1000 ms at least")
        return pc.coalesce(chosen, default).cast(pa.string())


@dataclass(frozen=True, slots=True)
class BucketChanges:
    """Columns of equal length."""

    keys: pa.Array
    payloads: pa.Array
    revisions: pa.Array | None
    ids: pa.Array
    lines: pa.Array | None
    prefix: bytes

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, at: list[int]) -> BucketChanges:
        """Return only these rows."""
        chosen = pa.array(at, pa.int64())
        return BucketChanges(
            keys=self.keys.take(chosen),
            payloads=self.payloads.take(chosen),
            revisions=self.revisions.take(chosen) if self.revisions is not None else None,
            ids=self.ids.take(chosen),
            lines=self.lines.take(chosen) if self.lines is not None else None,
            prefix=self.prefix,
        )

    def waves(self) -> Iterator[BucketChanges]:
        """Yield all rows in waves: a key occurs once per wave, and its rows keep their order."""
        if pc.count_distinct(self.keys).as_py() == len(self):
            yield self
            return
        waves: list[list[int]] = []
        seen: dict[str, int] = {}
        for at, key in enumerate(self.keys.to_pylist()):
            wave = seen[key] = seen.get(key, -1) + 1
            if wave == len(waves):
                waves.append([])
            waves[wave].append(at)
        for rows in waves:
            yield self.take(rows)

    def latest(self) -> BucketChanges:
        """Return the last row of each key, in order."""
        if pc.count_distinct(self.keys).as_py() == len(self):
            return self
        last = {key: at for at, key in enumerate(self.keys.to_pylist())}
        return self.take(sorted(last.values()))

    def rows(self) -> SinkRows:
        """Return the rows ready for encoding."""
        subjects = pc.binary_join_element_wise(self.prefix, self.keys.cast(pa.binary()), b"")
        return SinkRows(
            len(self),
            values(subjects),
            values(self.payloads),
            values(self.ids),
            values(self.lines) if self.lines is not None else None,
        )


def key_column(batch: pa.RecordBatch) -> pa.Array:
    keys = batch.column(KEY).cast(pa.string())
    fine = pc.fill_null(pc.match_substring_regex(keys, f"^{KEY_PATTERN.pattern[:-2]}$"), False)
    if not pc.all(fine, min_count=0).as_py():
        bad = keys[pc.index(fine, False).as_py()].as_py()
        raise BadRow(f"column {KEY}: {bad!r} is no key")
    return keys


def operation_column(batch: pa.RecordBatch) -> pa.Array:
    operations = pc.fill_null(pc.utf8_lower(batch.column(OP).cast(pa.string())), PUT)
    known = pc.is_in(operations, value_set=pa.array(list(LINES)))
    if not pc.all(known, min_count=0).as_py():
        bad = operations[pc.index(known, False).as_py()].as_py()
        raise BadRow(f"column {OP}: {bad!r} is not one of {', '.join(OPERATIONS.values())}")
    return operations


def value_column(batch: pa.RecordBatch, operations: pa.Array | None) -> pa.Array:
    """Return what is stored: empty for a delete, whatever the row contains."""
    found = batch.column(VALUE).cast(pa.binary())
    if operations is not None:
        found = pc.if_else(pc.equal(operations, PUT), found, b"")
    if found.null_count:
        raise BadRow(f"column {VALUE}: a put without a value; to delete a key set {OP} to delete")
    return found


def revision_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    found = batch.column(name).cast(pa.int64())
    if pc.any(pc.less(found, 0)).as_py():
        raise BadRow(f"column {name}: a revision is 0 or more")
    return found


def _line(start: bytes, column: pa.Array) -> pa.Array:
    """Return a header line for each value, empty where it is null."""
    texts = column.cast(pa.string()).cast(pa.binary())
    return pc.fill_null(pc.binary_join_element_wise(start, texts, b"\r\n", b""), b"")


def _looked_up(operations: pa.Array) -> pa.Array:
    at = pc.index_in(operations, value_set=pa.array(list(LINES)))
    return pa.array(list(LINES.values()), pa.binary()).take(at)


def _name(key: str, revision: int, payload: bytes, operation: str) -> bytes:
    head = f"{key} {revision} {operation} ".encode()
    return hashlib.blake2b(head + payload, digest_size=ID_BYTES).hexdigest().encode()
