"""A consumer with its compiled lane, on a stage that shows what it sends as if it were effects.

The lane writes to subscribers; here they are callbacks of a plane without sockets, one for each
subject that may be delivered to. What they are called with becomes `Deliver`, in its place among
the effects, so that a script can be compared with the same script on a stage without lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.base.effects import Deliver
from penstock.broker.router import LaneListener, Router
from penstock.jetstream.consumers.ack_lane import AckLane
from penstock.jetstream.consumers.consumer_context import Outlet
from penstock.server.net.io_loop import IoLoop
from penstock.subjects.trie import SubList, Subscription
from support.consumer_stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.api.consumer_config import ConsumerConfig
    from penstock.base.effects import Effect

REPLIES = ("in", "r", "r1", "r2", "r3")


class Left(LaneListener):
    """Collects the subjects of the acks that the lane leaves."""

    def __init__(self, subjects: list[str]) -> None:
        self._subjects = subjects

    def received(self, subject: str, *_: object) -> None:
        self._subjects.append(subject)


class LaneSubscribers:
    """Those who get what the lane sends."""

    def __init__(self, names: Iterable[str]) -> None:
        router = Router(seed=1)
        interest = SubList()
        self.outlet = Outlet(router, interest)
        self._armed: list[Callable[[], None]] = []
        self._io_loop = IoLoop(
            router=router, arm=lambda _, call: self._armed.append(call), write_deadline_ns=10**10
        )
        self._io_loop.add_interest(interest)
        self._got: list[Effect] = []
        self.refused: list[str] = []
        self.acks = AckLane(listener=Left(self.refused), scope="_.hash")
        self.acks.open("S", "C")
        interest.insert(Subscription("$JS.ACK.>", value=self.acks), call=True, lane=True)
        for name in names:
            interest.insert(Subscription(name, value=self._receiver(name)), call=True)

    def _receiver(self, name: str) -> Any:
        def receive(subject: str, reply: str, header: bytes, payload: bytes, _: object) -> None:
            self._got.append(Deliver(name, subject, reply, header, payload))

        return receive

    def acknowledge(
        self, subject: str, payload: bytes = b"+ACK", reply: str = "", header: bytes = b""
    ) -> None:
        """Publish an ack; the lane has it, or its subject is in `refused`."""
        router, interest = self.outlet
        self._io_loop.publish(interest, subject, payload, reply=reply, header=header)
        router.take_lanes()

    def collected(self) -> list[tuple[int, int, int]]:
        """What the lane has taken since the last call."""
        return [span for box in self.acks.take_filled() for span in box.take()]

    def take(self) -> list[Effect]:
        """What they got since the last call, also what a turn that ran out of time has left."""
        self._io_loop.flush_and_close()
        while self._armed:
            self._armed.pop()()
        got, self._got = self._got, []
        return got


class LaneStage(Stage):
    """A stage that wakes its consumer as the edge does: directly, when all else has left."""

    def __init__(self, cfg: ConsumerConfig, **how: Any) -> None:
        self.subscribers = LaneSubscribers(REPLIES)
        self.ran = 0
        super().__init__(cfg, outlet=self.subscribers.outlet, **how)

    def take(self, effects: Iterable[Effect]) -> None:
        """Gather what is to be done, and then let the lane run."""
        self.sent.extend(effects)
        while hasattr(self, "consumer") and self.consumer.busy:
            after = self.consumer.wake(self.now_ns, direct=True)
            written = self.subscribers.take()
            self.ran += len(written)
            self.sent += [*written, *after]

    def ack_many(self, deliveries: Iterable[Deliver]) -> None:
        """As a client that acknowledges them all in one turn."""
        for delivery in deliveries:
            self.subscribers.acknowledge(delivery.reply)
        acked = self.consumer.ack_many(self.subscribers.collected(), self.now_ns)
        self.acked_spans = acked.acked_spans
        self.take(acked.effects)


class PlainStage(Stage):
    """A stage without lane that goes on until nothing is left to do at once."""

    def take(self, effects: Iterable[Effect]) -> None:
        self.sent.extend(effects)
        while hasattr(self, "consumer") and self.consumer.busy:
            self.sent += self.consumer.wake(self.now_ns)

    def ack_many(self, deliveries: Iterable[Deliver]) -> None:
        """One by one."""
        self.acked_spans = ()
        for delivery in deliveries:
            settled = self.acked_spans
            self.ack(delivery)
            self.acked_spans = settled + self.acked_spans
