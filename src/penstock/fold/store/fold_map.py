"""A fold in memory: a dict of value records, and a sorted list of keys that is built on demand.

One thread changes the map; others may read. `get` needs no lock, because a single dict operation is
atomic; the sorted keys are updated under a lock. The map does not depend on files or cursors.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from heapq import nlargest
from threading import Lock
from typing import TYPE_CHECKING

from penstock.fold.store.log_codec import encode_entries, fold_columns, fold_updates
from penstock.fold.store.value_record import decode_record
from penstock.kv.kv_types import REVISION_BYTES
from penstock.kv.update_batch import Updates, pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.kv.kv_types import KvEntry, KvUpdate

INSERTED_ONE_BY_ONE_MAX = 64
"""If more keys than this have changed, they are merged into the sorted list in one pass."""
ENTRIES_AT_ONCE = 1_000
"""Number of entries that are encoded into one piece."""


class FoldMap:
    """Keys to value records, with ordered access."""

    def __init__(self, records: dict[str, bytes] | None = None, log_bytes: int = 0) -> None:
        self.log_bytes = log_bytes
        """Length of an append log of the entries alone."""
        self._records = {} if records is None else records
        self._ordered: list[str] = []
        self._added: set[str] = set()
        self._removed: set[str] = set()
        self._order_is_stale = bool(self._records)
        """Changes are not tracked, because there are too many: the next use sorts all keys."""
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._records)

    def fold(self, batch: Sequence[KvUpdate]) -> None:
        """Apply a batch; ValueError for a key or token that is too long, as in encoding."""
        with self._lock:
            for piece in pieces_of(batch):
                self.log_bytes += self._folded(piece)
            changed = len(self._added) + len(self._removed)
            if self._order_is_stale or changed > max(INSERTED_ONE_BY_ONE_MAX, len(self._ordered)):
                self._forget_order()

    def _folded(self, piece: Sequence[KvUpdate]) -> int:
        if isinstance(piece, Updates):
            columns = piece.batch, piece.skipped, piece.ops
            return fold_columns(self._records, *columns, self._added, self._removed)
        return fold_updates(self._records, piece, self._added, self._removed)

    def clear(self) -> None:
        with self._lock:
            self._records.clear()
            self._forget_order()
            self.log_bytes = 0

    def get(self, key: str) -> KvEntry | None:
        record = self._records.get(key)
        return None if record is None else decode_record(key, record)

    def newest(self, limit: int) -> list[KvEntry]:
        """Return the entries with the highest revisions."""
        with self._lock:
            found = nlargest(limit, self._records.items(), key=lambda one: _revision(one[1]))
        return [decode_record(key, record) for key, record in found]

    def page(self, prefix: str, after: str | None, limit: int, bytes_max: int) -> list[KvEntry]:
        found: list[KvEntry] = []
        size = 0
        with self._lock:
            keys = self._keys()
            at = bisect_left(keys, prefix)
            if after is not None:
                at = max(at, bisect_right(keys, after))
            for key in keys[at : at + limit]:
                if not key.startswith(prefix) or size >= bytes_max:
                    break
                record = self._records[key]
                size += len(record)
                found.append(decode_record(key, record))
        return found

    def count(self, prefix: str) -> int:
        if not prefix:
            return len(self._records)
        with self._lock:
            keys = self._keys()
            start = bisect_left(keys, prefix)
            stop = bisect_left(keys, True, lo=start, key=lambda key: not key.startswith(prefix))
            return stop - start

    def put_records(self) -> Iterator[bytes]:
        """Yield the entries as append-log records in key order; the map must not change."""
        with self._lock:
            keys = self._keys()
        for start in range(0, len(keys), ENTRIES_AT_ONCE):
            yield encode_entries(self._records, keys[start : start + ENTRIES_AT_ONCE])

    def _keys(self) -> list[str]:
        """Return the current keys in order; the caller holds the lock."""
        added, removed = self._added, self._removed
        if self._order_is_stale:
            self._ordered = sorted(self._records)
            self._order_is_stale = False
            return self._ordered
        if not added and not removed:
            return self._ordered
        if len(added) + len(removed) <= INSERTED_ONE_BY_ONE_MAX:
            self._change_few()
        else:
            kept = [key for key in self._ordered if key not in removed]
            # Two ascending runs: sorting them is one merge.
            kept += sorted(key for key in added if key in self._records)
            kept.sort()
            self._ordered = kept
        added.clear()
        removed.clear()
        return self._ordered

    def _forget_order(self) -> None:
        self._added.clear()
        self._removed.clear()
        self._ordered = []
        self._order_is_stale = True

    def _change_few(self) -> None:
        keys = self._ordered
        for key in self._removed:
            at = bisect_left(keys, key)
            if at < len(keys) and keys[at] == key:
                del keys[at]
        for key in self._added:
            if key in self._records:
                insort(keys, key)


def _revision(record: bytes) -> bytes:
    """Return the revision bytes of a value record, which compare like numbers; else empty."""
    return record[1 : 1 + REVISION_BYTES] if record[0] == REVISION_BYTES else b""
