"""Range read with a pull consumer that requests messages only up to the end of the range.

A push consumer sends as fast as flow control allows, and sends far more than a short range holds
before its reader can stop it. Here the server sends what was requested (`PullWindow`) and stops.
Everything else works as in `OrderedConsumer`: the consumer is recreated when it breaks, and reading
continues after `position`.

The number of messages in a range with gaps or filters is the difference of two counts: what a
consumer that starts at the range has to deliver, and what one that starts after it has to deliver.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from penstock.base.units import SECOND_NS
from penstock.bulk.errors import BulkError, ConnectionLost
from penstock.bulk.ordered_consumer import DELETE_SECONDS, IDLE_CODE, OrderedConsumer
from penstock.bulk.pull_window import REQUEST_BYTES_MAX, PullWindow

if TYPE_CHECKING:
    from penstock.bulk.bulk_connection import BulkConnection
    from penstock.bulk.ordered_consumer import Event
    from penstock.bulk.subscription_feed import Status, SubscriptionFeed

#: Lifetime of a request; the server then ends it and the reader sends another.
REQUEST_SECONDS: Final = 30.0
#: Limit for a slow reader: nothing more is requested while this many bytes wait for it.
WAITING_BYTES_MAX: Final = 16 << 20
#: Approximate size of a delivery without its payload.
HEADERS_ONLY_BYTES: Final = 200.0
NO_MESSAGES, REQUEST_TIMEOUT, CONFLICT = 404, 408, 409
#: Texts of status 409 that end one request but not the consumer.
REQUEST_ENDS: Final = ("batch completed", "message size exceeds maxbytes", "exceeded maxrequest")
PENDING: Final = b"Nats-Pending-Messages"


class PulledRange(OrderedConsumer):
    """`OrderedConsumer` up to `stop_seq`. `mean_bytes` and `last_seq` are those of the stream."""

    def __init__(self, *args: Any, mean_bytes: float, last_seq: int, **more: Any) -> None:
        super().__init__(*args, whole_batches=True, **more)
        self._mean_bytes = mean_bytes
        self._last_seq = last_seq
        self._window: PullWindow | None = None
        self._inbox = ""
        self._is_oversized = False

    # -- start

    def _subscribe(self, link: BulkConnection) -> tuple[str, SubscriptionFeed]:
        self._inbox, feed = link.follow(
            stop_seq=self._stop_seq,
            mark_caught_up=True,
            whole_batches=True,
            on_arrival=self._arrived,
        )
        self._window = None
        return "", feed

    async def _begin(self) -> None:
        await super()._begin()
        link = await self._connected()
        before = self.position
        if before is None:
            before = (self._selection.start_seq or 1) - 1
        expected = await self._expected(link, before)
        mean = HEADERS_ONLY_BYTES if self._selection.headers_only else self._mean_bytes
        self._window = PullWindow(self._stop_seq, before, expected, mean)
        self._request()

    async def _expected(self, link: BulkConnection, before: int) -> int:
        """Return the number of messages between `before` and the end of the range."""
        in_range = self._stop_seq - before
        if self._initial >= self._last_seq - before:
            return in_range  # no sequence is missing from there to the end of the stream
        if self._stop_seq >= self._last_seq:
            return min(in_range, self._initial)
        after = replace(self._selection, start_seq=self._stop_seq + 1)
        name = self._selection.name_prefix + secrets.token_hex(8)
        try:
            behind = await self._questions.create_consumer(link, self._stream, name, "", after)
            await self._questions.delete_consumer(link, self._stream, name, DELETE_SECONDS)
        except ConnectionLost:
            raise
        except BulkError:
            return 0  # small probing requests find the number
        return max(0, min(in_range, self._initial - behind))

    # -- requests

    def _arrived(self) -> None:
        """Update the window after a read from the socket, and request more."""
        link, window = self._link, self._window
        if link is not None and window is not None:
            window.arrived(link.delivered, link.last_seq, link.delivered_bytes)
            self._request()

    def _request(self) -> None:
        link, window, feed = self._link, self._window, self._feed
        if link is None or window is None or feed is None or feed.byte_count > WAITING_BYTES_MAX:
            return
        while count := window.next_request():
            body: dict[str, Any] = {
                "batch": count,
                "expires": round(REQUEST_SECONDS * SECOND_NS),
                "idle_heartbeat": round(self._selection.heartbeat * SECOND_NS),
                "max_bytes": REQUEST_BYTES_MAX,
            }
            if window.is_probing:
                body = {"batch": count, "no_wait": True}
            elif self._is_oversized:
                del body["max_bytes"]
                window.returned(count - 1)
                body["batch"], self._is_oversized = 1, False
            subject = f"{self._questions.prefix}.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
            with contextlib.suppress(ConnectionLost):
                link.publish(subject, json.dumps(body).encode(), reply=self._inbox)

    # -- received items

    async def next(self) -> Event:
        self._request()  # the reader took an item, so the window may have room
        event = await super().next()
        self._request()
        return event

    def _event_of_status(self, status: Status) -> Event | None:
        text = status.text.lower()
        if status.code == IDLE_CODE:
            return super()._event_of_status(status)
        if status.code == NO_MESSAGES:
            return self._caught_up()
        is_end = status.code == CONFLICT and text.startswith(REQUEST_ENDS)
        if self._window is None or not (is_end or status.code == REQUEST_TIMEOUT):
            return super()._event_of_status(status)
        self._is_oversized = "size exceeds" in text and self._window.in_flight > 0
        self._window.returned(max(0, status.number(PENDING)))
        self._request()
        return None
