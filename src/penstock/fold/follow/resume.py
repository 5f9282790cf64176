"""Finds the position from which a fold watches its bucket, and repairs the fold after a gap.

`ResumePlanner.find` reads the state of the log, decides with `repair_policy`, repairs if necessary,
and returns the position for the watch. A repair commits its deletes before the watch that lists all
values is created, so a key that was deleted and written again in the gap ends with its new value. A
repair that fails raises, and leaves the cursor so that the next attempt finds the same gap. The
watch loop calls `find` or `mirror` before each watch.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from penstock.fold.artifact.atomic_dir import staged
from penstock.fold.errors import (
    ArtifactInvalid,
    FoldMismatch,
    RepairFailed,
    RepairRefused,
    StaleArtifact,
    StorePoisoned,
)
from penstock.fold.follow.history_check import HistoryCheck
from penstock.fold.follow.key_list import KeyList
from penstock.fold.follow.repair import (
    CHUNK_UPDATES,
    REVISION_MARK,
    comparison,
    kind_of,
    listed_revisions,
    next_chunk,
    restoring,
    stale_deletes,
)
from penstock.fold.follow.repair_policy import (
    ArtifactTrust,
    FoldStart,
    HeldEntry,
    Mode,
    Offer,
    RepairPlan,
    how_to_start,
    identity_after_reset,
    keeps_what_is_listed,
    plan_repair,
    trust_in_listing,
    why_not,
)
from penstock.fold.store.fold_meta import SnapshotMeta
from penstock.kv.errors import KvError
from penstock.kv.kv_types import SYNTHETIC, KvUpdate, Op, Scope, WatchCursor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from penstock.fold.follow.batch_commit import BatchCommitter
    from penstock.fold.follow.repair import Difference, Repair
    from penstock.fold.follow.resync import Aside
    from penstock.fold.store.contract import SnapshotStore
    from penstock.fold.store.log_witnesses import Witness
    from penstock.kv.contract import KvKeys, KvWatcher
    from penstock.kv.kv_types import LogInfo

COUNTED_MAX = 1_000
"""Limit of the key count at a start; it bounds the cost of `is_short`."""
PURGED_DOUBT = (
    "values were purged from a bucket that also drops values on its own: the fold keeps both"
)
FALLBACK_DOUBT = "the server does not report values that expire while an older one stays"
EVICTED_DOUBT = "the bucket drops values on its own: the fold keeps them"
LISTED_AT_ONCE = 10_000
"""Batch size for a reader that yields single keys."""

log = logging.getLogger(__name__)


class Anchor(NamedTuple):
    """The start of a watch: the revision to start after (0 lists all values), the identity of the
    log, its last sequence, and its counts."""

    after: int
    identity: str
    last_seq: int
    losses: int | None = None
    records: int | None = None

    @property
    def counts(self) -> dict[str, int]:
        """The counts to pass to the watch, which ends when they show missing values."""
        counts = {"losses": self.losses, "records": self.records}
        return {name: count for name, count in counts.items() if count is not None}


class ResumePlanner:
    """Finds the start of a fold with a store. `fold_in` parses, applies and commits updates."""

    def __init__(
        self,
        watcher: KvWatcher,
        scope: Scope,
        repair: Repair,
        committer: BatchCommitter,
        fold_in: Callable[[Sequence[KvUpdate], WatchCursor], Awaitable[None]],
        repairing: Callable[[RepairPlan], None],
    ) -> None:
        self._watcher = watcher
        self._scope = scope
        self._repair = repair
        self._committer = committer
        self._fold_in = fold_in
        self._repairing = repairing
        self.history = HistoryCheck(watcher, committer)

    @property
    def _store(self) -> SnapshotStore:
        return self._committer.store

    async def find(self) -> Anchor:
        """Return where to watch from; repair the fold first if necessary."""
        info = await self._watcher.log_info()
        held = await self._committer.worker.run(held_by, self._store, info.records)
        self._check_scope()
        start = how_to_start(held, info)
        if start is FoldStart.FOREIGN:
            raise FoldMismatch(f"this is a fold of {held.identity}, the bucket is {info.identity}")
        if start in (FoldStart.DELTA, FoldStart.LOSSY):
            start = await self.history.recognise(start, self._store, held.cursor, info)
        is_complete = trust_in_listing(held, info) is not ArtifactTrust.FALSE
        if start is FoldStart.RELIST and (is_complete or not self._can_restore):
            if not is_complete:
                log.warning("the bucket may have dropped values that the fold begins without")
            self._committer.remember(self._meta(info))
            return _anchor(0, info)
        if start is FoldStart.DELTA:
            self._committer.remember(self._meta(info))
            return _anchor(held.cursor, info)
        if start is FoldStart.LOSSY and hasattr(self._repair.reader, "revision_batches"):
            return await self._compare(held, info)
        return await self._mend(start, held, info)

    # -- comparison with the bucket

    async def _compare(self, held: HeldEntry, info: LogInfo) -> Anchor:
        """Remove keys that the bucket no longer has, and read values it fell back to.

        If the bucket evicts values, a missing value may have been removed or evicted. Such values
        stay in the fold, and the metadata records the doubt.
        """
        log.warning("the bucket lost values cursor=%d log=%s", held.cursor, info.identity)
        self._repairing(RepairPlan.DIFF)
        removes = self._repair.mirror or trust_in_listing(held, info) is ArtifactTrust.TRUE
        with KeyList(self._repair.scratch) as listing:
            for prefix in self._scope.prefixes:
                async for some in self._repair.reader.revision_batches(prefix):  # type: ignore[union-attr]
                    listing.add(f"{key}{REVISION_MARK}{revision}" for key, revision in some)
            found = comparison(self._store, self._scope, listed_revisions(listing), held.cursor)
            fallen = await self._remove_lost(found, removes=removes)
        now = await self._watcher.log_info()
        if now.identity != info.identity:
            raise RepairFailed("the bucket has changed while it was listed")
        await self._take_fallen(fallen)
        await self.history.forget_lost()
        self._committer.remember(self._meta(info, has_purged=not removes))
        await self._committer.commit([], self._store.cursor)
        return _anchor(held.cursor, info)

    async def _remove_lost(self, found: Iterator[Difference], *, removes: bool) -> list[int]:
        """Delete keys that the bucket does not list; return the revisions to read again."""
        run, fallen = self._committer.worker.run, list[int]()
        while chunk := await run(lambda: list(islice(found, CHUNK_UPDATES))):
            fallen += [one.revision for one in chunk if one.revision]
            deleted = [one.key for one in chunk if not one.revision and removes]
            if deleted:
                updates = [KvUpdate(Op.DELETE, key, reason=SYNTHETIC) for key in deleted]
                await self._fold_in(updates, self._store.cursor)
        return fallen

    async def _take_fallen(self, revisions: Sequence[int]) -> None:
        """Read values by revision. A missing one was replaced since, or counts as a new loss."""
        for start in range(0, len(revisions), CHUNK_UPDATES):
            wanted = revisions[start : start + CHUNK_UPDATES]
            records = await self._watcher.records_at(wanted)  # type: ignore[attr-defined]
            updates = [one for one in records if one is not None and one.op is Op.PUT]
            if updates:
                await self._fold_in(updates, self._store.cursor)

    async def mirror(self, aside: Aside) -> Anchor:
        """Remove keys that the bucket does not list, and return an anchor that reads all values.

        If the process is killed meanwhile, the fold resumes from its cursor with some of the
        removals applied.
        """
        info = await self._watcher.log_info()
        held = await self._committer.worker.run(held_by, self._store, info.records)
        self._check_scope()
        start = how_to_start(held, info)
        if start is FoldStart.FOREIGN:
            raise FoldMismatch(f"this is a fold of {held.identity}, the bucket is {info.identity}")
        log.warning("resync cursor=%d log=%s", held.cursor, info.identity)
        self._repairing(RepairPlan.DIFF)
        with KeyList(self._repair.scratch) as listing:
            await self._list(listing)
            updates = stale_deletes(self._store, self._scope, listing)
            await self._fold_all(aside.kept(self._store, updates), self._store.cursor)
        if start is FoldStart.RESET:
            await self._forget_cursor(held, info)
        await self._committer.repaired("relist")
        self._committer.remember(self._meta(info, is_whole=False, has_purged=False))
        return _anchor(0, info)

    # -- repair

    async def _mend(self, start: FoldStart, held: HeldEntry, info: LogInfo) -> Anchor:
        plan = self._plan(start, held, info)
        log.warning(
            "the fold has a gap kind=%s cursor=%d log=%s begins=%d ends=%d repair=%s",
            *(start.value, held.cursor, info.identity, info.first_seq, info.last_seq, plan.value),
        )
        self._repairing(plan)
        if plan is RepairPlan.REFUSE:
            raise RepairRefused(
                f"the bucket drops values on its own and begins at {info.first_seq}: what it does "
                "not list may have aged out",
                cursor=WatchCursor.of(held.cursor),
            )
        if (
            plan is RepairPlan.RESTORE
            and start is FoldStart.RELIST
            and not await self._has_artifact()
        ):
            log.warning("no artifact to begin with; what the bucket dropped is not in the fold")
            plan = RepairPlan.RELIST_ONLY
        try:
            return await self._carry_out(plan, start, held, info)
        except (RepairFailed, RepairRefused, ArtifactInvalid, StorePoisoned):
            raise
        except KvError as error:
            raise RepairFailed(
                f"{plan.value}: {error}", bucket=error.bucket, cursor=self._store.cursor
            ) from error

    def _plan(self, start: FoldStart, held: HeldEntry, info: LogInfo) -> RepairPlan:
        if start is FoldStart.RELIST:
            return RepairPlan.RESTORE
        repair = self._repair
        trust = trust_in_listing(held, info)
        return plan_repair(
            repair.mode, trust, has_source=repair.source is not None, mirror=repair.mirror
        )

    async def _carry_out(
        self, plan: RepairPlan, start: FoldStart, held: HeldEntry, info: LogInfo
    ) -> Anchor:
        if plan is RepairPlan.RESTORE:
            return await self._restore(start, held, info)
        if start is FoldStart.RESET:
            await self._forget_cursor(held, info)
        if plan is RepairPlan.DIFF:
            with KeyList(self._repair.scratch) as listing:
                if keeps_what_is_listed(start, info):
                    await self._list(listing)
                    await self._check_listing(held, info)
                updates = stale_deletes(self._store, self._scope, listing)
                await self._fold_all(updates, self._store.cursor)
            await self._committer.repaired("relist")
        has_purged = False if plan is RepairPlan.DIFF else None
        self._committer.remember(self._meta(info, is_whole=False, has_purged=has_purged))
        return _anchor(0, info)

    async def _forget_cursor(self, held: HeldEntry, info: LogInfo) -> None:
        """Drop the cursor and store the new log in one commit, so that a crash repairs again."""
        meta = self._meta(info)
        self._committer.remember(
            SnapshotMeta(identity_after_reset(held, info), meta.scope, meta.seen_evicting)
        )
        await self._committer.commit([], WatchCursor.NONE)

    async def _list(self, listing: KeyList) -> None:
        reader = self._repair.reader
        if reader is None:
            raise RepairFailed("there is no reader to list the bucket with")
        for prefix in self._scope.prefixes:
            await _fill(listing, reader, prefix)

    async def _check_listing(self, held: HeldEntry, before: LogInfo) -> None:
        """Raise if the log changed during the listing: values may have aged out meanwhile."""
        now = await self._watcher.log_info()
        was, is_now = trust_in_listing(held, before), trust_in_listing(held, now)
        if now.identity != before.identity or (was is not is_now and not self._repair.mirror):
            raise RepairFailed("the bucket has changed while it was listed")

    async def _fold_all(self, updates: Iterator[KvUpdate], last: WatchCursor) -> None:
        """Commit updates in chunks with the old cursor; the last chunk sets the cursor `last`."""
        worker, cursor = self._committer.worker, self._store.cursor
        chunk = await worker.run(next_chunk, updates)
        while chunk:
            following = await worker.run(next_chunk, updates)
            await self._fold_in(chunk, cursor if following else last)
            chunk = following
        if self._store.cursor != last or self._committer.has_news:
            await self._committer.commit([], last)

    # -- restore

    @property
    def _can_restore(self) -> bool:
        return self._repair.source is not None and self._repair.mode in (Mode.AUTO, Mode.RESTORE)

    async def _has_artifact(self) -> bool:
        return self._repair.source is not None and await self._repair.source.latest() is not None

    async def _restore(self, start: FoldStart, held: HeldEntry, info: LogInfo) -> Anchor:
        source = self._repair.source
        manifest = None if source is None else await source.latest()
        if source is None or manifest is None:
            raise RepairRefused("there is no artifact to restore from", cursor=self._store.cursor)
        # The manifest does not name its log; `_restore_from` checks the identity after the fetch.
        self._check_offer(Offer(manifest.cursor.rank, info.identity), start, held, info)
        with staged(self._repair.scratch) as stage:
            manifest = await source.fetch(stage / "artifact")
            kind = kind_of(manifest.backend)
            run = self._committer.worker.run
            artifact = await run(kind.import_from, stage / "artifact", stage / "store")
            try:
                return await self._restore_from(artifact, start, held)
            finally:
                await run(artifact.close)

    async def _restore_from(
        self, artifact: SnapshotStore, start: FoldStart, held: HeldEntry
    ) -> Anchor:
        info = await self._watcher.log_info()
        meta, cursor = artifact.meta, artifact.cursor
        if meta.keep not in ("", self._committer.kept):
            raise StaleArtifact(f"the artifact is of no use: it keeps {meta.keep!r} of its values")
        scope = Scope(meta.scope) if meta.scope else None
        self._check_offer(Offer(cursor.rank, meta.identity, scope), start, held, info)
        recognised = await self.history.recognise(FoldStart.DELTA, artifact, cursor.rank, info)
        if recognised is FoldStart.RESET:
            raise StaleArtifact("the artifact is of another history of the bucket", cursor=cursor)
        if start is FoldStart.RESET:
            await self._forget_cursor(held, info)
        self._committer.remember(self._meta(info, evicting=meta.seen_evicting, of_artifact=meta))
        # Data without a cursor may remain from a reset; its revisions cannot be compared.
        was_reset = start in (FoldStart.RESET, FoldStart.UNANCHORED)
        with KeyList(self._repair.scratch) as listing:
            await self._list(listing)
            updates = restoring(self._store, artifact, self._scope, listing, was_reset=was_reset)
            await self._fold_all(updates, cursor)
        await self._committer.repaired("restore")
        anchor = _anchor(cursor.rank, info)
        records = anchor.records and (meta.records or anchor.records)
        return anchor._replace(losses=meta.losses, records=records)

    def _check_offer(self, offer: Offer, start: FoldStart, held: HeldEntry, info: LogInfo) -> None:
        if reason := why_not(offer, start, held, self._scope, info):
            raise StaleArtifact(f"the artifact is of no use: {reason}", cursor=self._store.cursor)

    # -- metadata

    def _meta(
        self,
        info: LogInfo,
        *,
        evicting: bool = False,
        is_whole: bool = True,
        of_artifact: SnapshotMeta | None = None,
        has_purged: bool | None = None,
    ) -> SnapshotMeta:
        """Return the metadata to store for a log.

        `is_whole` is False while the fold still has to read all values again; until then it does
        not reflect all losses, so the loss count is not stored. `has_purged` states whether the
        fold may keep values that were purged; None keeps the earlier statement.
        """
        had = self._store.meta
        evicting = evicting or info.evicts_current or had.seen_evicting
        known, records = info.losses, info.records
        if of_artifact is not None:
            known, records = of_artifact.losses, of_artifact.records or info.records
        if has_purged is None:
            has_purged = (of_artifact or had).doubt == PURGED_DOUBT
        return SnapshotMeta(
            info.identity,
            self._scope.prefixes,
            evicting,
            losses=known if is_whole else None,
            records=records if info.losses is None else None,
            witnesses=self._witnesses() if of_artifact is None else of_artifact.witnesses,
            doubt=PURGED_DOUBT if has_purged else doubt_of(info, is_evicting=evicting),
        )

    def _witnesses(self) -> tuple[Witness, ...]:
        """Return the witnesses to store; none for a store that would not renew them."""
        return self._committer.recent if self._store.keeps_witnesses else ()

    def _check_scope(self) -> None:
        """Raise if the fold has other prefixes: which keys it lacks or should not have is
        unknown."""
        had = self._store.meta.scope
        if had and had != self._scope.prefixes:
            raise FoldMismatch(f"this is a fold of the prefixes {had}, not {self._scope.prefixes}")


def held_by(store: SnapshotStore, records: int | None = None) -> HeldEntry:
    """Return the state of a store. If the log has fewer than `COUNTED_MAX` records, count enough
    keys to determine whether the store has more keys than the log has records."""
    meta = store.meta
    few = records if records is not None and records < COUNTED_MAX else 0
    counted = len(store.page(limit=few + 1))
    return HeldEntry(
        store.cursor.rank,
        not counted,
        meta.identity,
        meta.seen_evicting,
        counted,
        meta.losses,
        meta.records,
    )


def doubt_of(info: LogInfo, *, is_evicting: bool) -> str:
    """Return why a fold that follows such a bucket may differ from it; empty if it cannot."""
    if info.falls_back and info.losses is None:
        return FALLBACK_DOUBT
    return EVICTED_DOUBT if is_evicting else ""


def _anchor(after: int, info: LogInfo) -> Anchor:
    is_counted = info.losses is None and not info.evicts_current
    records = info.records if is_counted else None
    return Anchor(after, info.identity, info.last_seq, info.losses, records)


async def _fill(listing: KeyList, reader: KvKeys, prefix: str) -> None:
    in_batches = getattr(reader, "key_batches", None)
    if in_batches is not None:
        async for keys in in_batches(prefix):
            listing.add(keys)
        return
    gathered: list[str] = []
    async for key in reader.keys(prefix):
        gathered.append(key)
        if len(gathered) >= LISTED_AT_ONCE:
            listing.add(gathered)
            gathered = []
    listing.add(gathered)
