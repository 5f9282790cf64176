"""A fold store in memory, for tests and for caches that may start empty.

It keeps the store contract except for durability, and exports as an append log. `MapStore` is also
the base of the append-log store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.fold.artifact.artifact_import import imported_in_memory
from penstock.fold.errors import FoldStoreError
from penstock.fold.store import pgss
from penstock.fold.store.atomic_files import write_new
from penstock.fold.store.contract import PAGE_BYTES_MAX, PAGE_ENTRIES, SnapshotReader, SnapshotStore
from penstock.fold.store.fold_map import FoldMap
from penstock.fold.store.fold_meta import SnapshotMeta
from penstock.fold.store.side_map import SideMap
from penstock.kv.kv_types import KvEntry, KvUpdate, WatchCursor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Self

    from penstock.fold.store.extensions import SideRows
    from penstock.kv.kv_types import Scope


class MapReader(SnapshotReader):
    """A second handle on a fold in memory; closing it does not close the store."""

    def __init__(self, store: MapStore) -> None:
        self._store = store

    @property
    def cursor(self) -> WatchCursor:
        return self._store.cursor

    @property
    def meta(self) -> SnapshotMeta:
        return self._store.meta

    def get(self, key: str) -> KvEntry | None:
        return self._store.get(key)

    def page(
        self, prefix: str = "", *, after: str | None = None, limit: int = PAGE_ENTRIES
    ) -> list[KvEntry]:
        return self._store.page(prefix, after=after, limit=limit)

    def count(self, prefix: str = "") -> int:
        return self._store.count(prefix)

    def side(self, prefix: bytes, *, after: bytes = b"") -> list[tuple[bytes, bytes]]:
        return self._store.side(prefix, after=after)

    def close(self) -> None:
        """Do nothing; the store stays open."""


class MapStore(SnapshotStore):
    """Base of stores that hold all entries in memory: implements all reads."""

    backend = "append-log"
    backend_version = str(pgss.VERSION)
    payload = "fold.snap"
    keeps_witnesses = False

    def __init__(self) -> None:
        self._map = FoldMap()
        self._side = SideMap()
        self._cursor = WatchCursor.NONE
        self._meta = SnapshotMeta()
        self._closed = False

    @property
    def cursor(self) -> WatchCursor:
        return self._cursor

    @property
    def meta(self) -> SnapshotMeta:
        return self._meta

    def get(self, key: str) -> KvEntry | None:
        self._check_open()
        return self._map.get(key)

    def page(
        self, prefix: str = "", *, after: str | None = None, limit: int = PAGE_ENTRIES
    ) -> list[KvEntry]:
        self._check_open()
        return self._map.page(prefix, after, limit, PAGE_BYTES_MAX)

    def newest(self, limit: int) -> list[KvEntry]:
        self._check_open()
        return self._map.newest(limit)

    def count(self, prefix: str = "") -> int:
        self._check_open()
        return self._map.count(prefix)

    def side(self, prefix: bytes, *, after: bytes = b"") -> list[tuple[bytes, bytes]]:
        self._check_open()
        return self._side.page(prefix, after, PAGE_ENTRIES)

    def write_side(self, rows: SideRows, *, cleared: bytes = b"") -> None:
        self._check_open()
        self._side.change(rows, cleared=cleared)

    def reader(self) -> SnapshotReader:
        self._check_open()
        return MapReader(self)

    def copy_to(self, target: Path) -> None:
        self._check_open()
        write_new(target, pgss.compacted(self._map.put_records(), self._cursor))

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise FoldStoreError("the store is closed")


class MemorySnapshot(MapStore):
    """A fold without a file; the path is ignored."""

    @classmethod
    def open(cls, path: Path | str = "") -> Self:
        return cls()

    @classmethod
    def holding(cls, entries: FoldMap, cursor: WatchCursor, meta: SnapshotMeta) -> Self:
        """Return a fold with the given contents."""
        made = cls()
        made._map, made._cursor, made._meta = entries, cursor, meta
        return made

    @classmethod
    def import_from(
        cls,
        artifact: Path | str,
        dest: Path | str = "",
        *,
        scope: Scope | None = None,
        **_: object,
    ) -> Self:
        """Verify an artifact and load it; `dest` is ignored."""
        return imported_in_memory(cls, artifact, scope=scope)

    def apply(
        self, batch: Sequence[KvUpdate], cursor: WatchCursor, *, meta: SnapshotMeta | None = None
    ) -> None:
        self._check_open()
        with self._extended(batch, cursor, meta) as side:
            self._map.fold(batch)
            self._side.change(side)
            self._meta = self._meta if meta is None else meta
            self._cursor = cursor

    def clear(self) -> None:
        self._check_open()
        self._cursor, self._meta = WatchCursor.NONE, SnapshotMeta()
        self._map.clear()
        self._side.clear()
        self._emptied()
