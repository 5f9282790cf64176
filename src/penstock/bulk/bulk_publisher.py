"""Bulk publisher: many publishes in flight, each of them confirmed, unconfirmed ones sent again.

A publisher has one connection at a time and numbers its publishes. Publishes without a reply when
the connection is lost, or after `ack_seconds` of silence, are sent again unchanged and in order
over the next connection; a message id in the header makes the stream store them once. Transient
refusals are retried; other refusals are kept for the caller (`take_refused`).

Invariant: `drain` returns only when every number has a reply; otherwise it raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.api.error_codes import PUBLISH_RETRIABLE
from penstock.bulk.bulk_connection import FRAME_BYTES_MAX, BulkConnection, open_as
from penstock.bulk.errors import (
    AccessDenied,
    ConnectFailed,
    ConnectionLost,
    NotPermitted,
    ReplyTimeout,
)
from penstock.bulk.publish_acks import PublishAcks, Window
from penstock.bulk.subscription_feed import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.bulk.bulk_connection import ConnectSettings
    from penstock.bulk.publish_frames import Frames
    from penstock.bulk.wire_reader import ServerItem, WireReader

WINDOW_SLOTS: Final = 16_384
WINDOW_BYTES_MAX: Final = 32 << 20
#: Without a reply for this long the connection counts as dead.
ACK_SECONDS: Final = 10.0
#: Without a reply for this long, over any number of connections, publishing fails.
PATIENCE_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 2.0
TRIES_MAX: Final = 7
NO_RESPONDERS: Final = 503
DEFAULT_PAYLOAD_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class PublishRefusal:
    """A publish that the stream did not store. `err_code` is 0 if the server gave none."""

    number: int
    description: str
    code: int = 0
    err_code: int = 0


@dataclass(frozen=True, slots=True)
class Repeat:
    """A publish that the server reported as a duplicate of the message at `seq`.

    After `is_resent` the message may be this publisher's own first send.
    """

    number: int
    seq: int
    is_resent: bool = False


class PublishLink(BulkConnection):
    """A connection that records the replies of one inbox in a window.

    Replies other than a plain ack go to `owner`.
    """

    def __init__(self, dialling: ConnectSettings, owner: Publisher) -> None:
        super().__init__(dialling)
        self._owner = owner
        self._answers_sid = next(self._numbers)
        self.is_stuffed = False

    def _new_intake(self, dialling: ConnectSettings) -> WireReader:
        return PublishAcks(
            frame_bytes_max=FRAME_BYTES_MAX, records_max=1, bytes_max=dialling.batch_bytes_max
        )

    def listen(self, inbox: str, window: Window) -> None:
        assert isinstance(self._intake, PublishAcks)
        self._intake.answer_to(self._answers_sid, window)
        self._write(b"SUB %b.* %d\r\n" % (inbox.encode(), self._answers_sid))

    def write(self, data: bytes) -> None:
        self._write(data)

    def pause_writing(self) -> None:
        self.is_stuffed = True

    def resume_writing(self) -> None:
        self.is_stuffed = False
        self._owner.moved()

    def buffer_updated(self, nbytes: int) -> None:
        super().buffer_updated(nbytes)
        self._owner.moved()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._owner.moved()

    def _handle_message(self, reply: ServerItem) -> None:
        if reply.sid == self._answers_sid:
            self._owner.handle_reply(reply)
        else:
            super()._handle_message(reply)

    def _handle_violation(self, text: str, act: str, subject: str) -> None:
        super()._handle_violation(text, act, subject)
        self._owner.deny(text)


class Publisher:
    """Publishes to one stream. Bound to one event loop; not safe for concurrent callers."""

    def __init__(
        self,
        dialling: ConnectSettings,
        *,
        stream: str = "",
        slots: int = WINDOW_SLOTS,
        lists_stored: bool = False,
        ack_seconds: float = ACK_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._dialling = dialling
        self._window = Window(slots, stream, lists_stored)
        self._ack_seconds = ack_seconds
        self._patience_seconds = patience_seconds
        self._inbox = f"{dialling.inbox_prefix}.{secrets.token_hex(11)}"
        self._link: PublishLink | None = None
        self._in_flight: deque[Frames] = deque()
        self._in_flight_bytes = 0
        self._tries: dict[int, int] = {}
        self._due: set[int] = set()
        self._due_at = 0.0
        self._refused: list[PublishRefusal] = []
        self._repeats: list[Repeat] = []
        self._resent_stop = 0  # numbers below it may be duplicates of our own first send
        self._denied = ""
        self._moved = asyncio.Event()
        self._answered = 0
        self._progress_at = 0.0  # time of the last reply
        self._quiet_since = 0.0  # start of the current silence on this connection

    @property
    def inbox(self) -> bytes:
        """Prefix of the reply subject; the number of the publish follows."""
        return f"{self._inbox}.".encode()

    @property
    def next_number(self) -> int:
        return self._window.next

    @property
    def oldest_number(self) -> int:
        """Every publish below this number has a reply."""
        return self._window.oldest

    @property
    def duplicates(self) -> int:
        """Number of publishes reported as duplicates, including those this publisher sent twice."""
        return self._window.duplicates

    @property
    def payload_bytes_max(self) -> int:
        """Server limit for headers and payload together, in bytes."""
        max_payload = self._link.info.get("max_payload") if self._link is not None else None
        return int(max_payload) if max_payload else DEFAULT_PAYLOAD_BYTES_MAX

    async def open(self) -> None:
        await self._ready_link()

    async def close(self) -> None:
        """Close the connection; unanswered publishes stay unanswered."""
        if self._link is not None:
            await self._link.close()

    async def send(self, frames: Frames) -> None:
        """Publish; returns when the frames are written. Waits for earlier replies if the window is
        full."""
        await self._until(lambda: self._has_room(frames))
        first = self._window.open(frames.count)
        assert first == frames.first, "frames are sent in the order they were numbered in"
        self._in_flight.append(frames)
        self._in_flight_bytes += len(frames.data)
        self._write(frames.data)

    async def drain(self) -> None:
        """Wait until every publish has a reply."""
        await self._until(lambda: self._window.oldest == self._window.next)

    def take_refused(self) -> list[PublishRefusal]:
        """Return the refusals since the last call."""
        taken, self._refused = self._refused, []
        return taken

    async def take_repeats(self) -> list[Repeat]:
        """Return the duplicates since the last call."""
        self._note_repeats()
        taken, self._repeats = self._repeats, []
        return taken

    async def take_stored(self) -> list[tuple[int, int]]:
        """Return the sequences stored since the last call, as runs (first, last).

        Empty unless the publisher was created with `lists_stored`; the caller must then call it,
        because the list grows until it is taken.
        """
        return self._window.take_stored()

    async def ask(
        self, subject: str, payload: bytes = b"", *, header: bytes = b"", before: bytes = b""
    ) -> ServerItem:
        """Send a request over the same connection, after the frames `before`, which request no
        reply."""
        link = await self._ready_link()
        if before:
            link.write(before)
        return await link.request(subject, payload, self._ack_seconds, header=header)

    # -- calls of the connection

    def moved(self) -> None:
        self._moved.set()

    def deny(self, text: str) -> None:
        self._denied = text

    def handle_reply(self, reply: ServerItem) -> None:
        """Handle a reply that is not a plain ack: schedule a retry or record a refusal."""
        number = int(reply.subject.rpartition(".")[2])
        if not self._window.is_waiting(number):
            return
        refusal = refusal_of(number, reply)
        passes = refusal.code == NO_RESPONDERS or refusal.err_code in PUBLISH_RETRIABLE
        tries = self._tries.pop(number, 0) + 1
        if not passes or tries >= TRIES_MAX:
            self._window.record_answer(number)
            self._refused.append(refusal)
            return
        self._tries[number] = tries
        self._due.add(number)
        self._due_at = self._due_at or _now() + min(PAUSE_SECONDS * 2**tries, PAUSE_SECONDS_MAX)

    # -- waiting

    async def _until(self, is_done: Callable[[], bool]) -> None:
        self._progress_at = self._quiet_since = _now()
        while True:
            if self._denied:
                raise NotPermitted(self._denied)
            self._forget_answered()
            if is_done():
                return
            await self._ready_link()
            if self._due_at and _now() >= self._due_at:
                self._send_due()
            await self._await_word()

    async def _await_word(self) -> None:
        """Wait until something arrives, a retry is due, or the connection counts as dead."""
        if self._window.answered != self._answered:
            self._answered = self._window.answered
            self._progress_at = self._quiet_since = _now()
        dead_at = self._quiet_since + self._ack_seconds
        self._moved.clear()
        try:
            async with asyncio.timeout_at(min(dead_at, self._due_at or dead_at)):
                await self._moved.wait()
        except TimeoutError:
            if _now() >= dead_at and self._link is not None:
                self._link.abort()
                await self._link.close()

    def _has_room(self, frames: Frames) -> bool:
        if self._in_flight_bytes and self._in_flight_bytes + len(frames.data) > WINDOW_BYTES_MAX:
            return False
        is_stuffed = self._link is not None and self._link.is_stuffed
        return self._window.room >= frames.count and not is_stuffed

    def _forget_answered(self) -> None:
        while self._in_flight and self._in_flight[0].stop <= self._window.oldest:
            self._in_flight_bytes -= len(self._in_flight.popleft().data)
        if not self._in_flight:
            self._tries.clear()

    # -- sending again

    def _note_repeats(self) -> None:
        self._repeats += (
            Repeat(number, seq, is_resent=number < self._resent_stop)
            for number, seq in self._window.take_repeats()
        )

    def _send_due(self) -> None:
        """Send the publishes again that were refused for a transient reason, in order."""
        for frames in self._in_flight:
            numbers = [one for one in sorted(self._due) if frames.first <= one < frames.stop]
            self._write(b"".join(map(frames.frame, numbers)))
        self._due.clear()
        self._due_at = 0.0

    async def _ready_link(self) -> PublishLink:
        """Return the connection; if it was lost, open a new one and send everything unanswered
        again."""
        if self._link is not None and self._link.is_open:
            return self._link
        self._link = await self._dial(self._progress_at if self._in_flight else _now())
        self._quiet_since = _now()
        self._due.clear()
        self._due_at = 0.0
        self._link.listen(self._inbox, self._window)
        self._note_repeats()  # replies that arrived before anything is sent again
        if self._in_flight:
            self._resent_stop = self._window.next
        for frames in self._in_flight:
            self._write(frames.unanswered(self._window))
        return self._link

    async def _dial(self, since: float) -> PublishLink:
        pause = PAUSE_SECONDS
        while True:
            if _now() - since > self._patience_seconds:
                raise ReplyTimeout(f"publishes were not answered for {self._patience_seconds:g} s")
            try:
                return await open_as(lambda dialling: PublishLink(dialling, self), self._dialling)
            except AccessDenied:
                raise
            except (ConnectFailed, ConnectionLost):
                if _now() - since + pause > self._patience_seconds:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def _write(self, data: bytes) -> None:
        # The next wait detects a lost connection and sends everything unanswered again.
        if self._link is not None and data:
            with contextlib.suppress(ConnectionLost):
                self._link.write(data)


def refusal_of(number: int, reply: ServerItem) -> PublishRefusal:
    """Return the refusal that a reply other than a plain ack stands for."""
    status = Status.read(reply.header, "") if reply.header else None
    if status is not None and status.code == NO_RESPONDERS:
        return PublishRefusal(number, "no stream takes this subject", NO_RESPONDERS)
    try:
        answer: dict[str, Any] = json.loads(reply.payload)
    except ValueError:
        return PublishRefusal(number, "the answer is not that of a stream")
    if error := answer.get("error"):
        return PublishRefusal(
            number, error.get("description", ""), error.get("code", 0), error.get("err_code", 0)
        )
    return PublishRefusal(number, f"the subject belongs to stream {answer.get('stream')}")


def _now() -> float:
    return asyncio.get_running_loop().time()
