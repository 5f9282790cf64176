"""Performs effects: the only path from a state machine's decision to subscribers.

Nothing is flushed here; the caller flushes once for all effects of a turn. An advisory without
subscribers is not even encoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api.advisories import stamp
from penstock.base.effects import Advise, Deliver, Send

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.base.effects import Effect
    from penstock.server.net.io_loop import IoLoop
    from penstock.subjects.trie import SubList


class Performer:
    """Performs the effects of one account's streams and consumers."""

    def __init__(
        self,
        io_loop: IoLoop,
        interest: SubList,
        *,
        nuid: Callable[[], str],
        now_ns: Callable[[], int],
        domain: str,
    ) -> None:
        self._io_loop = io_loop
        self._interest = interest
        self._nuid = nuid
        self._now_ns = now_ns
        self._domain = domain

    def perform(self, effects: Iterable[Effect]) -> None:
        post, interest = self._io_loop.post, self._interest
        for effect in effects:
            # type() is faster than isinstance(), and this runs per message.
            kind = type(effect)
            if kind is Deliver:
                to, subject, reply, header, payload = effect  # type: ignore[misc]
                post(interest, subject, payload, reply, header, to)
            elif kind is Send:
                subject, payload, header, reply = effect  # type: ignore[misc]
                post(interest, subject, payload, reply, header)
            elif isinstance(effect, Advise):
                self.advise(effect)

    def advise(self, advice: Advise) -> None:
        """Publish an advisory if it has subscribers."""
        if self._interest.has_interest(advice.subject):
            event = stamp(
                advice.event, id=self._nuid(), timestamp_ns=self._now_ns(), domain=self._domain
            )
            self._io_loop.post(self._interest, advice.subject, event)
