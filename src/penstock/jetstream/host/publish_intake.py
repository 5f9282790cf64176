"""Takes published messages of one stream: plans each in order, and queues those that must wait.

A message waits while a block that its plan needs is not in memory, or while its plan depends on
entries that are proposed and not applied. Invariant: messages are planned in the order of arrival;
while one waits, all later ones wait behind it. `StreamHost` calls `publish`, and `resume` when a
block was loaded or an entry was applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api import refusals
from penstock.base.effects import Fetch, Send
from penstock.jetstream.host.publish_queue import TOO_MANY_HEADER, PublishQueue
from penstock.jetstream.streams.entries import Answer, NotApplied, NotLoaded
from penstock.jetstream.streams.pubacks import PubAcks
from penstock.store.errors import StoreError

if TYPE_CHECKING:
    from penstock.api.refusals import ApiError
    from penstock.base.message import Inbound
    from penstock.jetstream.host.stream_host import StreamHost
    from penstock.jetstream.streams.entries import PlanNote


class PublishIntake:
    """The messages that arrive at one stream."""

    __slots__ = ("_host", "_queue", "is_held", "is_open")

    def __init__(self, host: StreamHost) -> None:
        self._host = host
        self._queue = PublishQueue()
        self.is_held = False
        """Whether messages wait until the entries in flight are applied."""
        self.is_open = True
        """Whether this server takes messages: it leads the stream."""

    def __bool__(self) -> bool:
        """Whether messages wait."""
        return bool(self._queue)

    def publish(self, msg: Inbound, now_ns: int, note: PlanNote | None = None) -> None:
        """Plan and propose a message, or queue or refuse it."""
        if self._queue or self.is_held or not self.is_open:
            if self.is_open and not self._queue.add(msg):
                self.refuse(msg.reply, refusals.STREAM_TOO_MANY_REQUESTS, TOO_MANY_HEADER)
            return
        self._host.collect_lane_results()
        self._plan(msg, now_ns, note)

    def resume(self, now_ns: int) -> None:
        """Plan the messages that wait, as far as possible."""
        while self._queue and not self.is_held and self._plan(self._queue.take(), now_ns):
            continue

    def _plan(self, msg: Inbound, now_ns: int, note: PlanNote | None = None) -> bool:
        """Plan one message; return False if it must wait."""
        host = self._host
        hindrance = host.hindrance
        if hindrance is not None:
            self.refuse(msg.reply, refusals.STREAM_STORE_FAILED(err=str(hindrance)))
            return True
        try:
            planned = host.stream.plan(msg, now_ns)
        except StoreError as error:
            host.broken(error)
            self.refuse(msg.reply, refusals.STREAM_STORE_FAILED(err=str(error)))
            return True
        if note is not None:
            note(planned)
        if isinstance(planned, Answer):
            host.promise(planned.effects)
        elif isinstance(planned, NotLoaded):
            self._wait(msg)
            host.send((Fetch(planned.cold),))
            return False
        elif isinstance(planned, NotApplied):
            self._wait(msg)
            return False
        else:
            host.proposals.propose(planned)
        return True

    def _wait(self, msg: Inbound) -> None:
        self._queue.put_back(msg)
        self._host.open_lane()  # the lane stays closed while the queue is not empty

    def refuse(self, reply: str, why: ApiError, header: bytes = b"") -> None:
        """Reply to a publisher that its message is not stored."""
        if reply:
            self._host.send((Send(reply, PubAcks(self._host.name).refused(why), header),))

    def stop(self) -> None:
        """Drop all messages from now on, without a reply: this server does not lead."""
        self.is_open = self.is_held = False
        self._queue = PublishQueue()

    def refuse_all(self, why: ApiError) -> None:
        """Refuse the messages that wait."""
        while self._queue:
            self.refuse(self._queue.take().reply, why)
