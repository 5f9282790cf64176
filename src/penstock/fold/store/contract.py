"""The fold store interface: a durable map of keys to values and versions, with one cursor.

Invariant: every update up to the readable cursor is in the store, also after a crash. Data may be
ahead of the cursor; applying it again changes nothing. A store is a cache of the bucket: its
contents depend only on the updates it received, the last one per key.

Methods block. Only one thread at a time may call `apply`, `clear`, `finish_load` and `export_to`.
Any thread may read at the same time, through the store or a `reader()`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from heapq import nlargest
from typing import TYPE_CHECKING, ClassVar

from penstock.fold.artifact.artifact_export import export_store
from penstock.fold.artifact.artifact_import import import_store
from penstock.fold.errors import FoldStoreError
from penstock.fold.store.extensions import EntryChange, Extensions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Self

    from penstock.fold.artifact.manifest import Manifest
    from penstock.fold.store.extensions import Extension, SideRows
    from penstock.fold.store.fold_meta import SnapshotMeta
    from penstock.kv.kv_types import KvEntry, KvUpdate, Scope, WatchCursor

PAGE_ENTRIES = 1_000
"""Number of entries of a range that are read at a time."""
PAGE_BYTES_MAX = 4 * 1024 * 1024
"""A page ends early once its values have this total size."""


class SnapshotReader(ABC):
    """The read interface; may be used from any thread while the writer changes the store."""

    @property
    @abstractmethod
    def cursor(self) -> WatchCursor:
        """The position up to which everything is in the store."""

    @property
    @abstractmethod
    def meta(self) -> SnapshotMeta:
        """The origin of the fold, as far as known."""

    @abstractmethod
    def get(self, key: str) -> KvEntry | None: ...

    def get_many(self, keys: Sequence[str]) -> list[KvEntry | None]:
        """Return one result per key, in the same order."""
        return [self.get(key) for key in keys]

    @abstractmethod
    def page(
        self, prefix: str = "", *, after: str | None = None, limit: int = PAGE_ENTRIES
    ) -> list[KvEntry]:
        """Return the next entries above `after` in ascending byte order of keys, consistently.

        A page may have fewer than `limit` entries (`PAGE_BYTES_MAX`); only the end of the range
        gives an empty page.
        """

    def range(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> Iterator[KvEntry]:
        """Yield entries in ascending order, read a page at a time; each page is consistent.

        Updates applied meanwhile are visible after the last page read; no key is yielded twice.
        """
        left = limit
        while left is None or left > 0:
            wanted = PAGE_ENTRIES if left is None else min(left, PAGE_ENTRIES)
            page = self.page(prefix, after=after, limit=wanted)
            if not page:
                return
            yield from page
            after = page[-1].key
            left = None if left is None else left - len(page)

    @abstractmethod
    def count(self, prefix: str = "") -> int: ...

    def side(self, prefix: bytes, *, after: bytes = b"") -> list[tuple[bytes, bytes]]:
        """Return the next `PAGE_ENTRIES` rows of the side space above `after`, in key order."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Close; closing twice is allowed, any other call after it raises."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SnapshotStore(SnapshotReader):
    """A durable fold. Backends differ in storage and in what survives a power cut."""

    backend: ClassVar[str]
    """The backend name in manifests."""
    backend_version: ClassVar[str]
    """The format version in manifests."""
    backend_version_gated: ClassVar[bool] = True
    """Whether an import rejects another format version."""
    payload: ClassVar[str]
    """The name of the store's single file in an artifact; empty if the store is a directory."""
    hydrate_batch: ClassVar[int] = 8_192
    """Preferred batch size, in updates, until the fold has caught up."""
    keeps_witnesses: ClassVar[bool] = True
    """Whether committing metadata with every batch is cheap; if not, `newest` is cheap."""
    _extensions: Extensions | None = None

    def newest(self, limit: int) -> list[KvEntry]:
        """Return the entries with the highest revisions; scans the store."""
        return nlargest(limit, self.range(), key=lambda entry: entry.revision or 0)

    @classmethod
    @abstractmethod
    def open(cls, path: Path | str) -> Self:
        """Open or create the store at `path`. Backends take options by keyword."""

    @abstractmethod
    def apply(
        self, batch: Sequence[KvUpdate], cursor: WatchCursor, *, meta: SnapshotMeta | None = None
    ) -> None:
        """Apply a batch and set the cursor, atomically as far as the backend supports it.

        The batch may be empty. `meta`, if given, becomes durable no later than the cursor.
        """

    @abstractmethod
    def clear(self) -> None:
        """Remove all entries, the cursor and the metadata in one step."""

    def finish_load(self) -> None:
        """Do the work that a bulk load deferred, before latency matters."""
        if self._extensions is not None:
            self._extensions.catch_up()

    def compact(self) -> None:
        """Reclaim disk space of deleted and overwritten entries, as far as the backend can."""
        self.finish_load()

    def attach(self, extension: Extension) -> None:
        """Attach an extension, build it if necessary, and update it in every later commit."""
        if self._extensions is None:
            self._extensions = Extensions(self)
        self._extensions.attach(extension)

    @property
    def attached(self) -> Sequence[Extension]:
        return () if self._extensions is None else self._extensions.attached

    def write_side(self, rows: SideRows, *, cleared: bytes = b"") -> None:
        """Write rows of the side space only, after removing rows with the prefix `cleared`."""
        raise FoldStoreError("this store has no room for extensions")

    @contextmanager
    def _extended(
        self, batch: Sequence[KvUpdate], cursor: WatchCursor, meta: SnapshotMeta | None
    ) -> Iterator[SideRows]:
        """Wrap a commit; yield the side rows to write with it."""
        if self._extensions is None:
            self._extensions = Extensions(self)
        with self._extensions.around(EntryChange(self, batch, cursor, meta)) as side:
            yield side

    def _emptied(self) -> None:
        """Rebuild extensions after the store and its side space were emptied."""
        if self._extensions is not None:
            self._extensions.build_again()

    @abstractmethod
    def reader(self) -> SnapshotReader:
        """Return a separate reader for another thread; the caller closes it before the store."""

    @abstractmethod
    def copy_to(self, target: Path) -> None:
        """Write a consistent copy to `target`, which must not exist; its parent must exist."""

    @classmethod
    def check_payload(cls, path: Path) -> None:
        """Raise FoldFormatError if an untrusted payload contains anything that no fold has."""

    @classmethod
    def open_copy(cls, path: Path) -> SnapshotReader:
        """Open a copy for reading, without creating files beside it."""
        return cls.open(path)

    def export_to(
        self, dest: Path | str, *, form: str | None = None, created_at: int | None = None
    ) -> Manifest:
        """Export an artifact to `dest`; every store can read `form="append-log"`."""
        return export_store(self, dest, form=form, created_at=created_at)

    @classmethod
    def import_from(
        cls,
        artifact: Path | str,
        dest: Path | str,
        *,
        scope: Scope | None = None,
        **options: object,
    ) -> Self:
        """Verify an artifact, import it as a store at `dest`, and open it. Never overwrites.

        With `scope`, import only these keys; `ArtifactInvalid` if the artifact does not cover it.
        """
        return import_store(cls, artifact, dest, scope=scope, **options)


class ServedByReader(SnapshotStore):
    """A store that delegates all reads to a reader it owns."""

    _read: SnapshotReader

    @property
    def cursor(self) -> WatchCursor:
        return self._read.cursor

    @property
    def meta(self) -> SnapshotMeta:
        return self._read.meta

    def get(self, key: str) -> KvEntry | None:
        return self._read.get(key)

    def get_many(self, keys: Sequence[str]) -> list[KvEntry | None]:
        return self._read.get_many(keys)

    def page(
        self, prefix: str = "", *, after: str | None = None, limit: int = PAGE_ENTRIES
    ) -> list[KvEntry]:
        return self._read.page(prefix, after=after, limit=limit)

    def count(self, prefix: str = "") -> int:
        return self._read.count(prefix)

    def side(self, prefix: bytes, *, after: bytes = b"") -> list[tuple[bytes, bytes]]:
        return self._read.side(prefix, after=after)
