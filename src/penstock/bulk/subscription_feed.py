"""Queue of what a followed subscription delivers: batches of records, and statuses in between.

The feed holds the items its reader has not taken yet, in wire order. The server bounds it by flow
control, because the reader acknowledges a flow control request only when it reaches it in the
queue; `FEED_BYTES_MAX` bounds it on the client side, whatever the server does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.bulk.record_batch import Batch
from penstock.wire import headers

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.bulk.wire_reader import WireReader

#: Above this the socket is not read: twice what a server sends before flow control stops it.
FEED_BYTES_MAX: Final = 64 << 20
#: Size that every item except a batch counts for.
STATUS_BYTES: Final = 256

_STATUS_AT: Final = len("NATS/1.0 ")
_STATUS_DIGITS: Final = 3


@dataclass(frozen=True, slots=True)
class Status:
    """A status message about the delivery: heartbeat, flow control, or end."""

    code: int
    text: str
    reply: str
    header: bytes

    @classmethod
    def read(cls, header: bytes, reply: str) -> Status:
        line = header.partition(b"\r\n")[0][_STATUS_AT:].decode("utf-8", "replace")
        digits = line[:_STATUS_DIGITS]
        code = int(digits) if digits.isascii() and digits.isdigit() else 0
        return cls(code, line[_STATUS_DIGITS:].strip(), reply, header)

    def number(self, key: bytes) -> int:
        """Return a numeric header; -1 if it is missing."""
        value = headers.get(self.header, key)
        return int(value) if value is not None and value.isdigit() else -1

    def word(self, key: bytes) -> str:
        return (headers.get(self.header, key) or b"").decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class CaughtUpMark:
    """The record before this mark had nothing pending after it."""


@dataclass(frozen=True, slots=True)
class PastEndMark:
    """The stream continues after the last sequence wanted."""


@dataclass(frozen=True, slots=True)
class Broken:
    """Nothing more will arrive: the consumer sequence has a gap, or the connection is lost."""

    reason: str


@dataclass(frozen=True, slots=True)
class Denied:
    """The server does not permit requests for messages."""

    reason: str


Item = Batch | Status | CaughtUpMark | PastEndMark | Broken | Denied


class SubscriptionFeed:
    """Queue with one reader; calls `on_room` when there is room again.

    A watch needs records as soon as they arrive. A range read needs few large batches, because the
    cost per batch is constant. With `whole_batches` the feed returns records when a batch is full,
    when another item follows them, or when the reader's timeout expires.
    """

    def __init__(
        self, intake: WireReader, on_room: Callable[[], None], *, whole_batches: bool = False
    ) -> None:
        self._intake = intake
        self._on_room = on_room
        self._whole_batches = whole_batches
        self._items: deque[Item] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._byte_count = 0

    @property
    def byte_count(self) -> int:
        """Bytes waiting for the reader."""
        return self._byte_count

    @property
    def is_full(self) -> bool:
        return self._byte_count >= FEED_BYTES_MAX

    @property
    def has_records(self) -> bool:
        return bool(self._intake.gathered) or any(isinstance(one, Batch) for one in self._items)

    @property
    def _has_some(self) -> bool:
        return bool(self._items) or (not self._whole_batches and bool(self._intake.gathered))

    def put(self, item: Item) -> None:
        """Append an item after everything gathered so far."""
        self.flush()
        self._byte_count += _weight(item)
        self._items.append(item)

    def flush(self) -> None:
        """Queue the gathered records: the batch is full, or another item follows."""
        if self._intake.gathered:
            batch = self._intake.take()
            self._byte_count += _weight(batch)
            self._items.append(batch)

    def wake(self) -> None:
        """Wake the reader if it waits and an item is available."""
        if self._waiter is not None and self._has_some:
            waiter, self._waiter = self._waiter, None
            if not waiter.done():
                waiter.set_result(None)

    async def next(self, seconds: float) -> Item:
        """Return the next item; raises TimeoutError if none arrives in time."""
        if not self._has_some:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(seconds):
                    await self._waiter
            except TimeoutError:
                if not self._intake.gathered:
                    raise
            finally:
                self._waiter = None
        if not self._items:
            return self._intake.take()
        item = self._items.popleft()
        self._byte_count -= _weight(item)
        if not self.is_full:
            self._on_room()
        return item


def _weight(item: Item) -> int:
    return item.byte_count if isinstance(item, Batch) else STATUS_BYTES
