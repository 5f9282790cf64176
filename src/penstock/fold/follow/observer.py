"""Observers of a fold: the committer calls them in the fold's worker thread around every commit.

    before_commit(store, updates, cursor)   before the store applies them; raising rejects the batch
    applied(store, updates, cursor)         the store has committed them with this cursor
    repaired(store, kind)                   a repair has changed the entries without the log
    exported(store, manifest)               an artifact of the fold was created

The updates are a sequence that may be lazy, so an observer that only counts creates no objects. An
exception from `before_commit` counts as a store failure: the fold keeps the batch and retries it,
so the observer may see the same updates twice. Exceptions from `applied`, `repaired` and `exported`
are logged and undo nothing. Observers run in the order given. They may read the store they receive
but must not call the fold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.fold.artifact.manifest import Manifest
    from penstock.fold.store.contract import SnapshotStore
    from penstock.kv.kv_types import KvUpdate, WatchCursor


class Observer:
    """Base class whose methods do nothing; subclasses override the ones they need."""

    def before_commit(
        self, store: SnapshotStore, updates: Sequence[KvUpdate], cursor: WatchCursor
    ) -> None:
        """Called before the store applies the updates."""

    def applied(
        self, store: SnapshotStore, updates: Sequence[KvUpdate], cursor: WatchCursor
    ) -> None:
        """Called after the store has committed the updates."""

    def repaired(self, store: SnapshotStore, kind: str) -> None:
        """Called after a repair; `kind` is `relist` or `restore`. State that the observer derived
        from single updates has to be rebuilt."""

    def exported(self, store: SnapshotStore, manifest: Manifest) -> None:
        """Called after an artifact was created; it may not be uploaded yet."""
