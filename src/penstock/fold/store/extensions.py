"""What is derived from a fold and kept beside it: rows that change in the commit of the entries.

Every store has a side space, ordered keys to bytes, apart from its entries and its cursor. An
`Extension` (a digest, an index, a list of bad entries) plans its rows from a batch before it is
committed, and the store writes both together or neither. Stores that live in memory keep their side
space there too, and it is built again when they are opened.

    stamp\\0<name>     what the extension was built as; only while its rows are true
    <name>\\0...       its rows

A store that changes while an extension is not attached loses that stamp, so the next to attach it
builds it anew. Batches of `BULK_UPDATES` and more are a bulk load: extensions fall behind rather
than read back every key, and `settle` builds them once.
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
"""From here on a batch is a bulk load. Whoever watches settles after as many, so none is missed."""
SIDE_ROWS_AT_ONCE = 10_000
"""How many rows of a rebuilt extension are committed at a time."""
STAMPS = b"stamp\0"


class Behind(FoldStoreError):
    """An extension was asked that has not been built since a bulk load."""

    hint = "settle the store, or wait until the fold is ready"


class EntryChange:
    """A batch on its way into a store, and the rows that go with it; None removes a row."""

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
        """The update of each key that wins."""
        if self._after is None:
            self._after = {update.key: update for update in self.batch}
        return self._after

    @property
    def before(self) -> dict[str, KvEntry | None]:
        """What the store has now under the keys of the batch."""
        if self._before is None:
            keys = list(self.after)
            self._before = dict(zip(keys, self._store.get_many(keys), strict=True))
        return self._before

    @property
    def pending(self) -> int | None:
        """How many updates the server had still to send; None if it did not say."""
        pieces = pieces_of(self.batch)
        last = pieces[-1] if pieces else None
        return last.pending if isinstance(last, Updates) else None


class Extension:
    """Something derived from the entries. Its state changes when a commit has succeeded."""

    name: str
    """Tells its rows from those of others."""

    def __init__(self) -> None:
        self.is_current = False
        """Whether its rows are true of the store."""

    @property
    def stamp(self) -> bytes:
        """What it is built as; rows of another stamp are not read."""
        raise NotImplementedError

    @property
    def prefix(self) -> bytes:
        return self.name.encode() + b"\0"

    def plan(self, change: EntryChange) -> None:
        """Add rows to `change.side`, keeping in mind what `committed` is to make true."""
        raise NotImplementedError

    def committed(self) -> None:
        """What was planned last is in the store."""

    def built(self, store: SnapshotReader) -> Iterator[tuple[bytes, bytes]]:
        """All its rows, from the entries alone; its state is that of the store at the end."""
        raise NotImplementedError

    def load(self, store: SnapshotReader) -> None:
        """Take up the state of its rows, which are true."""

    def check_in(self, store: SnapshotReader) -> None:
        """`Behind` unless the rows in a store, perhaps of another process, are true."""
        mine = STAMPS + self.name.encode()
        if dict(store.side(STAMPS)).get(mine) != self.stamp:
            raise Behind(f"{self.name} is not built, or behind a bulk load")

    def rows(self, store: SnapshotReader, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Its rows above `start`, without its prefix."""
        after, skipped = self.prefix + start, len(self.prefix)
        while page := store.side(self.prefix, after=after):
            yield from ((key[skipped:], value) for key, value in page)
            after = page[-1][0]


class Extensions:
    """The extensions of one open store; used in the thread that changes it."""

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
        """The rows to commit with a change; who is attached learns that they were."""
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
        """Build what fell behind."""
        for extension in self._attached:
            if not extension.is_current:
                self._build(extension)

    def build_again(self) -> None:
        """Build everything, as after the store was emptied."""
        for extension in self._attached:
            self._build(extension)

    def _build(self, extension: Extension) -> None:
        """Write its rows anew; the stamp comes last, so half a build is none."""
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
    """Stamps of extensions that nobody attached."""
    names = {STAMPS + one.name.encode() for one in known}
    return tuple(key for key, _ in store.side(STAMPS) if key not in names)
