"""The consumers of one stream that may have something to deliver.

The host reports stored messages: one by one if the stream planned them, or only as "there are more"
if the publish lane stored them. Consumers hear of a message once it is visible. Invariant:
consumers that deliver through a compiled lane are kept apart, so that their deliveries do not
overtake effects decided earlier. `StreamHost` calls `announce`, then `take_ready`, then
`take_direct`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.jetstream.consumers.consumer import Consumer
    from penstock.store.contract import Store


class Wakeups:
    """The consumers of one stream to wake next; the host owns `consumers` and changes it."""

    def __init__(self, consumers: dict[str, Consumer]) -> None:
        self._consumers = consumers
        self._fresh: deque[tuple[int, str]] = deque()  # stored, not yet visible
        self._is_taken = False  # the lane stored messages that are not all visible yet
        self._ready: set[str] = set()
        self._direct: set[str] = set()  # woken consumers that deliver through a compiled lane

    @property
    def is_busy(self) -> bool:
        """Whether `take_ready` has a consumer to wake."""
        return bool(self._ready)

    @property
    def is_idle(self) -> bool:
        """Whether no consumer is to be woken and no message of `stored` waits to become visible."""
        return not (self._ready or self._direct or self._fresh)

    def add(self, name: str) -> None:
        self._ready.add(name)

    def add_all(self) -> None:
        self._ready.update(self._consumers)

    def forget(self, name: str) -> None:
        self._ready.discard(name)
        self._direct.discard(name)

    def stored(self, messages: Iterable[tuple[int, str]]) -> None:
        """Record sequences and subjects that will become visible."""
        self._fresh.extend(messages)

    def taken(self) -> None:
        """Record that the lane stored messages; consumers look up which."""
        self._is_taken = True

    def announce(self, store: Store, now_ns: int) -> None:
        """Pass newly visible messages to the consumers."""
        if not (self._fresh or self._is_taken):
            return
        fresh, visible = self._fresh, store.visible_seq
        if self._is_taken:
            self._is_taken = visible < store.last_seq
            while fresh and fresh[0][0] <= visible:
                fresh.popleft()
            for consumer in self._consumers.values():
                if consumer.stored_some():
                    self._ready.add(consumer.name)
            return
        while fresh and fresh[0][0] <= visible:
            seq, subject = fresh.popleft()
            for consumer in self._consumers.values():
                if consumer.stored(seq, subject, now_ns):
                    self._ready.add(consumer.name)

    def take_ready(self) -> Iterator[Consumer]:
        """Yield the woken consumers without a compiled lane; keep the others for `take_direct`."""
        ready, self._ready = self._ready, set()
        for name in ready:
            consumer = self._consumers.get(name)
            if consumer is None:
                continue
            if consumer.has_lane:
                self._direct.add(name)
            else:
                yield consumer

    def take_direct(self) -> Consumer | None:
        """Return one consumer that delivers straight into outboxes; None if there is none."""
        while self._direct:
            consumer = self._consumers.get(self._direct.pop())
            if consumer is not None:
                return consumer
        return None
