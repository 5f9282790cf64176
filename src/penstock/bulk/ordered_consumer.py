"""Follows one stream with an ordered consumer, and recreates the consumer whenever it breaks.

States: not begun -> delivering -> (broken -> delivering)* -> closed. It breaks when the consumer
sequence has a gap, heartbeats are missing for three intervals, the connection is lost, or the
server ends the consumer. It then starts again after `position`, the last sequence returned or
skipped. The caller's check of the stream runs before *and* after the consumer is created: otherwise
records evicted in between would be missing silently.

Invariant: no record is returned twice or out of order. Flow control is acknowledged when the caller
requests the next item, so a slow reader slows the server. The caller calls `begin`, then `next`
repeatedly, then `close`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.bulk.errors import (
    AccessDenied,
    BulkError,
    ConnectionLost,
    NotPermitted,
    ReplyTimeout,
    may_pass,
)
from penstock.bulk.record_batch import Batch
from penstock.bulk.subscription_feed import Broken, CaughtUpMark, Denied, PastEndMark, Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.bulk.bulk_connection import BulkConnection
    from penstock.bulk.bulk_requests import JetStreamApi, StreamSummary, SubjectSelection
    from penstock.bulk.subscription_feed import Item, SubscriptionFeed

#: Number of missed heartbeats after which the consumer counts as lost.
HEARTBEATS_MISSED_MAX: Final = 3
QUIET_HEARTBEATS: Final = 1.25
"""Heartbeat intervals without traffic after which the caller gets `Quiet`."""
RECONNECT_SECONDS: Final = 60.0
RETRY_SECONDS_FIRST: Final = 0.05
RETRY_SECONDS_MAX: Final = 2.0
DELETE_SECONDS: Final = 2.0
IDLE_CODE: Final = 100

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Idle:
    """The server has processed everything up to `seq`, and all matching records were returned."""

    seq: int


@dataclass(frozen=True, slots=True)
class EndReached:
    """Every record the stream held was delivered: nothing was pending after the last record.

    A count taken at the start is not sufficient: a counted record may be overwritten before its
    delivery, and the new record of its subject comes last.
    """


@dataclass(frozen=True, slots=True)
class PastEnd:
    """No further record up to the last sequence wanted will arrive."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """A heartbeat is missing; the stream may have been deleted. Reported once per silence."""


Event = Batch | Idle | EndReached | PastEnd | Quiet


class OrderedConsumer:
    """Returns batches and marks in order; `check(state, position)` raises to reject a start."""

    def __init__(
        self,
        dial: Callable[[], Awaitable[BulkConnection]],
        questions: JetStreamApi,
        stream: str,
        selection: SubjectSelection,
        *,
        after: int | None = None,
        stop_seq: int = 0,
        whole_batches: bool = False,
        check: Callable[[StreamSummary, int], None] | None = None,
        reconnect_seconds: float = RECONNECT_SECONDS,
        release: Callable[[BulkConnection], Awaitable[None]] | None = None,
    ) -> None:
        self._dial = dial
        self._release = release or _close
        self._questions = questions
        self._stream = stream
        self._selection = selection
        self._stop_seq = stop_seq
        self._whole_batches = whole_batches
        self._check = check
        self._reconnect_seconds = reconnect_seconds
        self._link: BulkConnection | None = None
        self._feed: SubscriptionFeed | None = None
        self._consumer = ""
        self._initial = 0
        self._unconfirmed: int | None = None
        self._handed = 0
        self._is_caught_up = False
        self._is_in_doubt = False
        """Nothing arrived for a while: the pending records may have been removed, or be in
        flight."""
        self._has_begun = False
        self._is_quiet = False
        self.position = after
        self.recreated = 0

    # -- reading

    async def begin(self) -> None:
        """Connect and create the consumer. Raises on refusal; tries only once.

        A connection that is lost during this call is replaced by `next`.
        """
        with contextlib.suppress(ConnectionLost):
            await self._begin()
            await self._confirm()
        self._has_begun = True

    async def next(self) -> Event:
        """Return the next batch or mark; recreate the consumer as often as necessary."""
        while True:
            if self._feed is None:
                await self._patiently(self._begin)
                self.recreated += 1
            if self._unconfirmed is not None:
                await self._patiently(self._confirm)
            if not self._is_caught_up and self._initial == 0:
                return self._caught_up()
            item = await self._next_item()
            event = Quiet() if item is None else self._event_of(item)
            if self._is_in_doubt:
                self._is_in_doubt = False
                event = self._caught_up() if await self._has_nothing_pending() else event
            if event is not None:
                return event

    async def state(self) -> StreamSummary:
        """Return the current state of the stream; after `begin`, wait for an unreachable server."""
        return await (self._patiently(self._state) if self._has_begun else self._state())

    async def close(self) -> None:
        """Delete the consumer and release the connection."""
        link, self._link, self._feed = self._link, None, None
        if link is None:
            return
        try:
            await self._delete(link)
        finally:
            await self._release(link)

    # -- received items

    async def _next_item(self) -> Item | None:
        """Return the next item; None once if nothing arrived for longer than a heartbeat."""
        assert self._feed is not None
        was_quiet, self._is_quiet = self._is_quiet, False
        heartbeats = HEARTBEATS_MISSED_MAX - QUIET_HEARTBEATS if was_quiet else QUIET_HEARTBEATS
        try:
            return await self._feed.next(heartbeats * self._selection.heartbeat)
        except TimeoutError:
            if was_quiet:
                seconds = HEARTBEATS_MISSED_MAX * self._selection.heartbeat
                return Broken(f"nothing was heard for {seconds:g} s")
            self._is_quiet = True
            return None

    def _event_of(self, item: Item) -> Event | None:
        if isinstance(item, Batch):
            self._handed += item.count
            self.position = item.last
            return item
        if isinstance(item, Status):
            return self._event_of_status(item)
        if isinstance(item, CaughtUpMark):
            return None if self._is_caught_up else self._caught_up()
        if isinstance(item, PastEndMark):
            return PastEnd()
        if isinstance(item, Denied):
            raise NotPermitted(item.reason)
        self._break(item.reason)
        return None

    def _event_of_status(self, status: Status) -> Event | None:
        if status.code != IDLE_CODE:
            self._break(f"the server said: {status.code} {status.text}")
            return None
        stalled = status.reply or status.word(b"Nats-Consumer-Stalled")
        if stalled:
            self._answer(stalled)
        if status.reply:
            return None
        return self._event_of_heartbeat(status, is_stalled=bool(stalled))

    def _event_of_heartbeat(self, status: Status, *, is_stalled: bool) -> Event | None:
        delivered, seq = status.number(b"Nats-Last-Consumer"), status.number(b"Nats-Last-Stream")
        if delivered > self._handed:
            self._break(f"delivery {delivered} never came, {self._handed} was the last")
            return None
        if delivered != self._handed or seq < (self.position or 0):
            return None
        self.position = seq
        self._is_in_doubt = not self._is_caught_up and not is_stalled
        return Idle(seq)

    async def _has_nothing_pending(self) -> bool:
        """Return True if the consumer has nothing pending.

        Pending records may have been removed meanwhile; no delivered record reports that. A
        heartbeat alone does not prove it either: a busy server sends one in the middle of a
        backlog.
        """
        try:
            link = await self._connected()
            return await self._questions.pending_of(link, self._stream, self._consumer) == 0
        except AccessDenied:
            return True  # without permission to request it, trust the heartbeat
        except BulkError:
            return False  # the next heartbeat triggers another request

    def _caught_up(self) -> EndReached:
        self._is_caught_up = True
        return EndReached()

    def _answer(self, subject: str) -> None:
        if self._link is not None:
            with contextlib.suppress(ConnectionLost):
                self._link.publish(subject)

    def _break(self, reason: str) -> None:
        log.info(
            "consumer lost stream=%s position=%s reason=%s", self._stream, self.position, reason
        )
        self._feed = None

    # -- start

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry until success, refusal, or `reconnect_seconds` without a server."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._reconnect_seconds
        pause = RETRY_SECONDS_FIRST
        while True:
            try:
                return await attempt()
            except BulkError as error:
                self._drop_mute(error)
                if not may_pass(error) or loop.time() + pause > deadline:
                    raise
                log.debug("not yet stream=%s reason=%s", self._stream, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, RETRY_SECONDS_MAX)

    async def _state(self) -> StreamSummary:
        link = await self._connected()
        return await self._questions.stream_state(link, self._stream)

    async def _begin(self) -> None:
        link = await self._connected()
        await self._delete(link)
        position = self.position
        if self._check is not None and position is not None:
            self._check(await self._questions.stream_state(link, self._stream), position)
        name = self._selection.name_prefix + secrets.token_hex(8)
        deliver, feed = self._subscribe(link)
        selection = self._selection
        if position is not None:
            selection = replace(selection, start_seq=position + 1)
        self._consumer = name
        self._initial = await self._create(link, feed, deliver, selection)
        self._unconfirmed = position if self._check is not None else None
        self._handed = 0
        self._feed = feed

    def _subscribe(self, link: BulkConnection) -> tuple[str, SubscriptionFeed]:
        """Follow a new subject; return the subject to push to (empty for a pull consumer) and the
        feed."""
        return link.follow(
            stop_seq=self._stop_seq, mark_caught_up=True, whole_batches=self._whole_batches
        )

    async def _create(
        self,
        link: BulkConnection,
        feed: SubscriptionFeed,
        deliver: str,
        selection: SubjectSelection,
    ) -> int:
        """Create the consumer; return how many records it has to deliver.

        Returns 1 if the connection is lost after records arrived but before the reply. A server may
        deliver before it replies, and those records are valid without the reply; over short-lived
        connections there might be no others.
        """
        try:
            return await self._questions.create_consumer(
                link, self._stream, self._consumer, deliver, selection
            )
        except ConnectionLost:
            if feed.has_records:
                return 1
            raise

    async def _confirm(self) -> None:
        """Run the check after the consumer was created; until it passes, no record is returned.

        A later stream state is sufficient, because the first sequence of a stream never decreases.
        So records received over a connection that was lost since remain valid.
        """
        if self._check is not None and self._unconfirmed is not None:
            self._check(await self._state(), self._unconfirmed)
        self._unconfirmed = None

    async def _connected(self) -> BulkConnection:
        if self._link is None or not self._link.is_open:
            self._link = await self._dial()
        return self._link

    def _drop_mute(self, error: BulkError) -> None:
        """Abort a connection on which a request timed out."""
        if isinstance(error, ReplyTimeout) and self._link is not None:
            self._link.abort()
            self._link = None

    async def _delete(self, link: BulkConnection) -> None:
        """Delete the consumer, best effort: the server removes an inactive consumer after a
        while."""
        name, self._consumer = self._consumer, ""
        if not name:
            return
        link.unfollow()
        with contextlib.suppress(BulkError):
            await self._questions.delete_consumer(link, self._stream, name, DELETE_SECONDS)


async def _close(link: BulkConnection) -> None:
    await link.close()
