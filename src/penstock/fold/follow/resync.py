"""Saves the entries that a resync removes from a fold.

A bucket that evicts values may have dropped a value of which the fold has the last copy. So a
resync first writes every entry it removes to a file beside the fold, an append log that
`penstock fold scan` reads. The repair calls `Aside.kept` in the worker's thread, before the commit
that removes the entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from penstock.fold.follow.repair import next_chunk
from penstock.fold.store.append_log import AppendLogSnapshot
from penstock.kv.kv_types import KvUpdate, Op

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.fold.store.contract import SnapshotReader
    from penstock.kv.kv_types import KvEntry

ASIDE_SUFFIX = ".aside-"
"""Suffix of the file name; the fold's cursor at the time of the removal follows it."""


class Resynced(Struct, frozen=True):
    """The number of entries a resync removed, and the file they were saved to, if any."""

    removed: int
    aside: Path | None


class Aside:
    """Writes entries to a file beside `path` before they are removed; None writes no file."""

    def __init__(self, path: Path | None) -> None:
        self._beside = path
        self._log: AppendLogSnapshot | None = None
        self._removed = 0
        self._path: Path | None = None

    def kept(self, store: SnapshotReader, removals: Iterator[KvUpdate]) -> Iterator[KvUpdate]:
        """Yield the same removals, each after its entry is durable in the file."""
        while chunk := next_chunk(removals):
            found = store.get_many([update.key for update in chunk])
            self._write(store, [_put(entry) for entry in found if entry is not None])
            self._removed += len(chunk)
            yield from chunk

    def close(self) -> Resynced:
        if self._log is not None:
            self._log.close()
            self._log = None
        return Resynced(self._removed, self._path)

    def _write(self, store: SnapshotReader, entries: list[KvUpdate]) -> None:
        if self._beside is None:
            return
        if self._log is None:
            name = f"{self._beside.name}{ASIDE_SUFFIX}{store.cursor.rank}"
            self._path = self._beside.with_name(name)
            self._log = AppendLogSnapshot.open(self._path, sync=True)
        self._log.apply(entries, store.cursor)


def _put(entry: KvEntry) -> KvUpdate:
    revision = entry.revision
    if revision is None:
        return KvUpdate(Op.PUT, entry.key, entry.value, token=entry.version.raw)
    return KvUpdate(Op.PUT, entry.key, entry.value, revision)
