"""What a followed subscription brings, in order: batches of records, and what was said in between.

A feed holds what its reader has not taken yet. Flow control bounds that from the server's side,
since an answer is due only when its place in the order is reached; `FEED_BYTES_MAX` bounds it from
ours, whatever the server does.
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

#: Beyond this the socket is not read: twice what a server sends before flow control stops it.
FEED_BYTES_MAX: Final = 64 << 20
#: What anything but a batch counts for.
STATUS_BYTES: Final = 256

_STATUS_AT: Final = len("NATS/1.0 ")
_STATUS_DIGITS: Final = 3


@dataclass(frozen=True, slots=True)
class Status:
    """A message of the server about the delivery: heartbeat, flow control, or its end."""

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
        """A number among the headers, -1 if it is not there."""
        value = headers.get(self.header, key)
        return int(value) if value is not None and value.isdigit() else -1

    def word(self, key: bytes) -> str:
        return (headers.get(self.header, key) or b"").decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class CaughtUpMark:
    """The record in front of this one had nothing pending behind it."""


@dataclass(frozen=True, slots=True)
class PastEndMark:
    """The stream went on beyond the last sequence wanted."""


@dataclass(frozen=True, slots=True)
class Broken:
    """Nothing more will come: a gap in the consumer's sequence, or the connection is gone."""

    reason: str


@dataclass(frozen=True, slots=True)
class Denied:
    """The server does not let us ask for messages."""

    reason: str


Item = Batch | Status | CaughtUpMark | PastEndMark | Broken | Denied


class SubscriptionFeed:
    """A queue with one reader; `on_room` is called when there is room again.

    A watch wants records as soon as there are some. A read that ends wants few large batches, since
    each costs its reader the same whatever is in it: with `whole_batches` records are handed on
    when a batch is full, when anything comes behind them, or when nothing does for as long as the
    reader waits.
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
        """What waits for the reader."""
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
        """Behind everything gathered so far."""
        self.flush()
        self._byte_count += _weight(item)
        self._items.append(item)

    def flush(self) -> None:
        """Queue what is gathered, since there is no room for more or something comes behind."""
        if self._intake.gathered:
            batch = self._intake.take()
            self._byte_count += _weight(batch)
            self._items.append(batch)

    def wake(self) -> None:
        """Tell the reader, if it waits and there is something for it."""
        if self._waiter is not None and self._has_some:
            waiter, self._waiter = self._waiter, None
            if not waiter.done():
                waiter.set_result(None)

    async def next(self, seconds: float) -> Item:
        """The next item; TimeoutError if none came in time."""
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
