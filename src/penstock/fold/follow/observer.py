"""Who looks on while a fold changes: called in the fold's worker thread, around every commit.

    before_commit(store, updates, cursor)   the store does not have them yet; raising refuses them
    applied(store, updates, cursor)         the store has them, with this cursor
    repaired(store, kind)                   the fold is whole again, by other means than its log
    exported(store, manifest)               an artifact of the fold was made

An observer is given the updates as they came: a sequence that may be lazy, so one that only counts
costs nothing. What `before_commit` raises counts as a failure of the store: the batch stays and is
tried again, so it may see the same updates twice. `applied`, `repaired` and `exported` cannot undo
anything; what they raise is logged. Observers are served in the order given and must not call back
into the fold but read the store they are handed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.fold.artifact.manifest import Manifest
    from penstock.fold.store.contract import SnapshotStore
    from penstock.kv.kv_types import KvUpdate, WatchCursor


class Observer:
    """Sees everything and does nothing: derive from it, and override what is of interest."""

    def before_commit(
        self, store: SnapshotStore, updates: Sequence[KvUpdate], cursor: WatchCursor
    ) -> None:
        """About to be applied."""

    def applied(
        self, store: SnapshotStore, updates: Sequence[KvUpdate], cursor: WatchCursor
    ) -> None:
        """In the store, as durable as it gets there."""

    def repaired(self, store: SnapshotStore, kind: str) -> None:
        """`kind` is `relist` or `restore`: what was derived update by update is to be redone."""

    def exported(self, store: SnapshotStore, manifest: Manifest) -> None:
        """An artifact was made; whether it arrives anywhere is not known here."""
