"""Queue of waiting pull requests, in the order in which they are served.

Requests take turns, one message each: a served request moves to the end, or, with priorities, to
the end of its priority. The consumer's `max_waiting` and PULLS_WAITING_MAX bound the queue. The
queue knows its next event time; it makes no decisions about messages.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from penstock.api.pull_request import PRIORITY_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.api.pull_request import PullRequest

PULLS_WAITING_MAX: Final = 10_000
"""Waiting requests of a consumer, whatever its `max_waiting`: sweeps look at each of them."""
WITHOUT_PRIORITY: Final = PRIORITY_MAX + 1
"""The priority lane of requests without a priority."""


class Waiting:
    """One request and what remains of it."""

    __slots__ = (
        "bytes_left",
        "expires_ns",
        "given",
        "heartbeat_ns",
        "left",
        "listened_ns",
        "next_heartbeat_ns",
        "no_wait",
        "pin_id",
        "reply",
        "request",
    )

    def __init__(self, reply: str, request: PullRequest, now_ns: int) -> None:
        self.reply = reply
        self.request = request
        self.left = request.batch
        self.bytes_left = request.max_bytes
        self.given = 0
        self.listened_ns = 0
        """When a subscriber of its reply subject was last seen."""
        self.no_wait = request.no_wait
        self.pin_id = request.id
        self.expires_ns = now_ns + request.expires if request.expires else 0
        self.heartbeat_ns = max(request.idle_heartbeat, 0)
        self.next_heartbeat_ns = now_ns + self.heartbeat_ns if self.heartbeat_ns else 0

    def is_over(self, now_ns: int) -> bool:
        """Return whether the request has expired."""
        return self.expires_ns > 0 and now_ns >= self.expires_ns

    def is_ready(self, now_ns: int) -> bool:
        """Return whether it takes a message without further checks: interest was checked this turn,
        and it has no byte limit and no heartbeat."""
        return (
            self.listened_ns == now_ns
            and not self.bytes_left
            and not self.heartbeat_ns
            and (not self.expires_ns or now_ns < self.expires_ns)
        )

    def next_event_ns(self) -> int | None:
        """Return when it needs a status if no message comes before."""
        times = [at_ns for at_ns in (self.expires_ns, self.next_heartbeat_ns) if at_ns]
        return min(times, default=None)


class WaitingQueue:
    """The requests of one consumer. With `prioritized` lower numbers are served first."""

    __slots__ = ("_lanes", "_size", "next_event_ns", "no_waits", "size_max")

    def __init__(self, size_max: int, *, prioritized: bool) -> None:
        self.size_max = min(size_max, PULLS_WAITING_MAX)
        self._lanes: tuple[deque[Waiting], ...] = tuple(
            deque() for _ in range(WITHOUT_PRIORITY + 1 if prioritized else 1)
        )
        self._size = 0
        self.no_waits = 0
        """Number of no-wait requests."""
        self.next_event_ns: int | None = None
        """No request needs a status before this time."""

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Waiting]:
        for lane in self._lanes:
            yield from lane

    @property
    def is_full(self) -> bool:
        """Return whether the queue is full."""
        return self._size >= self.size_max

    def add(self, waiting: Waiting) -> None:
        """Append a request to its lane."""
        self._lane_of(waiting).append(waiting)
        self._size += 1
        self.no_waits += waiting.no_wait
        self._note_event(waiting)

    def head(self) -> Waiting | None:
        """Return the request to serve next."""
        for lane in self._lanes:
            if lane:
                return lane[0]
        return None

    def cycle(self) -> None:
        """Move the head to the end of its lane, unserved."""
        for lane in self._lanes:
            if lane:
                lane.rotate(-1)
                return

    def serve(self, waiting: Waiting) -> None:
        """Count a message for the head: move it to the end of its lane, or remove it if
        complete."""
        waiting.given += 1
        waiting.left -= 1
        if waiting.left <= 0:
            self.drop_head()
        elif self._size > 1:
            self._lane_of(waiting).rotate(-1)

    def drop_head(self) -> None:
        """Remove the head."""
        for lane in self._lanes:
            if lane:
                self._forget(lane.popleft())
                return

    def keep_only(self, kept: list[Waiting]) -> None:
        """Keep only these requests, in this order."""
        for lane in self._lanes:
            lane.clear()
        self._size = self.no_waits = 0
        self.next_event_ns = None
        for waiting in kept:
            self.add(waiting)

    def _forget(self, waiting: Waiting) -> None:
        self._size -= 1
        self.no_waits -= waiting.no_wait
        if not self._size:
            self.next_event_ns = None

    def _lane_of(self, waiting: Waiting) -> deque[Waiting]:
        if len(self._lanes) == 1:
            return self._lanes[0]
        request = waiting.request
        return self._lanes[request.priority if request.formal else WITHOUT_PRIORITY]

    def _note_event(self, waiting: Waiting) -> None:
        at_ns = waiting.next_event_ns()
        if at_ns is not None and (self.next_event_ns is None or at_ns < self.next_event_ns):
            self.next_event_ns = at_ns
