"""The pinned client of a consumer: the only client served until it times out or is unpinned.

The pinned client learns its pin id from the messages and sends it in its next requests. One
priority group is in effect at a time, as in the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.base.effects import Effect
    from penstock.jetstream.consumers.consumer_advisories import Events


class Pin:
    """The pin of one consumer. `id` is empty while no client is pinned."""

    __slots__ = ("_events", "_group", "_nuid", "id", "since_ns", "until_ns")

    def __init__(self, events: Events, nuid: Callable[[], str]) -> None:
        self._events = events
        self._nuid = nuid
        self._group = ""
        self.id = ""
        self.since_ns = 0
        self.until_ns: int | None = None

    def assign(self, group: str, timeout_ns: int, now_ns: int, out: list[Effect]) -> str:
        """Pin the client of the current request; return its new pin id."""
        self._group = group
        self.id = self._nuid()
        self.since_ns = now_ns
        self.until_ns = now_ns + timeout_ns
        out.append(self._events.pinned(group, self.id))
        return self.id

    def prolong(self, timeout_ns: int, now_ns: int) -> None:
        """Extend the pin: the pinned client sent a request."""
        self.until_ns = now_ns + timeout_ns

    def release(self) -> None:
        """Remove the pin."""
        self.id = ""
        self.since_ns = 0
        self.until_ns = None

    def expire(self, now_ns: int, out: list[Effect]) -> None:
        """Remove the pin of a client that was idle too long."""
        if self.until_ns is not None and now_ns >= self.until_ns:
            self.release()
            out.append(self._events.unpinned(self._group, "timeout"))
