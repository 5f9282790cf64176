"""Computes the updates that repair a fold after a gap, from the bucket's keys or an artifact.

The functions merge up to three ordered sequences (the fold, the artifact, the bucket's keys) and
yield updates in ascending key order, so a fold of any size needs little memory. They apply nothing
and move no cursor; `resume` commits the updates in chunks. A failure raises, so that an incomplete
repair is never taken for a complete one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from penstock.fold.errors import BackendMismatch
from penstock.fold.follow.repair_policy import Fate, Mode, fate
from penstock.fold.store.registry import stores_with_files
from penstock.kv.kv_types import SYNTHETIC, KvUpdate, Op

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from penstock.fold.ship.copy_sources import ArtifactSource
    from penstock.fold.store.contract import SnapshotReader, SnapshotStore
    from penstock.kv.contract import KvKeys
    from penstock.kv.kv_types import KvEntry, Scope

REVISION_MARK = "\t"
"""Separates key and revision in a listing; it sorts below every character of a key."""
CHUNK_UPDATES = 1_000
"""Maximum number of repair updates in one commit."""
CHUNK_BYTES_MAX = 16 * 1024 * 1024
"""A chunk ends early once its values have this total size."""


@dataclass(frozen=True, slots=True)
class Repair:
    """What to do when the bucket no longer holds everything after the cursor.

    `reader` lists the bucket; a `Fold` supplies its own. `scratch` is the directory in which
    artifacts are unpacked, by default the system's temporary directory.
    """

    mode: Mode
    reader: KvKeys | None = None
    source: ArtifactSource | None = None
    mirror: bool = False
    scratch: Path | None = None

    @classmethod
    def none(cls) -> Self:
        """Read all current values again and keep keys deleted in the gap; logs a warning."""
        return cls(Mode.NONE)

    @classmethod
    def relist(cls, reader: KvKeys | None = None, *, mirror: bool = False) -> Self:
        """Delete the keys that the bucket does not list, then read all values again.

        Refused if a key may be missing because it aged out, unless `mirror` is set.
        """
        return cls(Mode.RELIST, reader, mirror=mirror)

    @classmethod
    def restore(cls, source: ArtifactSource, reader: KvKeys | None = None) -> Self:
        """Always restore from an artifact."""
        return cls(Mode.RESTORE, reader, source)

    @classmethod
    def auto(cls, source: ArtifactSource | None = None, reader: KvKeys | None = None) -> Self:
        """Repair from the listing if it can be trusted, else from an artifact, else refuse."""
        return cls(Mode.AUTO, reader, source)


def kind_of(backend: str) -> type[SnapshotStore]:
    """Return the store class that reads artifacts of a backend."""
    for kind in stores_with_files():
        if kind.backend == backend:
            return kind
    raise BackendMismatch(f"no store here reads {backend!r} artifacts")


# -- differences


def stale_deletes(store: SnapshotReader, scope: Scope, listed: Iterable[str]) -> Iterator[KvUpdate]:
    """Yield a delete for every key of the fold that the bucket does not list."""
    for key, entry, is_listed in _beside(_keyed(store, scope), ((key, True) for key in listed)):
        if entry is not None and not is_listed:
            yield _deleted(key)


class Difference(NamedTuple):
    """A key in which fold and bucket differ. `revision` is the bucket's, 0 if it has no value."""

    key: str
    revision: int


def listed_revisions(listing: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield keys and revisions from sorted lines; a key listed twice has its newer revision."""
    lines = (line.split(REVISION_MARK) for line in listing)
    for key, same in groupby(lines, key=itemgetter(0)):
        yield key, max(int(revision) for _, revision in same)


def comparison(
    store: SnapshotReader, scope: Scope, listed: Iterator[tuple[str, int]], cursor: int
) -> Iterator[Difference]:
    """Yield the differences in records up to the cursor; the watch delivers the later ones."""
    for key, entry, revision in _beside(_keyed(store, scope), listed):
        if revision is None:
            yield Difference(key, 0)
        elif revision <= cursor and (entry is None or entry.revision != revision):
            yield Difference(key, revision)


def restoring(
    store: SnapshotReader,
    artifact: SnapshotReader,
    scope: Scope,
    listed: Iterable[str],
    *,
    was_reset: bool,
) -> Iterator[KvUpdate]:
    """Yield the updates that restore the fold from an artifact.

    Newer entries of the fold stay, and so do listed keys that the watch will deliver.
    """
    both = (
        (key, (local, offered))
        for key, local, offered in _beside(_keyed(store, scope), _keyed(artifact, scope))
    )
    for key, pair, is_listed in _beside(both, ((key, True) for key in listed)):
        if pair is None:
            continue
        local, offered = pair
        verdict = fate(
            _revision(local),
            _revision(offered),
            is_listed=bool(is_listed),
            was_reset=was_reset,
        )
        if verdict is Fate.TAKE and offered is not None and offered != local:
            yield KvUpdate(Op.PUT, key, offered.value, token=offered.version.raw)
        elif verdict is Fate.DELETE:
            yield _deleted(key)


def next_chunk(updates: Iterator[KvUpdate]) -> list[KvUpdate]:
    """Return the next updates; an empty list at the end."""
    chunk: list[KvUpdate] = []
    size = 0
    for update in islice(updates, CHUNK_UPDATES):
        chunk.append(update)
        size += len(update.value)
        if size >= CHUNK_BYTES_MAX:
            break
    return chunk


def _keyed(store: SnapshotReader, scope: Scope) -> Iterator[tuple[str, KvEntry]]:
    """Return the entries in scope by ascending key; prefixes are sorted and do not overlap."""
    entries = chain.from_iterable(store.range(prefix) for prefix in scope.prefixes)
    return ((entry.key, entry) for entry in entries)


def _deleted(key: str) -> KvUpdate:
    return KvUpdate(Op.DELETE, key, reason=SYNTHETIC)


def _revision(entry: KvEntry | None) -> int | None:
    """Return the revision of an entry; None if absent, 0 if its version is not a revision."""
    return None if entry is None else entry.revision or 0


L = TypeVar("L")
R = TypeVar("R")


def _beside(
    left: Iterator[tuple[str, L]], right: Iterator[tuple[str, R]]
) -> Iterator[tuple[str, L | None, R | None]]:
    """Merge two ordered sequences by key; None marks a key that one of them lacks."""
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            yield one[0], one[1], None
            one = next(left, None)
        elif one is None or other[0] < one[0]:
            yield other[0], None, other[1]
            other = next(right, None)
        else:
            yield one[0], one[1], other[1]
            one, other = next(left, None), next(right, None)
