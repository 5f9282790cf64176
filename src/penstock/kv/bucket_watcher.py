"""Watches a bucket with one ordered consumer, and checks the log at each start and sequence gap.

Invariant: before an event or bookmark, the watch has delivered everything earlier in its scope.
A watch starts after a cursor, or lists the current values first. Each start after a revision runs
`check_resume` before and after the consumer is created. The watch checks a sequence gap before it
delivers the records after the gap: overwritten records are harmless, but a log that begins after
the gap may have dropped records. A watch of prefixes skips other keys all the time; it checks gaps
only if the bucket evicts values, and then treats a log that begins after the gap as a loss.
Heartbeats advance the position past keys out of scope, so an idle watch needs no extra request.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Self

from penstock.bulk.direct_range import batch_of
from penstock.bulk.errors import BulkError
from penstock.bulk.ordered_consumer import EndReached as StreamCaughtUp
from penstock.bulk.ordered_consumer import Idle, Quiet
from penstock.bulk.record_batch import Batch
from penstock.kv.bucket_records import filters_of, prefix_of, stream_of, updates_of
from penstock.kv.client_errors import by_name, named
from penstock.kv.contract import HEARTBEAT_SECONDS
from penstock.kv.errors import BucketError, CursorExpired, LogReset, ValuesLost, WatchError
from penstock.kv.kv_types import Bookmark, CaughtUp, Recheck, Scope, WatchCursor
from penstock.kv.resume_check import (
    begins_in_time,
    check_resume,
    is_same_log,
    is_window_intact,
    log_info,
    resumable,
    where_lost,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from penstock.bulk.bulk_reader import BulkReader
    from penstock.bulk.bulk_requests import StreamSummary
    from penstock.bulk.ordered_consumer import Event
    from penstock.kv.kv_types import KvUpdate, LogInfo, WatchEvent

BOOKMARK_SECONDS: Final = 30.0


class NatsWatcher:
    """A `KvWatcher`."""

    def __init__(
        self,
        bucket: str,
        bulk: BulkReader,
        *,
        empty_is_delete: bool = False,
        bookmark_seconds: float = BOOKMARK_SECONDS,
    ) -> None:
        self._bucket = bucket
        self._bulk = bulk
        self._empty_is_delete = empty_is_delete
        self._bookmark_seconds = bookmark_seconds

    def watch(
        self,
        scope: Scope,
        *,
        after: WatchCursor = WatchCursor.NONE,
        identity: str | None = None,
        heartbeat: float = HEARTBEAT_SECONDS,
        losses: int | None = None,
        records: int | None = None,
    ) -> Watch:
        """See `KvWatcher.watch`. Leaving the context stops the watch and deletes its consumer."""
        return Watch(
            self._bulk,
            self._bucket,
            scope,
            after=resumable(after) if after else None,
            identity=identity,
            heartbeat=heartbeat,
            bookmark_seconds=self._bookmark_seconds,
            empty_is_delete=self._empty_is_delete,
            losses=losses,
            records=records,
        )

    # -- names in the Rust crate

    def watch_all(self) -> Watch:
        return self.watch(Scope.all())

    def watch_prefix(self, prefix: str) -> Watch:
        return self.watch(Scope.prefix(prefix))

    def watch_prefixes(self, prefixes: Sequence[str]) -> Watch:
        return self.watch(Scope.of(prefixes))

    def watch_all_from(self, cursor: WatchCursor) -> Watch:
        return self.watch(Scope.all(), after=cursor)

    def watch_prefix_from(self, prefix: str, cursor: WatchCursor) -> Watch:
        return self.watch(Scope.prefix(prefix), after=cursor)

    def watch_prefixes_from(self, prefixes: Sequence[str], cursor: WatchCursor) -> Watch:
        return self.watch(Scope.of(prefixes), after=cursor)

    async def log_info(self) -> LogInfo:
        with by_name(self._bucket):
            return log_info(await self._bulk.stream_state(stream_of(self._bucket)))

    async def records_at(self, revisions: Sequence[int]) -> list[KvUpdate | None]:
        """Return the records at these revisions; None for each missing one."""
        return await self._lookup([{"seq": revision} for revision in revisions])

    async def newest_of(self, keys: Sequence[str]) -> list[KvUpdate | None]:
        """Return the newest record of each key; None for each key without a record."""
        prefix = prefix_of(self._bucket)
        return await self._lookup([{"last_by_subj": prefix + key} for key in keys])

    async def _lookup(self, questions: Sequence[dict[str, object]]) -> list[KvUpdate | None]:
        skipped = len(prefix_of(self._bucket))
        with by_name(self._bucket):
            rows = await self._bulk.lookup(stream_of(self._bucket), questions)
        return [
            None
            if row is None
            else updates_of(batch_of([row]), skipped, empty_is_delete=self._empty_is_delete)[0]
            for row in rows
        ]


class Watch:
    """A watch: yields single events (`async for`) or batches as they arrive (`batches`)."""

    def __init__(
        self,
        bulk: BulkReader,
        bucket: str,
        scope: Scope,
        *,
        after: int | None,
        identity: str | None,
        heartbeat: float,
        bookmark_seconds: float,
        empty_is_delete: bool,
        losses: int | None = None,
        records: int | None = None,
    ) -> None:
        self._bucket = bucket
        self._losses, self._records = losses, records
        self._look_seconds = heartbeat
        self._look_due = 0.0
        self._is_guarded = self._is_whole = scope == Scope.all()
        """Whether a sequence gap may hide a record in scope, and has to be checked."""
        self._counts_losses = False
        self._skipped = len(prefix_of(bucket))
        self._empty_is_delete = empty_is_delete
        self._bookmark_seconds = bookmark_seconds
        self._bookmark_due = 0.0
        #: The watch expects every record in scope after this sequence; None while listing.
        self._frontier = after
        self._end = 0
        """The last sequence of the log when the listing began."""
        self._cursor = after or 0
        self._events: deque[WatchEvent] = deque()
        self._held: Sequence[WatchEvent] = ()
        """Events that follow a `Recheck`."""
        self._recreated = 0
        self._seen: LogInfo | None = None
        """The state of the log when it was last checked for losses."""
        self._is_changed = False
        self.identity = identity
        self.heard_at: float | None = None
        """Time of the last message or heartbeat of the server, by `time.monotonic`."""
        self._following = bulk.follow(
            stream_of(bucket),
            filters=filters_of(bucket, scope),
            after=after,
            heartbeat=heartbeat,
            check=self._check,
        )

    async def __aenter__(self) -> Self:
        try:
            with by_name(self._bucket):
                await self._begin()
        except BaseException:
            await self._following.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._following.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchEvent:
        while not self._events:
            self._events.extend(await self.next_events())
        return self._events.popleft()

    async def batches(self) -> AsyncIterator[Sequence[WatchEvent]]:
        """Yield events in the batches in which they arrive."""
        while True:
            yield await self.next_events()

    async def next_events(self) -> Sequence[WatchEvent]:
        """Wait for events and return at least one."""
        while True:
            if self._held:
                events, self._held = self._held, ()
                return events
            try:
                event = await self._following.next()
                if isinstance(event, Quiet):
                    await self._look()
                    continue
                self.heard_at = time.monotonic()
                events = await self._translate(event)
                if self._is_look_due():
                    await self._look()
            except BulkError as error:
                raise self._ended(error) from error
            if recheck := self._recheck():
                self._held = events
                return (recheck,)
            if events:
                return events

    def _recheck(self) -> Recheck | None:
        """Return the event to send before the events just received, if any."""
        is_resumed = self._following.recreated != self._recreated
        if not is_resumed and not self._is_changed:
            return None
        self._recreated, self._is_changed = self._following.recreated, False
        return Recheck(is_resumed)

    @property
    def cursor(self) -> WatchCursor:
        """The position after everything delivered or bookmarked so far."""
        return WatchCursor.of(self._cursor) if self._cursor else WatchCursor.NONE

    # -- beginning

    async def _begin(self) -> None:
        if self._frontier is not None:
            await self._following.begin()
            return
        before = log_info(await self._following.state())
        self._note(before)
        self._end = before.last_seq
        self.identity = self.identity or before.identity
        await self._following.begin()
        now = log_info(await self._following.state())
        if not is_same_log(self.identity, now.identity):
            raise self._reset(now)

    def _check(self, state: StreamSummary, position: int) -> None:
        info = log_info(state)
        check_resume(
            info, position, identity=self.identity, bucket=self._bucket, losses=self._losses
        )
        self._check_losses(info)
        self.identity = info.identity
        self._note(info)

    def _note(self, info: LogInfo) -> None:
        self._is_guarded = self._is_whole or info.evicts_current
        self._counts_losses = info.loss_floor is not None

    def _is_look_due(self) -> bool:
        """Return whether the loss counters are due for a check: once per heartbeat, if any."""
        is_counted = self._losses is not None or self._records is not None
        return is_counted and time.monotonic() >= self._look_due

    async def _look(self) -> None:
        """Check that the log is still the same and lost no values that were delivered."""
        self._look_due = time.monotonic() + self._look_seconds
        info = log_info(await self._following.state())
        if self.identity is not None and not is_same_log(self.identity, info.identity):
            raise self._reset(info)
        self._check_losses(info)
        if self._losses is None and self._records is not None:
            self._is_changed = self._is_changed or info != (self._seen or info)
            self._seen = info

    def _check_losses(self, info: LogInfo) -> None:
        is_fewer = (
            info.records is not None and self._records is not None and info.records < self._records
        )
        if (self._losses is not None and info.losses != self._losses) or is_fewer:
            raise ValuesLost(
                "values were removed from the bucket", cursor=self.cursor, bucket=self._bucket
            )
        if self._records is not None:
            self._records = info.records

    def _reset(self, now: LogInfo) -> LogReset:
        return LogReset(
            "the bucket was recreated",
            old_identity=self.identity or "",
            new_identity=now.identity,
            bucket=self._bucket,
            cursor=self.cursor,
        )

    # -- events

    async def _translate(self, event: Event) -> Sequence[WatchEvent]:
        if isinstance(event, Batch):
            await self._guard(event)
            self._advance(event.last)
            return updates_of(event, self._skipped, empty_is_delete=self._empty_is_delete)
        if isinstance(event, StreamCaughtUp):
            return self._listed()
        if isinstance(event, Idle):
            await self._guard_idle(event.seq)
            return self._bookmarked(event.seq)
        return ()

    def _advance(self, revision: int) -> None:
        self._cursor = revision
        if self._frontier is not None:
            self._frontier = revision

    def _listed(self) -> Sequence[WatchEvent]:
        """End a listing and return its events.

        The listing covers the log up to its end at the start of the listing, so the cursor moves to
        that end. With a cursor at the last listed record, a resume would treat records removed
        between the two as lost.
        """
        if self._frontier is not None:
            return (CaughtUp(),)
        self._frontier = max(self._end, self._following.position or 0)
        if self._cursor >= self._end:
            return (CaughtUp(),)
        self._cursor = self._end
        return (Bookmark(WatchCursor.of(self._end)), CaughtUp())

    def _bookmarked(self, revision: int) -> Sequence[WatchEvent]:
        if self._frontier is not None:
            self._frontier = revision
        now = asyncio.get_running_loop().time()
        if revision <= self._cursor or now < self._bookmark_due:
            return ()
        self._bookmark_due = now + self._bookmark_seconds
        self._cursor = revision
        return (Bookmark(WatchCursor.of(revision)),)

    async def _guard(self, batch: Batch) -> None:
        """Check the log if the batch has a sequence gap, before the batch is delivered."""
        if not self._is_guarded or self._frontier is None:
            return
        skipped_behind = batch.first_gap(self._frontier)
        if skipped_behind < 0:
            return
        await self._look_into(skipped_behind)

    async def _guard_idle(self, revision: int) -> None:
        """Check the log if a watch of all keys advances without a record: it skipped some."""
        frontier = self._frontier
        if self._is_whole and self._counts_losses and frontier is not None and revision > frontier:
            await self._look_into(frontier)

    async def _look_into(self, behind: int) -> None:
        info = log_info(await self._following.state())
        # The log counts losses of keys out of scope too, so they only apply to a watch of all keys.
        is_intact = (
            is_window_intact(info, behind, losses=self._losses)
            if self._is_whole
            else begins_in_time(info, behind)
        )
        if not is_intact:
            raise CursorExpired(
                f"{where_lost(info)}, the watch was at {behind}",
                first_seq=info.first_seq,
                cursor=self.cursor,
                bucket=self._bucket,
            )

    def _ended(self, error: BulkError) -> WatchError | BucketError:
        """Return the error that ends a running watch, with the cursor to resume from."""
        reason = named(error, self._bucket)
        if isinstance(reason, BucketError | WatchError):
            reason.cursor = self.cursor
            return reason
        return WatchError(str(error), bucket=self._bucket, cursor=self.cursor)
