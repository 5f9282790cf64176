"""Which client is pinned: the only one served until it is silent too long or set free.

Whoever is pinned learns its id from the messages and shows it in its next requests. One group is
in effect at a time, as in the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.base.effects import Effect
    from penstock.jetstream.consumers.consumer_advisories import Events


class Pin:
    """The pin of one consumer. `id` is empty while nobody is pinned."""

    __slots__ = ("_events", "_group", "_nuid", "id", "since_ns", "until_ns")

    def __init__(self, events: Events, nuid: Callable[[], str]) -> None:
        self._events = events
        self._nuid = nuid
        self._group = ""
        self.id = ""
        self.since_ns = 0
        self.until_ns: int | None = None

    def assign(self, group: str, timeout_ns: int, now_ns: int, out: list[Effect]) -> str:
        """Pin whoever asked; its new id."""
        self._group = group
        self.id = self._nuid()
        self.since_ns = now_ns
        self.until_ns = now_ns + timeout_ns
        out.append(self._events.pinned(group, self.id))
        return self.id

    def prolong(self, timeout_ns: int, now_ns: int) -> None:
        """The pinned client showed itself."""
        self.until_ns = now_ns + timeout_ns

    def release(self) -> None:
        """Nobody is pinned."""
        self.id = ""
        self.since_ns = 0
        self.until_ns = None

    def expire(self, now_ns: int, out: list[Effect]) -> None:
        """Set free who was silent too long."""
        if self.until_ns is not None and now_ns >= self.until_ns:
            self.release()
            out.append(self._events.unpinned(self._group, "timeout"))
