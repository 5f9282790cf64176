"""One stream followed by an ordered consumer that is made anew whenever it broke.

States: not begun -> delivering -> (broken -> delivering)* -> closed. It breaks when the consumer's
sequence has a gap, heartbeats stay out for three intervals, the connection is lost, or the server
ends the consumer. It then begins again behind `position`, the last sequence handed on or passed by,
through the caller's check of the stream before *and* after the consumer is made: what was evicted
in between would be missing without a word otherwise.

Nothing is handed on twice, and nothing out of order. Flow control is answered when the reader comes
back for more, so a slow reader slows the server.
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
    AnswerLate,
    BulkError,
    LinkLost,
    NotPermitted,
    may_pass,
)
from penstock.bulk.record_batch import Batch
from penstock.bulk.subscription_feed import Broken, CaughtUpMark, Denied, PastEndMark, Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.bulk.bulk_connection import BulkConnection
    from penstock.bulk.bulk_requests import Questions, StreamSummary, SubjectSelection
    from penstock.bulk.subscription_feed import Item, SubscriptionFeed

#: So many heartbeats may stay out before the consumer counts as gone.
HEARTBEATS_MISSED_MAX: Final = 3
QUIET_HEARTBEATS: Final = 1.25
"""After so many without a word from the server the caller is told."""
RECONNECT_SECONDS: Final = 60.0
RETRY_SECONDS_FIRST: Final = 0.05
RETRY_SECONDS_MAX: Final = 2.0
DELETE_SECONDS: Final = 2.0
IDLE_CODE: Final = 100

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Idle:
    """The server has looked at everything up to `seq`, and we have all of it that we want."""

    seq: int


@dataclass(frozen=True, slots=True)
class EndReached:
    """Everything the stream held has been delivered: nothing was pending behind the last record.

    A count taken at the start would not do. A record it counted may be overwritten before its turn,
    and its subject's new one comes last.
    """


@dataclass(frozen=True, slots=True)
class PastEnd:
    """Nothing up to the last sequence wanted is to come any more."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """A heartbeat is missing. The stream may have been deleted; comes once for each silence."""


Event = Batch | Idle | EndReached | PastEnd | Quiet


class Following:
    """Hands on batches and marks in order; `check(state, position)` raises to refuse a start."""

    def __init__(
        self,
        dial: Callable[[], Awaitable[BulkConnection]],
        questions: Questions,
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
        """Nothing came for a while: what was pending may be gone, or on its way."""
        self._has_begun = False
        self._is_quiet = False
        self.position = after
        self.recreated = 0

    # -- reading

    async def begin(self) -> None:
        """Connect and make the consumer. What is refused is raised; nothing is tried twice.

        A connection that was there and is lost on the way is for `next` to replace.
        """
        with contextlib.suppress(LinkLost):
            await self._begin()
            await self._confirm()
        self._has_begun = True

    async def next(self) -> Event:
        """The next batch or mark, through as many new consumers as it takes."""
        while True:
            if self._feed is None:
                await self._patiently(self._begin)
                self.recreated += 1
            if self._unconfirmed is not None:
                await self._patiently(self._confirm)
            if not self._is_caught_up and self._initial == 0:
                return self._caught_up()
            item = await self._next_item()
            event = Quiet() if item is None else self._judge(item)
            if self._is_in_doubt:
                self._is_in_doubt = False
                event = self._caught_up() if await self._has_nothing_pending() else event
            if event is not None:
                return event

    async def state(self) -> StreamSummary:
        """The stream now; once begun, a server that is away is waited for."""
        return await (self._patiently(self._state) if self._has_begun else self._state())

    async def close(self) -> None:
        """Take the consumer back and disconnect."""
        link, self._link, self._feed = self._link, None, None
        if link is None:
            return
        try:
            await self._delete(link)
        finally:
            await self._release(link)

    # -- what came

    async def _next_item(self) -> Item | None:
        """What came; None once if nothing did for longer than a heartbeat."""
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

    def _judge(self, item: Item) -> Event | None:
        if isinstance(item, Batch):
            self._handed += item.count
            self.position = item.last
            return item
        if isinstance(item, Status):
            return self._judge_status(item)
        if isinstance(item, CaughtUpMark):
            return None if self._is_caught_up else self._caught_up()
        if isinstance(item, PastEndMark):
            return PastEnd()
        if isinstance(item, Denied):
            raise NotPermitted(item.reason)
        self._break(item.reason)
        return None

    def _judge_status(self, status: Status) -> Event | None:
        if status.code != IDLE_CODE:
            self._break(f"the server said: {status.code} {status.text}")
            return None
        stalled = status.reply or status.word(b"Nats-Consumer-Stalled")
        if stalled:
            self._answer(stalled)
        if status.reply:
            return None
        return self._judge_heartbeat(status, is_stalled=bool(stalled))

    def _judge_heartbeat(self, status: Status, *, is_stalled: bool) -> Event | None:
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
        """What was pending may have been removed in the meantime: then no record says so.

        Nor does a heartbeat alone: a server that is busy sends one in the midst of a backlog.
        """
        try:
            link = await self._connected()
            return await self._questions.pending_of(link, self._stream, self._consumer) == 0
        except AccessDenied:
            return True  # who may not ask has to believe the heartbeat
        except BulkError:
            return False  # the next heartbeat asks again

    def _caught_up(self) -> EndReached:
        self._is_caught_up = True
        return EndReached()

    def _answer(self, subject: str) -> None:
        if self._link is not None:
            with contextlib.suppress(LinkLost):
                self._link.publish(subject)

    def _break(self, reason: str) -> None:
        log.info(
            "consumer lost stream=%s position=%s reason=%s", self._stream, self.position, reason
        )
        self._feed = None

    # -- beginning

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until it is done, refused, or the server was away for too long."""
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
        """Listen for deliveries; the subject a consumer shall push to, if it shall."""
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
        """How many records the consumer had to deliver; 1 if the answer is lost behind some.

        A server may deliver before it answers, and those records are good without the answer:
        over a connection that never lives long there might be no others.
        """
        try:
            return await self._questions.create_consumer(
                link, self._stream, self._consumer, deliver, selection
            )
        except LinkLost:
            if feed.has_records:
                return 1
            raise

    async def _confirm(self) -> None:
        """The check after the consumer was made: until it has passed nothing is handed on.

        A later answer says as much, since a stream never begins earlier than it did. So what came
        over a connection that is lost by now still counts.
        """
        if self._check is not None and self._unconfirmed is not None:
            self._check(await self._state(), self._unconfirmed)
        self._unconfirmed = None

    async def _connected(self) -> BulkConnection:
        if self._link is None or not self._link.is_open:
            self._link = await self._dial()
        return self._link

    def _drop_mute(self, error: BulkError) -> None:
        """A connection that no longer answers is no connection."""
        if isinstance(error, AnswerLate) and self._link is not None:
            self._link.abort()
            self._link = None

    async def _delete(self, link: BulkConnection) -> None:
        """Best effort: a consumer without a reader ends by itself after a while."""
        name, self._consumer = self._consumer, ""
        if not name:
            return
        link.unfollow()
        with contextlib.suppress(BulkError):
            await self._questions.delete_consumer(link, self._stream, name, DELETE_SECONDS)


async def _close(link: BulkConnection) -> None:
    await link.close()
