"""The consumers of one stream that may have something to deliver.

The host reports stored messages: one by one if the stream planned them, or only as "there are more"
if the publish lane stored them. Consumers hear of a message once it is visible. Invariant:
consumers that deliver through a compiled lane are kept apart, so that their deliveries do not
overtake effects decided earlier. `StreamHost` calls `announce`, then `take_ready`, then
`take_direct`.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.jetstream.consumers.consumer import Consumer
    from penstock.store.contract import Store


WAKES_AT_ONCE: Final = 256
"""Consumers of a stream that are woken before other work is served."""
REPORTS_MAX: Final = 4_096
"""Reports of single messages to single consumers per call. With more, the consumers look up the
messages, as they do after the lane stored some."""


class Wakeups:
    """The consumers of one stream to wake next; the host owns `consumers` and changes it."""

    def __init__(self, consumers: dict[str, Consumer]) -> None:
        self._consumers = consumers
        self._fresh: deque[tuple[int, str]] = deque()  # stored, not yet visible
        self._is_taken = False  # the lane stored messages that are not all visible yet
        self._ready: dict[str, None] = {}
        self._direct: dict[str, None] = {}  # woken consumers with a compiled lane, in order

    @property
    def is_busy(self) -> bool:
        """Whether `take_ready` has a consumer to wake."""
        return bool(self._ready)

    @property
    def has_direct(self) -> bool:
        """Whether `take_direct` has a consumer to wake."""
        return bool(self._direct)

    @property
    def is_idle(self) -> bool:
        """Whether no consumer is to be woken and no message of `stored` waits to become visible."""
        return not (self._ready or self._direct or self._fresh)

    def add(self, name: str) -> None:
        self._ready[name] = None

    def add_all(self) -> None:
        self._ready.update(dict.fromkeys(self._consumers))

    def forget(self, name: str) -> None:
        self._ready.pop(name, None)
        self._direct.pop(name, None)

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
        if len(fresh) * len(self._consumers) > REPORTS_MAX:
            self._is_taken = True
        if self._is_taken:
            self._is_taken = visible < store.last_seq
            while fresh and fresh[0][0] <= visible:
                fresh.popleft()
            for consumer in self._consumers.values():
                if consumer.stored_some():
                    self._ready[consumer.name] = None
            return
        while fresh and fresh[0][0] <= visible:
            seq, subject = fresh.popleft()
            for consumer in self._consumers.values():
                if consumer.stored(seq, subject, now_ns):
                    self._ready[consumer.name] = None

    def take_ready(self) -> Iterator[Consumer]:
        """Yield woken consumers without a compiled lane; keep the others for `take_direct`.

        Takes WAKES_AT_ONCE consumers at most; the rest stay, in order.
        """
        for name in list(itertools.islice(self._ready, WAKES_AT_ONCE)):
            self._ready.pop(name, None)
            consumer = self._consumers.get(name)
            if consumer is None:
                continue
            if consumer.has_lane:
                self._direct[name] = None
            else:
                yield consumer

    def take_direct(self) -> Consumer | None:
        """Return one consumer that delivers straight into outboxes; None if there is none."""
        while self._direct:
            name = next(iter(self._direct))
            del self._direct[name]
            consumer = self._consumers.get(name)
            if consumer is not None:
                return consumer
        return None
