"""What makes a fold whole after a gap: differences to the bucket, or to an artifact.

Everything here produces updates in ascending order of keys, a chunk at a time, so that a fold of
any size is walked with little memory: three ordered runs (the fold, the artifact, the keys of the
bucket) are merged. Nothing is applied here, and no cursor is moved. What cannot be done is raised:
a repair that is not complete must not look like one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from penstock.fold.errors import BackendMismatch
from penstock.fold.follow.repair_policy import Fate, Mode, fate
from penstock.fold.store.append_log import AppendLogSnapshot
from penstock.fold.store.lmdb_store import LmdbSnapshot
from penstock.fold.store.rocks_store import RocksDbSnapshot
from penstock.fold.store.sqlite_store import SqliteSnapshot
from penstock.kv.kv_types import SYNTHETIC, KvUpdate, Op

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from penstock.fold.ship.copy_sources import ArtifactSource
    from penstock.fold.store.contract import SnapshotReader, SnapshotStore
    from penstock.kv.contract import KvKeys
    from penstock.kv.kv_types import KvEntry, Scope

REVISION_MARK = "\t"
"""Between key and revision in a listing: it sorts below whatever a key may hold."""
CHUNK_UPDATES = 1_000
"""How much of a repair is applied at a time."""
CHUNK_BYTES_MAX = 16 * 1024 * 1024
"""A chunk ends early once its values are this long together."""
NATIVE: tuple[type[SnapshotStore], ...] = (
    AppendLogSnapshot,
    SqliteSnapshot,
    LmdbSnapshot,
    RocksDbSnapshot,
)


@dataclass(frozen=True, slots=True)
class Repair:
    """What to do when the bucket no longer holds what came behind the cursor.

    `reader` lists the bucket; a `Fold` brings its own. `scratch` is where artifacts are unpacked,
    by default the system's directory for temporary files.
    """

    mode: Mode
    reader: KvKeys | None = None
    source: ArtifactSource | None = None
    mirror: bool = False
    scratch: Path | None = None

    @classmethod
    def none(cls) -> Self:
        """Read everything anew and keep what was deleted in the gap; the log warns of it."""
        return cls(Mode.NONE)

    @classmethod
    def relist(cls, reader: KvKeys | None = None, *, mirror: bool = False) -> Self:
        """Delete what the bucket does not list, then read everything anew.

        Refused where a key may be missing because it aged out, unless the fold is to `mirror` that.
        """
        return cls(Mode.RELIST, reader, mirror=mirror)

    @classmethod
    def restore(cls, source: ArtifactSource, reader: KvKeys | None = None) -> Self:
        """Always from an artifact."""
        return cls(Mode.RESTORE, reader, source)

    @classmethod
    def auto(cls, source: ArtifactSource | None = None, reader: KvKeys | None = None) -> Self:
        """By listing where the list can be trusted, else from an artifact, else not at all."""
        return cls(Mode.AUTO, reader, source)


def kind_of(backend: str) -> type[SnapshotStore]:
    """The store that reads artifacts of a backend."""
    for kind in NATIVE:
        if kind.backend == backend:
            return kind
    raise BackendMismatch(f"no store here reads {backend!r} artifacts")


# -- differences


def stale_deletes(store: SnapshotReader, scope: Scope, listed: Iterable[str]) -> Iterator[KvUpdate]:
    """A delete for every key of the fold that the bucket does not list."""
    for key, entry, is_listed in _beside(_keyed(store, scope), ((key, True) for key in listed)):
        if entry is not None and not is_listed:
            yield _gone(key)


class Difference(NamedTuple):
    """A key whose value the bucket does not have: `revision` is what it has, 0 if nothing."""

    key: str
    revision: int


def listed_revisions(listing: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Keys and revisions out of sorted lines; of a key that was listed twice the newer one."""
    lines = (line.split(REVISION_MARK) for line in listing)
    for key, same in groupby(lines, key=itemgetter(0)):
        yield key, max(int(revision) for _, revision in same)


def comparison(
    store: SnapshotReader, scope: Scope, listed: Iterator[tuple[str, int]], cursor: int
) -> Iterator[Difference]:
    """Where fold and bucket differ in what was written up to the cursor; the rest is to come."""
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
    """What makes the fold that of an artifact, but for what is newer or will come."""
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
            yield _gone(key)


def next_chunk(updates: Iterator[KvUpdate]) -> list[KvUpdate]:
    """Some updates, none if there are no more."""
    chunk: list[KvUpdate] = []
    size = 0
    for update in islice(updates, CHUNK_UPDATES):
        chunk.append(update)
        size += len(update.value)
        if size >= CHUNK_BYTES_MAX:
            break
    return chunk


def _keyed(store: SnapshotReader, scope: Scope) -> Iterator[tuple[str, KvEntry]]:
    """The entries in scope, in order: prefixes are sorted and do not overlap."""
    entries = chain.from_iterable(store.range(prefix) for prefix in scope.prefixes)
    return ((entry.key, entry) for entry in entries)


def _gone(key: str) -> KvUpdate:
    return KvUpdate(Op.DELETE, key, reason=SYNTHETIC)


def _revision(entry: KvEntry | None) -> int | None:
    """Absent is None; an entry whose version is not a revision is older than any that is."""
    return None if entry is None else entry.revision or 0


L = TypeVar("L")
R = TypeVar("R")


def _beside(
    left: Iterator[tuple[str, L]], right: Iterator[tuple[str, R]]
) -> Iterator[tuple[str, L | None, R | None]]:
    """Two ordered runs as one, by key."""
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
