"""What every fold store is: a durable map of keys to values and versions, and one cursor.

The law all of them keep: a cursor that can be read, also after a crash, names no update that is not
in the store. Data may be ahead of the cursor; it is then folded again, which changes nothing. A
store is a cache of the bucket: it depends only on the updates it was given, the last one per key.

Methods block. `apply`, `clear`, `settle` and `export_to` belong to one thread at a time; reading is
allowed beside them from any thread, through the store or through a `reader()`.
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
"""How much of a range is read at a time."""
PAGE_BYTES_MAX = 4 * 1024 * 1024
"""A page ends early once its values are this long together."""


class SnapshotReader(ABC):
    """The reading side: safe beside the writer and from any thread."""

    @property
    @abstractmethod
    def cursor(self) -> WatchCursor:
        """Everything up to here is in the store."""

    @property
    @abstractmethod
    def meta(self) -> SnapshotMeta:
        """Where the fold came from, as far as it was told."""

    @abstractmethod
    def get(self, key: str) -> KvEntry | None: ...

    def get_many(self, keys: Sequence[str]) -> list[KvEntry | None]:
        """One answer per key, in the same order."""
        return [self.get(key) for key in keys]

    @abstractmethod
    def page(
        self, prefix: str = "", *, after: str | None = None, limit: int = PAGE_ENTRIES
    ) -> list[KvEntry]:
        """The next entries above `after`, ascending by the bytes of their keys, as of one moment.

        There may be fewer than `limit` of them (`PAGE_BYTES_MAX`), but none only at the end.
        """

    def range(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> Iterator[KvEntry]:
        """Entries in ascending order, a page at a time: each page is true when it is read.

        What is applied meanwhile is seen behind the page that was read last, and never twice.
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
        """The next `PAGE_ENTRIES` rows of the side space above `after`, in order of their keys."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Closing twice is allowed; anything else after it raises."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SnapshotStore(SnapshotReader):
    """The durable fold. Backends differ in where it lies and what survives a power cut."""

    backend: ClassVar[str]
    """Its name in manifests."""
    backend_version: ClassVar[str]
    """The generation of its format in manifests."""
    backend_version_gated: ClassVar[bool] = True
    """Whether another generation of the format is refused at import."""
    payload: ClassVar[str]
    """The name of its one file inside an artifact; empty if it is a directory."""
    hydrate_batch: ClassVar[int] = 8_192
    """How many updates a first load should bring at a time."""
    keeps_witnesses: ClassVar[bool] = True
    """Whether metadata is cheap to commit with every batch; if not, `newest` is."""
    _extensions: Extensions | None = None

    def newest(self, limit: int) -> list[KvEntry]:
        """The entries of the highest revisions; walks the store."""
        return nlargest(limit, self.range(), key=lambda entry: entry.revision or 0)

    @classmethod
    @abstractmethod
    def open(cls, path: Path | str) -> Self:
        """Open or make the store at `path`. Backends take options by name."""

    @abstractmethod
    def apply(
        self, batch: Sequence[KvUpdate], cursor: WatchCursor, *, meta: SnapshotMeta | None = None
    ) -> None:
        """Fold a batch and move the cursor, all or nothing as far as the backend can.

        The batch may be empty. `meta`, if given, becomes durable no later than the cursor.
        """

    @abstractmethod
    def clear(self) -> None:
        """Empty the store: no entries, no cursor, nothing remembered; in one step."""

    def settle(self) -> None:
        """Work off what a bulk load left for later, before latency matters."""
        if self._extensions is not None:
            self._extensions.catch_up()

    def compact(self) -> None:
        """Give back the disk space of what was deleted or overwritten, as far as the kind can."""
        self.settle()

    def attach(self, extension: Extension) -> None:
        """Keep something derived from the entries true from now on; it is built if need be."""
        if self._extensions is None:
            self._extensions = Extensions(self)
        self._extensions.attach(extension)

    @property
    def attached(self) -> Sequence[Extension]:
        return () if self._extensions is None else self._extensions.attached

    def write_side(self, rows: SideRows, *, cleared: bytes = b"") -> None:
        """Change rows of the side space alone, after removing those that begin with `cleared`."""
        raise FoldStoreError("this store has no room for extensions")

    @contextmanager
    def _extended(
        self, batch: Sequence[KvUpdate], cursor: WatchCursor, meta: SnapshotMeta | None
    ) -> Iterator[SideRows]:
        """Around a commit: the rows that belong to it."""
        if self._extensions is None:
            self._extensions = Extensions(self)
        with self._extensions.around(EntryChange(self, batch, cursor, meta)) as side:
            yield side

    def _emptied(self) -> None:
        """The store is empty now, its side space too."""
        if self._extensions is not None:
            self._extensions.build_again()

    @abstractmethod
    def reader(self) -> SnapshotReader:
        """A reader of its own, for another thread; to be closed before the store."""

    @abstractmethod
    def copy_to(self, target: Path) -> None:
        """A consistent copy at `target`, which does not exist and whose parent does."""

    @classmethod
    def check_payload(cls, path: Path) -> None:
        """FoldFormatError if a payload of unknown origin has anything that no fold has."""

    @classmethod
    def open_copy(cls, path: Path) -> SnapshotReader:
        """Open a copy to look at it, leaving nothing beside it."""
        return cls.open(path)

    def export_to(
        self, dest: Path | str, *, form: str | None = None, created_at: int | None = None
    ) -> Manifest:
        """Make an artifact at `dest`. `form="append-log"` makes one that every store reads."""
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
        """Verify an artifact, make it a store at `dest`, and open that. Never overwrites.

        `scope` takes a part of it; `ArtifactInvalid` if it does not cover that.
        """
        return import_store(cls, artifact, dest, scope=scope, **options)


class ServedByReader(SnapshotStore):
    """A store whose own reading is that of a reader it keeps."""

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
