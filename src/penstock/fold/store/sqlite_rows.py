"""Converts updates to SQLite rows: the last update of each key, in key order.

In key order each page of the tree is visited once, and page visits are most of the cost of a batch.
Keys and values are bytearrays, which sqlite3 binds directly, while for bytes it first looks for an
adapter. Updates in columns become rows without intermediate objects. All functions are pure.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from penstock.fold.store.sorted_columns import SortedColumns
from penstock.fold.store.value_record import encode_key
from penstock.kv.kv_types import REVISION_BYTES, Op
from penstock.kv.update_batch import columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.kv.kv_types import KvUpdate

    Row = tuple[bytearray, int | None, bytearray, float | None]
    """key, revision, value, server time"""

REVISION_IN_COLUMN_MAX = 2**63 - 1
_KEY = itemgetter(0)


class BatchRows(NamedTuple):
    """What a batch does to the table `data`, each part in ascending key order."""

    puts: Iterable[Row]
    tokens: list[tuple[bytearray, bytes]]
    """The versions of puts that are not a revision of 63 bits, by key."""
    deletes: Iterator[tuple[bytes]]


def rows_of(batch: Sequence[KvUpdate]) -> BatchRows:
    """Return the rows to insert and the keys to delete."""
    pieces = columns_of(batch)
    if pieces is not None:
        columns = SortedColumns(pieces)
        return BatchRows(columns.rows(), [], zip(columns.deletes()))
    last = sorted({encode_key(one.key): one for one in batch}.items(), key=_KEY)
    puts = [_row(key, one) for key, one in last if one.op is Op.PUT]
    tokens = [
        (bytearray(key), token)
        for key, one in last
        if one.op is Op.PUT and (token := _token(one)) is not None
    ]
    return BatchRows(puts, tokens, ((key,) for key, one in last if one.op is not Op.PUT))


def _row(key: bytes, update: KvUpdate) -> Row:
    revision = _revision(update)
    if revision is not None and revision > REVISION_IN_COLUMN_MAX:
        revision = None
    return bytearray(key), revision, bytearray(update.value), update.created


def _token(update: KvUpdate) -> bytes | None:
    """Return the version for the column `ver`; None if the column `rev` holds it."""
    revision = _revision(update)
    if revision is None:
        return update.token or None
    if revision > REVISION_IN_COLUMN_MAX:
        return revision.to_bytes(REVISION_BYTES, "big")
    return None


def _revision(update: KvUpdate) -> int | None:
    return update.revision if update.revision >= 0 else update.version.revision
