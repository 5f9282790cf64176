"""Checks that a log has the history a fold has read, by the records that the fold remembers.

`ResumePlanner` calls `recognise` before a fold resumes, and for an artifact. The watch loop calls
`recheck` when the watch asks for it: after its consumer was created again, and when a log that
counts no losses has changed. The verdict itself is in `log_witnesses`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from penstock.fold.follow.repair_policy import FoldStart
from penstock.fold.store import log_witnesses
from penstock.fold.store.log_witnesses import WITNESSES_MAX, LogVerdict, Sighting, WitnessedRecord
from penstock.kv.errors import LogReset, OperationFailed, ValuesLost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.fold.follow.batch_commit import BatchCommitter
    from penstock.fold.store.contract import SnapshotStore
    from penstock.fold.store.log_witnesses import Witness
    from penstock.kv.contract import KvWatcher
    from penstock.kv.kv_types import KvUpdate, LogInfo

log = logging.getLogger(__name__)


class HistoryCheck:
    """Looks up witnesses in the bucket of one fold."""

    def __init__(self, watcher: KvWatcher, committer: BatchCommitter) -> None:
        self._watcher: Any = watcher  # `records_at` and `newest_of` are optional
        self._committer = committer

    async def recognise(
        self, start: FoldStart, store: SnapshotStore, cursor: int, info: LogInfo
    ) -> FoldStart:
        """Return how to start from a store, given how to start if the log has its history."""
        known: Sequence[Witness] = store.meta.witnesses
        # The store may keep no witnesses, or come from an artifact without any. A fold with a
        # `keep` rule stores shortened values, which cannot be compared with the log's.
        if not known and not store.meta.keep:
            newest = await self._committer.worker.run(store.newest, WITNESSES_MAX)
            known = log_witnesses.of_entries(newest)
        return await self._judge(start, known, cursor, info)

    async def recheck(self, *, is_resumed: bool) -> None:
        """Raise LogReset or ValuesLost unless the log still has what the fold has read.

        While the watch goes on, look only at witnesses at hand: others cost a scan of the store.
        """
        store, recent = self._committer.store, self._committer.recent
        if not store.cursor or not (recent or is_resumed):
            return
        info, cursor = await self._watcher.log_info(), store.cursor
        if recent:
            start = await self._judge(FoldStart.DELTA, recent, cursor.rank, info)
        else:
            start = await self.recognise(FoldStart.DELTA, store, cursor.rank, info)
        if start is FoldStart.RESET:
            raise LogReset(
                "the bucket has another history than the fold has read",
                old_identity=store.meta.identity,
                new_identity=info.identity,
                cursor=cursor,
            )
        if start is FoldStart.LOSSY:
            raise ValuesLost("values were removed from the bucket", cursor=cursor)

    async def forget_lost(self) -> None:
        """Forget the witnesses that the log has lost, once the fold was compared with the bucket;
        they would cost a comparison at every check."""
        recent = self._committer.recent
        if recent and hasattr(self._watcher, "newest_of"):
            newest = await self._watcher.newest_of([one.key for one in recent])
            self._committer.recent = tuple(
                one
                for one, record in zip(recent, newest, strict=True)
                if record is not None and record.revision >= one.seq
            )

    async def _judge(
        self, start: FoldStart, known: Sequence[Witness], cursor: int, info: LogInfo
    ) -> FoldStart:
        if not known or not hasattr(self._watcher, "records_at"):
            return start
        try:
            at = await self._watcher.records_at([one.seq for one in known])
            newest = await self._watcher.newest_of([one.key for one in known])
        except OperationFailed as error:
            log.info("cannot look up records reason=%s", error)
            return start
        seen = map(Sighting, known, map(_stored, at), map(_stored, newest))
        verdict = log_witnesses.verdict(seen, cursor)
        if verdict is LogVerdict.RESET:
            log.warning("the bucket was set back and has grown since cursor=%d", cursor)
            return FoldStart.RESET
        is_lost = verdict is LogVerdict.LOST and info.losses is None and not info.evicts_current
        return FoldStart.LOSSY if is_lost else start


def _stored(update: KvUpdate | None) -> WitnessedRecord | None:
    if update is None:
        return None
    time_us = round((update.created or 0) * 1_000_000)
    return WitnessedRecord(update.revision, update.key, time_us, update.value)
