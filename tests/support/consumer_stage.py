"""A consumer on a stream in memory, and short words to play a client with.

Time stands still unless a test moves it; everybody listens unless a test says otherwise. What the
consumer wants done is gathered in `sent`, as the edge would see it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from penstock.api.ack_protocol import parse_ack_subject
from penstock.api.consumer_config import AckPolicy, ConsumerConfig
from penstock.api.rules.consumer_defaults import ConsumerCaps, normalise
from penstock.api.stream_config import StreamConfig
from penstock.base.effects import Advise, Deliver, Send
from penstock.jetstream.consumers.consumer import Consumer
from penstock.jetstream.consumers.consumer_context import ConsumerContext
from penstock.jetstream.consumers.state.consumer_state import MemoryLog
from penstock.store.contract import Appended
from penstock.store.memstore import MemStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.base.effects import Effect
    from penstock.jetstream.consumers.consumer_context import Outlet
    from penstock.jetstream.consumers.state.consumer_state import StateLog
    from penstock.store.contract import Limits

T0 = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
MS = 1_000_000


def full(cfg: ConsumerConfig) -> ConsumerConfig:
    """A configuration as the API would hand it on."""
    made = normalise(cfg, StreamConfig(name="S"), ConsumerCaps())
    assert isinstance(made, ConsumerConfig)
    return made


def pull_config(**fields: object) -> ConsumerConfig:
    """A durable pull consumer with explicit acks, but for `fields`."""
    base: dict[str, object] = {"durable_name": "C", "ack_policy": AckPolicy.EXPLICIT}
    return full(ConsumerConfig(**(base | fields)))


def push_config(**fields: object) -> ConsumerConfig:
    """The same, pushing to `in`."""
    return pull_config(**({"deliver_subject": "in"} | fields))


class Stage:
    """One stream, one consumer, and the client's words."""

    def __init__(
        self,
        cfg: ConsumerConfig,
        *,
        log: StateLog | None = None,
        store: MemStore | None = None,
        before: Iterable[str] = (),
        limits: Limits | None = None,
        by_interest: bool = False,
        recovered: bool = False,
        now_ns: int = T0,
        outlet: Outlet | None = None,
    ) -> None:
        self.now_ns = now_ns
        self.store = store or MemStore(limits)
        self.deaf: set[str] = set()
        self.sent: list[Effect] = []
        self._ids = itertools.count(1)
        for subject in before:
            self._append(subject, b"", b"")
        self.log: StateLog = log or MemoryLog()
        self.around = ConsumerContext(
            stream_name="S",
            store=self.store,
            has_interest=lambda subject, group: subject not in self.deaf,
            nuid=lambda: f"ID{next(self._ids):04}",
            by_interest=by_interest,
            outlet=outlet,
        )
        self.consumer = Consumer(
            "C",
            cfg,
            self.around,
            self.log,
            created_ns=T0,
            now_ns=self.now_ns,
            recovered=recovered,
        )
        self.take(self.consumer.wake(self.now_ns))

    # -- the stream's part

    def _append(self, subject: str, header: bytes, payload: bytes) -> int:
        stored = self.store.append(subject, header, payload, self.now_ns)
        assert isinstance(stored, Appended)
        if stored.removed.msgs and hasattr(self, "consumer"):
            self.take(self.consumer.removed(stored.removed.seqs, self.now_ns))
        return stored.seq

    def publish(self, subject: str = "a", payload: bytes = b"", header: bytes = b"") -> int:
        """Store a message and let the consumer know."""
        seq = self._append(subject, header, payload)
        if self.consumer.stored(seq, subject, self.now_ns):
            self.take(self.consumer.wake(self.now_ns))
        return seq

    def remove(self, seq: int) -> None:
        """Delete a message."""
        removed = self.store.remove(seq)
        assert removed is not None
        self.take(self.consumer.removed(removed.seqs, self.now_ns))

    def purge(self, subject: str | None = None, **how: int) -> None:
        """Purge the stream."""
        removed = self.store.purge(subject=subject, **how)
        self.take(self.consumer.purged(subject, removed.seqs, self.now_ns))

    # -- the client's part

    def pull(self, body: bytes | str = b"", reply: str = "r", header: bytes = b"") -> None:
        """Ask for messages."""
        raw = body.encode() if isinstance(body, str) else body
        self.take(self.consumer.request(reply, header, raw, self.now_ns))
        self.take(self.consumer.wake(self.now_ns))

    def ack(self, delivery: Deliver, payload: bytes = b"+ACK", reply: str = "") -> None:
        """Acknowledge a delivery."""
        ref = parse_ack_subject(delivery.reply)
        assert ref is not None
        acked = self.consumer.ack(ref, reply, b"", payload, self.now_ns)
        self.acked_spans = acked.acked_spans
        self.take(acked.effects)
        if payload.startswith(b"+NXT"):
            self.take(self.consumer.wake(self.now_ns))

    # -- the edge's part

    def take(self, effects: Iterable[Effect]) -> None:
        """Gather what is to be done."""
        self.sent.extend(effects)

    def pass_time(self, ns: int) -> None:
        """Move the clock, and tick at every deadline on the way."""
        end = self.now_ns + ns
        for _ in range(10_000):
            while self.consumer.busy:
                self.take(self.consumer.wake(self.now_ns))
            due = self.consumer.next_deadline_ns()
            if due is None or due > end:
                self.now_ns = end
                return
            self.now_ns = max(due, self.now_ns)
            self.take(self.consumer.tick(self.now_ns))
        raise AssertionError("it never comes to rest")

    # -- looking

    def deliveries(self) -> list[Deliver]:
        """Messages sent since the last look at anything."""
        return [effect for effect in self._look() if isinstance(effect, Deliver)]

    def seqs(self) -> list[int]:
        """Their sequences."""
        return [seq_of(delivery) for delivery in self.deliveries()]

    def statuses(self) -> list[str]:
        """What was said that is no message: status lines, headers behind."""
        return [text(effect) for effect in self._look() if isinstance(effect, Send)]

    def events(self) -> list[Advise]:
        """Advisories sent since the last look."""
        return [effect for effect in self._look() if isinstance(effect, Advise)]

    def _look(self) -> list[Effect]:
        looked, self.sent = self.sent, []
        return looked


def seq_of(delivery: Deliver) -> int:
    """The stream sequence of a delivery."""
    ref = parse_ack_subject(delivery.reply)
    assert ref is not None
    return ref.stream_seq


def text(sent: Send) -> str:
    """A status with its headers, without what is always there."""
    return (
        sent.header.decode().removeprefix("NATS/1.0 ").removesuffix("\r\n\r\n").replace("\r\n", "|")
    )
