"""Extensions: data derived from a fold's entries, updated in the same commit as the entries.

Every store has a side space, an ordered map of bytes, apart from its entries and its cursor. An
`Extension` (a digest, an index, a quarantine) plans its rows from a batch before the commit, and
the store writes both or neither. Stores in memory keep the side space in memory too and rebuild it
after they are opened.

    stamp\\0<name>     the version an extension was built as; present only while its rows are valid
    <name>\\0...       its rows

If a store changes while an extension is not attached, its stamp is removed, so the next `attach`
rebuilds it. A batch of at least `BULK_UPDATES` is a bulk load: extensions fall behind instead of
reading back every key, and `finish_load` rebuilds them once.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.fold.errors import FoldStoreError
from penstock.kv.update_batch import Updates, pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.fold.store.contract import SnapshotReader, SnapshotStore
    from penstock.fold.store.fold_meta import SnapshotMeta
    from penstock.kv.kv_types import KvEntry, KvUpdate, WatchCursor

    SideRows = Mapping[bytes, bytes | None]

BULK_UPDATES = 10_000
"""A batch of at least this size is a bulk load. The watch loop calls `finish_load` after at least
as many updates, so every bulk load is followed by a rebuild."""
SIDE_ROWS_AT_ONCE = 10_000
"""Number of rows of a rebuilt extension that are committed at a time."""
STAMPS = b"stamp\0"


class Behind(FoldStoreError):
    """A query used an extension that was not rebuilt since a bulk load."""

    hint = "call finish_load() on the store, or wait until the fold is ready"


class EntryChange:
    """A batch before its commit, and the side rows to commit with it; None removes a row."""

    def __init__(
        self,
        store: SnapshotReader,
        batch: Sequence[KvUpdate],
        cursor: WatchCursor,
        meta: SnapshotMeta | None,
    ) -> None:
        self.batch = batch
        self.cursor = cursor
        self.meta = meta
        self.side: dict[bytes, bytes | None] = {}
        self._store = store
        self._before: dict[str, KvEntry | None] | None = None
        self._after: dict[str, KvUpdate] | None = None

    @property
    def after(self) -> dict[str, KvUpdate]:
        """The last update of each key."""
        if self._after is None:
            self._after = {update.key: update for update in self.batch}
        return self._after

    @property
    def before(self) -> dict[str, KvEntry | None]:
        """The current entries of the store for the keys of the batch."""
        if self._before is None:
            keys = list(self.after)
            self._before = dict(zip(keys, self._store.get_many(keys), strict=True))
        return self._before

    @property
    def pending(self) -> int | None:
        """Number of updates the server had still to send; None if unknown."""
        pieces = pieces_of(self.batch)
        last = pieces[-1] if pieces else None
        return last.pending if isinstance(last, Updates) else None


class Extension:
    """Data derived from the entries. Its state changes only after a successful commit."""

    name: str
    """Identifies the rows of the extension."""

    def __init__(self) -> None:
        self.is_current = False
        """Whether its rows match the store."""

    @property
    def stamp(self) -> bytes:
        """The version of the rows; rows with another stamp are rebuilt."""
        raise NotImplementedError

    @property
    def prefix(self) -> bytes:
        return self.name.encode() + b"\0"

    def plan(self, change: EntryChange) -> None:
        """Add rows to `change.side`, and keep the state that `committed` will make current."""
        raise NotImplementedError

    def committed(self) -> None:
        """Make the planned state current; called after the commit."""

    def built(self, store: SnapshotReader) -> Iterator[tuple[bytes, bytes]]:
        """Yield all rows, computed from the entries; at the end the state matches the store."""
        raise NotImplementedError

    def load(self, store: SnapshotReader) -> None:
        """Load the state from its rows, which are valid."""

    def check_in(self, store: SnapshotReader) -> None:
        """Raise `Behind` unless the rows in a store, perhaps of another process, are valid."""
        mine = STAMPS + self.name.encode()
        if dict(store.side(STAMPS)).get(mine) != self.stamp:
            raise Behind(f"{self.name} is not built, or behind a bulk load")

    def rows(self, store: SnapshotReader, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield its rows above `start`, without its prefix."""
        after, skipped = self.prefix + start, len(self.prefix)
        while page := store.side(self.prefix, after=after):
            yield from ((key[skipped:], value) for key, value in page)
            after = page[-1][0]


class Extensions:
    """The extensions of one open store; use in the thread that changes the store."""

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store
        self._attached: list[Extension] = []
        self._strangers = _strange_stamps(store, ())

    def attach(self, extension: Extension) -> None:
        if any(one.name == extension.name for one in self._attached):
            raise ValueError(f"{extension.name} is attached already")
        stamps = dict(self._store.side(STAMPS))
        if stamps.get(STAMPS + extension.name.encode()) == extension.stamp:
            extension.load(self._store)
            extension.is_current = True
        else:
            self._build(extension)
        self._attached.append(extension)
        self._strangers = _strange_stamps(self._store, self._attached)

    @property
    def attached(self) -> Sequence[Extension]:
        return tuple(self._attached)

    @contextmanager
    def around(self, change: EntryChange) -> Iterator[SideRows]:
        """Yield the rows to commit with a change; call `committed` if the commit succeeds."""
        bulk = len(change.batch) >= BULK_UPDATES
        planned: list[Extension] = []
        for extension in self._attached:
            extension.is_current = extension.is_current and not bulk
            if extension.is_current:
                extension.plan(change)
                planned.append(extension)
            else:
                change.side[STAMPS + extension.name.encode()] = None
        for stamp in self._strangers:
            change.side[stamp] = None
        yield change.side
        self._strangers = ()
        for extension in planned:
            extension.committed()

    def catch_up(self) -> None:
        """Rebuild the extensions that fell behind."""
        for extension in self._attached:
            if not extension.is_current:
                self._build(extension)

    def build_again(self) -> None:
        """Rebuild all extensions, after the store was emptied."""
        for extension in self._attached:
            self._build(extension)

    def _build(self, extension: Extension) -> None:
        """Rebuild the rows; the stamp is written last, so an incomplete build does not count."""
        store, stamp = self._store, STAMPS + extension.name.encode()
        extension.is_current = False
        store.write_side({stamp: None}, cleared=extension.prefix)
        rows: dict[bytes, bytes | None] = {}
        for key, value in extension.built(store):
            rows[key] = value
            if len(rows) >= SIDE_ROWS_AT_ONCE:
                store.write_side(rows)
                rows = {}
        store.write_side({**rows, stamp: extension.stamp})
        extension.is_current = True


def _strange_stamps(store: SnapshotReader, known: Sequence[Extension]) -> Sequence[bytes]:
    """Return the stamps of extensions that are not attached."""
    names = {STAMPS + one.name.encode() for one in known}
    return tuple(key for key, _ in store.side(STAMPS) if key not in names)
