"""Converts updates to SQLite rows: the last update of each key, in key order.

In key order each page of the tree is visited once, and page visits are most of the cost of a batch.
Updates in columns become rows without intermediate objects. All functions are pure.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from penstock.base.units import SECOND_NS
from penstock.fold.store.value_record import KEY_BYTES_MAX, encode_key
from penstock.kv.kv_types import REVISION_BYTES, Op
from penstock.kv.update_batch import Updates, pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.kv.kv_types import KvUpdate

    Row = tuple[bytes, int | None, bytes, float | None, bytes | None]
    """key, revision, value, server time, and a version that is not a revision of 63 bits."""

REVISION_IN_COLUMN_MAX = 2**63 - 1
_KEY = itemgetter(0)
_PUT = int(Op.PUT)


def rows_of(batch: Sequence[KvUpdate]) -> tuple[list[Row], list[tuple[bytes]]]:
    """Return the rows to insert and the keys to delete, each in ascending key order."""
    last: dict[bytes, Row | None] = {}
    for piece in pieces_of(batch):
        last.update(_columns(piece) if isinstance(piece, Updates) else map(_change, piece))
    puts = [row for row in last.values() if row is not None]
    deletes = [(key,) for key, row in last.items() if row is None] if len(puts) < len(last) else []
    puts.sort(key=_KEY)
    deletes.sort()
    return puts, deletes


def _change(update: KvUpdate) -> tuple[bytes, Row | None]:
    key = encode_key(update.key)
    return key, _row(key, update) if update.op is Op.PUT else None


def _row(key: bytes, update: KvUpdate) -> Row:
    revision: int | None = update.revision
    if update.revision < 0:
        revision = update.version.revision
    if revision is None:
        return key, None, update.value, update.created, update.token or None
    if revision > REVISION_IN_COLUMN_MAX:
        raw = revision.to_bytes(REVISION_BYTES, "big")
        return key, None, update.value, update.created, raw
    return key, revision, update.value, update.created, None


def _columns(updates: Updates) -> Iterable[tuple[bytes, Row | None]]:
    skipped = updates.skipped
    rows = updates.batch.rows()
    keys = [row[0][skipped:].encode() for row in rows]
    if max(map(len, keys), default=0) > KEY_BYTES_MAX:
        raise ValueError(f"a key has at most {KEY_BYTES_MAX} bytes")
    return zip(
        keys,
        (
            (key, seq, value, time_ns / SECOND_NS, None) if op == _PUT else None
            for key, (_, seq, time_ns, _, value), op in zip(keys, rows, updates.ops, strict=True)
        ),
        strict=True,
    )
