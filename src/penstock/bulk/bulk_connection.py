"""One connection of a bulk client: requests with their replies, and one followed subscription.

Runs on an event loop, with or without TLS. All received bytes pass through the compiled
`WireReader`; records never become Python objects here. A connection is used once: when it is lost,
every waiting request and the feed get an error, and the caller opens a new one with `open_link`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import secrets
import ssl
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.bulk import wire_reader
from penstock.bulk.errors import (
    AccessDenied,
    ConnectFailed,
    ConnectionLost,
    NoResponders,
    NotPermitted,
    ReplyTimeout,
)
from penstock.bulk.login import Address, Credentials, connect_line
from penstock.bulk.subscription_feed import (
    Broken,
    CaughtUpMark,
    Denied,
    PastEndMark,
    Status,
    SubscriptionFeed,
)
from penstock.bulk.wire_reader import ServerItem, WireError, WireReader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

CONNECT_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 30.0
CLOSE_SECONDS: Final = 2.0
#: Covers the largest message a server can be configured to accept.
FRAME_BYTES_MAX: Final = 64 << 20
RECORDS_MAX: Final = 8192
BATCH_BYTES_MAX: Final = 4 << 20
INBOX_PREFIX: Final = "_INBOX"
NO_RESPONDERS: Final = 503
ANSWERS_SID: Final = 1
PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"
MSG_NEXT: Final = ".CONSUMER.MSG.NEXT."

L = TypeVar("L", bound="BulkConnection")

_VIOLATION: Final = re.compile(
    r'permissions violation for (publish|subscription) to "([^"]*)"', re.I
)


@dataclass(frozen=True, slots=True)
class ConnectSettings:
    """Everything needed to open a connection, and the size limits of its batches."""

    addresses: tuple[Address, ...]
    credentials: Credentials = field(default_factory=Credentials)
    tls: ssl.SSLContext | None = None
    tls_first: bool = False
    name: str = "penstock bulk reader"
    inbox_prefix: str = INBOX_PREFIX
    records_max: int = RECORDS_MAX
    batch_bytes_max: int = BATCH_BYTES_MAX
    connect_seconds: float = CONNECT_SECONDS
    answer_seconds: float = ANSWER_SECONDS


class BulkConnection(asyncio.BufferedProtocol):
    """A connection that completed the CONNECT handshake; created by `open_link`."""

    def __init__(self, dialling: ConnectSettings) -> None:
        self._dialling = dialling
        self._intake = self._new_intake(dialling)
        loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._info_received: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._accepted: asyncio.Future[None] = loop.create_future()
        self._closed: asyncio.Future[None] = loop.create_future()
        self._inbox = f"{dialling.inbox_prefix}.{secrets.token_hex(11)}"
        self._answers: dict[str, asyncio.Future[ServerItem]] = {}
        self._asked: dict[str, str] = {}
        self._rows: dict[str, deque[ServerItem]] = {}
        self._deaf = ""
        self._numbers = itertools.count(ANSWERS_SID + 1)
        self._followed = 0
        self._feed: SubscriptionFeed | None = None
        self._on_arrival: Callable[[], None] | None = None
        self._paused = False
        self._error = ""
        self.info: dict[str, Any] = {}

    def _new_intake(self, dialling: ConnectSettings) -> WireReader:
        return WireReader(
            frame_bytes_max=FRAME_BYTES_MAX,
            records_max=dialling.records_max,
            bytes_max=dialling.batch_bytes_max,
        )

    # -- calls of a reader

    @property
    def is_open(self) -> bool:
        return not self._closed.done()

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        seconds: float | None = None,
        *,
        header: bytes = b"",
    ) -> ServerItem:
        """Send a request and return the one reply. `header` is a complete block, or empty."""
        if self._deaf:
            raise NotPermitted(self._deaf)
        token = f"{next(self._numbers)}"
        self._asked[token] = subject
        answer: asyncio.Future[ServerItem] = asyncio.get_running_loop().create_future()
        self._answers[token] = answer
        limit = self._dialling.answer_seconds if seconds is None else seconds
        try:
            self._publish(subject, payload, reply=f"{self._inbox}.r.{token}", header=header)
            async with asyncio.timeout(limit):
                item = await answer
        except TimeoutError:
            raise ReplyTimeout(f"no answer on {subject} within {limit} s") from None
        finally:
            del self._answers[token], self._asked[token]
        if item.header and Status.read(item.header, "").code == NO_RESPONDERS:
            raise NoResponders(f"no responders on {subject}")
        return item

    async def request_many(
        self, subject: str, payload: bytes, seconds: float | None = None
    ) -> AsyncGenerator[ServerItem, None]:
        """Send a request and yield replies as they arrive, until the caller stops."""
        if self._deaf:
            raise NotPermitted(self._deaf)
        token = f"{next(self._numbers)}"
        item: deque[ServerItem] = deque()
        self._rows[token] = item
        limit = self._dialling.answer_seconds if seconds is None else seconds
        try:
            self._publish(subject, payload, reply=f"{self._inbox}.r.{token}")
            while True:
                if not item:
                    await self._wait_for_row(token, subject, limit)
                yield item.popleft()
        finally:
            del self._rows[token]

    async def _wait_for_row(self, token: str, subject: str, seconds: float) -> None:
        more: asyncio.Future[ServerItem] = asyncio.get_running_loop().create_future()
        self._answers[token], self._asked[token] = more, subject
        try:
            async with asyncio.timeout(seconds):
                await more
        except TimeoutError:
            raise ReplyTimeout(f"no answer on {subject} within {seconds} s") from None
        finally:
            del self._answers[token], self._asked[token]

    def publish(self, subject: str, payload: bytes = b"", *, reply: str = "") -> None:
        self._publish(subject, payload, reply=reply)

    def follow(
        self,
        *,
        stop_seq: int = 0,
        mark_caught_up: bool = False,
        whole_batches: bool = False,
        on_arrival: Callable[[], None] | None = None,
    ) -> tuple[str, SubscriptionFeed]:
        """Subscribe to a new subject for a consumer to deliver to; ends the previous subscription.

        `on_arrival` is called after each read from the socket.
        """
        self.unfollow()
        self._followed = next(self._numbers)
        subject = f"{self._inbox}.d.{self._followed}"
        self._intake.follow(self._followed, stop_seq=stop_seq, mark_caught_up=mark_caught_up)
        self._feed = SubscriptionFeed(self._intake, self._resume, whole_batches=whole_batches)
        self._on_arrival = on_arrival
        self._write(b"SUB %b %d\r\n" % (subject.encode(), self._followed))
        return subject, self._feed

    @property
    def delivered(self) -> int:
        """Number of deliveries of the followed consumer that were received."""
        return self._intake.delivered

    @property
    def delivered_bytes(self) -> int:
        """Bytes of these deliveries: subjects, headers and payloads."""
        return self._intake.delivered_bytes

    @property
    def last_seq(self) -> int:
        """Stream sequence of the last of these deliveries; 0 if there are none."""
        return self._intake.last_seq

    def unfollow(self) -> None:
        if self._followed:
            with contextlib.suppress(ConnectionLost):
                self._write(b"UNSUB %d\r\n" % self._followed)
        self._followed = 0
        self._intake.follow(0)
        self._intake.take()
        self._feed = self._on_arrival = None
        self._resume()

    async def close(self) -> None:
        """Flush and close; abort after CLOSE_SECONDS if the peer does not read."""
        if self._transport is None:
            return
        self._transport.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.shield(self._closed)
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        """Close at once, without a flush."""
        if self._transport is not None:
            self._transport.abort()

    # -- calls of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._intake.space()

    def buffer_updated(self, nbytes: int) -> None:
        self._intake.filled(nbytes)
        try:
            while (item := self._intake.next()) is not None:
                self._handle_item(item)
        except WireError as error:
            self._fail(str(error))
        if self._feed is not None:
            self._feed.wake()
            if self._on_arrival is not None:
                self._on_arrival()
            if self._feed.is_full and not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = self._error or (str(exc) if exc else "the server closed the connection")
        lost = ConnectionLost(reason)
        for answer in self._answers.values():
            _fail_future(answer, lost)
        _fail_future(self._info_received, lost)
        _fail_future(self._accepted, lost)
        if self._feed is not None:
            self._feed.put(Broken(reason))
            self._feed.wake()
        if not self._closed.done():
            self._closed.set_result(None)

    # -- received messages and control lines

    def _handle_item(self, item: ServerItem) -> None:
        kind = item.kind
        if kind == wire_reader.MESSAGE:
            self._handle_message(item)
        elif kind == wire_reader.PING:
            self._write(PONG)
        elif kind == wire_reader.PONG:
            if not self._accepted.done():
                self._accepted.set_result(None)
        elif kind == wire_reader.INFO:
            self._handle_info(item.payload)
        elif kind == wire_reader.ERROR:
            self._handle_error(item.payload.decode("utf-8", "replace"))
        elif kind != wire_reader.OK:
            self._handle_mark(kind)

    def _handle_message(self, item: ServerItem) -> None:
        if item.sid == ANSWERS_SID:
            token = item.subject.rpartition(".")[2]
            if token in self._rows:
                self._rows[token].append(item)
            waiting = self._answers.get(token)
            if waiting is not None and not waiting.done():
                waiting.set_result(item)
        elif item.sid == self._followed and self._feed is not None:
            self._feed.put(Status.read(item.header, item.reply))

    def _handle_mark(self, kind: int) -> None:
        if self._feed is None:
            self._intake.take()
        elif kind == wire_reader.FULL:
            self._feed.flush()
        elif kind == wire_reader.CAUGHT_UP:
            self._feed.put(CaughtUpMark())
        elif kind == wire_reader.PAST_END:
            self._feed.put(PastEndMark())
        elif kind == wire_reader.GAP:
            expected = self._intake.delivered + 1
            self._feed.put(Broken(f"delivery {self._intake.gap_at} came in place of {expected}"))
        else:
            self._feed.put(Broken("a delivery came without its position"))

    def _handle_info(self, payload: bytes) -> None:
        try:
            info = json.loads(payload)
        except ValueError:
            raise WireError("INFO is not JSON") from None
        self.info = info
        if not self._info_received.done():
            self._info_received.set_result(info)

    def _handle_error(self, text: str) -> None:
        if found := _VIOLATION.search(text):
            self._handle_violation(text, *found.groups())
            return
        self._error = text
        denied = "authorization" in text.lower() or "authentication" in text.lower()
        kind = AccessDenied if denied else ConnectFailed
        _fail_future(self._accepted, kind(f"the server said: {text}"))

    def _handle_violation(self, text: str, act: str, subject: str) -> None:
        """Fail the requests that the violation concerns. The connection stays open.

        Without the subscription to replies no request can succeed, so all of them fail.
        """
        if act.lower() == "subscription" and subject.startswith(f"{self._inbox}.r"):
            self._deaf = text
        for token, answer in self._answers.items():
            if self._deaf or self._asked[token] == subject:
                _fail_future(answer, NotPermitted(text))
        if MSG_NEXT in subject and self._feed is not None:
            self._feed.put(Denied(text))

    def _fail(self, reason: str) -> None:
        self._error = reason
        self.abort()

    # -- writing

    def _publish(self, subject: str, payload: bytes, reply: str = "", header: bytes = b"") -> None:
        sizes = f"{len(header)} {len(header) + len(payload)}" if header else f"{len(payload)}"
        head = f"{'HPUB' if header else 'PUB'} {subject} {reply} {sizes}\r\n"
        self._write(b"%b%b%b\r\n" % (head.encode(), header, payload))

    def _write(self, data: bytes) -> None:
        if self._transport is None or not self.is_open or self._transport.is_closing():
            raise ConnectionLost(self._error or "the connection is closed")
        self._transport.write(data)

    def _resume(self) -> None:
        """Resume reading if it was paused because the feed was full."""
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    # -- handshake

    async def introduce(self, address: Address) -> None:
        """Wait for INFO, start TLS if either side requires it, send CONNECT and wait for PONG."""
        info = await asyncio.shield(self._info_received)
        secured = self._dialling.tls_first
        if not secured and (address.tls or info.get("tls_required") or self._dialling.tls):
            await self._secure(address)
        line = connect_line(self._dialling.credentials, info.get("nonce", ""), self._dialling.name)
        answers = b"SUB %b.r.* %d\r\n" % (self._inbox.encode(), ANSWERS_SID)
        self._write(line + PING + answers)
        await asyncio.shield(self._accepted)

    async def _secure(self, address: Address) -> None:
        assert self._transport is not None
        context = self._dialling.tls or ssl.create_default_context()
        loop = asyncio.get_running_loop()
        secured = await loop.start_tls(self._transport, self, context, server_hostname=address.host)
        if secured is None:
            raise ConnectFailed("the connection ended during the TLS handshake")
        self._transport = secured


async def open_link(dialling: ConnectSettings) -> BulkConnection:
    """Open a connection to the first server that accepts it."""
    return await open_as(BulkConnection, dialling)


async def open_as(kind: Callable[[ConnectSettings], L], dialling: ConnectSettings) -> L:
    """Do the same for a subclass of `BulkConnection`."""
    failures: list[str] = []
    for address in dialling.addresses:
        try:
            async with asyncio.timeout(dialling.connect_seconds):
                return await _open_one(kind, dialling, address)
        except AccessDenied:
            raise
        except TimeoutError:
            failures.append(f"{address}: no answer within {dialling.connect_seconds} s")
        except (OSError, ConnectionLost, ConnectFailed) as error:
            failures.append(f"{address}: {error}")
    raise ConnectFailed("; ".join(failures))


async def _open_one(
    kind: Callable[[ConnectSettings], L], dialling: ConnectSettings, address: Address
) -> L:
    loop = asyncio.get_running_loop()
    link = kind(dialling)
    context: ssl.SSLContext | None = None
    if dialling.tls_first:
        context = dialling.tls or ssl.create_default_context()
    await loop.create_connection(
        lambda: link,
        address.host,
        address.port,
        ssl=context,
        server_hostname=address.host if context is not None else None,
    )
    try:
        await link.introduce(address)
    except BaseException:
        await link.close()
        raise
    return link


def _fail_future(future: asyncio.Future[Any], error: Exception) -> None:
    """Set the error on the future; suppress the warning if no task awaits it."""
    if not future.done():
        future.set_exception(error)
        future.exception()
