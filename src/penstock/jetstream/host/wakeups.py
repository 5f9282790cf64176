"""Which consumers of a stream may have something to deliver.

Messages that were stored are passed on when they are visible: one by one where the stream knows
them, or as "there is more" where the fast lane stored them. Consumers that deliver through a
compiled lane are set apart, for they must not overtake what was decided before.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.jetstream.consumers.consumer import Consumer
    from penstock.store.contract import Store


class Waking:
    """The consumers of one stream that are to be woken; who they are is the host's to say."""

    def __init__(self, consumers: dict[str, Consumer]) -> None:
        self._consumers = consumers
        self._fresh: deque[tuple[int, str]] = deque()  # stored, not yet visible
        self._is_taken = False  # by the fast lane, and not all of it visible yet
        self._ready: set[str] = set()
        self._direct: set[str] = set()  # those of them that use a compiled lane

    @property
    def is_busy(self) -> bool:
        """Whether some consumer is to be woken in the next turn."""
        return bool(self._ready)

    @property
    def is_idle(self) -> bool:
        """Whether nobody is to be woken, and nothing will be visible that somebody waits for."""
        return not (self._ready or self._direct or self._fresh)

    def add(self, name: str) -> None:
        self._ready.add(name)

    def add_all(self) -> None:
        self._ready.update(self._consumers)

    def forget(self, name: str) -> None:
        self._ready.discard(name)
        self._direct.discard(name)

    def stored(self, messages: Iterable[tuple[int, str]]) -> None:
        """Sequences and subjects that will be visible."""
        self._fresh.extend(messages)

    def taken(self) -> None:
        """The fast lane stored some. It does not say what; consumers look for themselves."""
        self._is_taken = True

    def announce(self, store: Store, now_ns: int) -> None:
        """Tells consumers what has become visible."""
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
        """Those that decide for themselves; the others are for `take_direct`."""
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
        """One that delivers into outboxes at once."""
        while self._direct:
            consumer = self._consumers.get(self._direct.pop())
            if consumer is not None:
                return consumer
        return None
