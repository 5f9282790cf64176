"""Delivery: moves messages from the stream to the clients of one consumer.

Delivers redeliveries first, in order, then what `Cursor` returns next, as long as a client may get
it. Invariant: everything is decided before anything changes, so a message that no client takes
leaves no trace. A call delivers a bounded number of bytes.

There are two paths with the same result. First deliveries go in runs through the compiled `Pump`,
which writes them to outboxes at once, but only after all earlier effects were performed (`direct`).
All other messages become effects, one by one.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from penstock.api.consumer_config import (
    CONSUMER_SHORTCUTS,
    AckPolicy,
    PriorityPolicy,
    ReplayPolicy,
)
from penstock.api.shortcuts import Shortcut
from penstock.base.effects import Deliver, Fetch
from penstock.jetstream.consumers.ack_deadlines import OUTSTANDING_MAX
from penstock.jetstream.consumers.acks import AckProcessor
from penstock.jetstream.consumers.cursor import NO_LIMIT, Cursor
from penstock.jetstream.consumers.delivery_pump import TAKERS_MAX, Pump
from penstock.jetstream.consumers.pull_delivery import PullSide
from penstock.jetstream.consumers.push_delivery import PushSide
from penstock.jetstream.consumers.rate_limit import RateLimit, ReplayPace
from penstock.store.contract import Cold, Missing
from penstock.store.indexed_store import IndexedStore
from penstock.wire import headers

if TYPE_CHECKING:
    from penstock.api.consumer_config import ConsumerConfig
    from penstock.base.effects import Effect
    from penstock.jetstream.consumers.ack_deadlines import AckDeadlines
    from penstock.jetstream.consumers.consumer_advisories import Events
    from penstock.jetstream.consumers.consumer_context import ConsumerContext
    from penstock.jetstream.consumers.cursor import CursorStart
    from penstock.jetstream.consumers.delivery_pump import DeliveryRun
    from penstock.jetstream.consumers.pull_queue import Waiting
    from penstock.store.contract import MessageRecord

PUMP_BYTES_MAX: Final = 524_288
"""Bytes that one call delivers; the rest waits, so that one consumer does not fill the turn."""
PUMP_BYTES_FIRST: Final = 16_384
"""Bytes that the first call delivers; each later call delivers twice as much. The client that
created the consumer can read the reply, and set its own limits, before many messages arrive."""


class Stop(enum.Enum):
    """Why delivering stopped."""

    END = enum.auto()
    """No message to deliver, or no client may get it."""
    ACKS = enum.auto()
    """The limit of ack-pending messages is reached."""
    COLD = enum.auto()
    """The next message is not in memory."""
    HELD = enum.auto()
    """The next message must wait for its replay or rate limit time."""
    BOUND = enum.auto()
    """The byte limit of one call is reached."""
    RUN = enum.auto()
    """A run comes next, but earlier effects must be performed before it."""


class Delivery:
    """The delivery state of one consumer."""

    def __init__(
        self,
        name: str,
        cfg: ConsumerConfig,
        around: ConsumerContext,
        outstanding: AckDeadlines,
        start: CursorStart,
        events: Events,
        now_ns: int,
    ) -> None:
        self._around = around
        self._ack_prefix = around.ack_prefix(name)
        self.log = outstanding.log
        self.outstanding = outstanding
        self.cursor = Cursor(around.store, cfg, start)
        self.ack_processor = AckProcessor(
            cfg, self.cursor, outstanding, events, by_interest=around.by_interest
        )
        self.replay: ReplayPace | None = None
        if cfg.replay_policy is ReplayPolicy.ORIGINAL:
            self.replay = ReplayPace(around.store.state().last_seq)
        self.push: PushSide | None = None
        self.pull: PullSide | None = None
        if cfg.is_push:
            self.push = PushSide(cfg, around, around.flow_prefix(name), now_ns)
        else:
            self.pull = PullSide(cfg, around, self, events, now_ns)
        self.lane = make_pump(around, self._ack_prefix)
        self._call_bytes = PUMP_BYTES_FIRST
        self.busy = False
        self.hold_ns: int | None = None
        """When a held message may be sent."""
        self.last_ns = 0
        """When the last message was sent."""
        self.configure(cfg, now_ns)

    def configure(self, cfg: ConsumerConfig, now_ns: int) -> None:
        """Apply a configuration."""
        self._cfg = cfg
        limit = cfg.max_ack_pending
        self._outstanding_max = limit if 0 < limit < OUTSTANDING_MAX else OUTSTANDING_MAX
        self._acks = cfg.ack_policy is not AckPolicy.NONE
        self._pins = cfg.priority_policy is PriorityPolicy.PINNED_CLIENT
        self._rate: RateLimit | None = None
        if cfg.rate_limit_bps:
            self._rate = RateLimit(cfg.rate_limit_bps, self._around.burst_bytes, now_ns)
        if self.lane is not None:
            self.lane.set_filters(self.cursor.filters)
            self.lane.set_headers_only(cfg.headers_only)
        self._to = as_raw(cfg.deliver_subject)
        self._runs = CONSUMER_SHORTCUTS.allow(cfg, Shortcut.RUN)
        until_ns = cfg.pause_until or 0
        self.pause_end_ns = until_ns if until_ns > now_ns else None

    # -- queries

    def position(self) -> tuple[int, int]:
        """Return the number of deliveries, and the stream sequence read so far."""
        return self.log.state.delivered_consumer, self.cursor.next - 1

    def num_undelivered(self) -> int:
        """Return how many messages are undelivered."""
        return self.cursor.pending()

    def num_ack_pending(self) -> int:
        """Return how many messages are ack-pending."""
        return len(self.log.state.pending)

    @property
    def is_stalled(self) -> bool:
        """Return whether the limit of ack-pending messages is reached."""
        return len(self.log.state.pending) >= self._outstanding_max

    # -- delivering

    def pump(self, now_ns: int, out: list[Effect], *, direct: bool = False) -> None:
        """Deliver what may be delivered, up to a bound; sets `busy` if there is more."""
        self.hold_ns = None
        stop = self._deliver_all(now_ns, out, direct=direct)
        self.busy = stop is Stop.BOUND or stop is Stop.RUN
        at_end = stop is Stop.END
        if at_end and self.replay is not None and self.replay.is_over(self.cursor.next):
            self.replay = None
        if self.pull is not None and self.pull.must_sweep(now_ns, at_end=at_end):
            # At the ack limit no-wait requests are held, but only until the first expiry or
            # heartbeat of any request is due.
            self.pull.sweep(now_ns, out, at_end=at_end or stop is Stop.ACKS)

    def _deliver_all(self, now_ns: int, out: list[Effect], *, direct: bool) -> Stop:
        if self.pause_end_ns is not None and now_ns < self.pause_end_ns:
            return Stop.END
        room = min(self._call_bytes, PUMP_BYTES_MAX)
        while room > 0:
            if not (self.pull.queue if self.pull is not None else self._may_push()):
                return Stop.END
            size: int | Stop = 0
            if self.lane is not None and self._may_run(now_ns):
                size = self._run_next(self.lane, room, now_ns, out, direct=direct)
            size = size or self._deliver_one(now_ns, out)
            if isinstance(size, Stop):
                return size
            room -= size
        self._call_bytes = min(2 * self._call_bytes, PUMP_BYTES_MAX)
        return Stop.BOUND

    # -- runs

    def _may_run(self, now_ns: int) -> bool:
        return (
            self._runs
            and self.replay is None
            and not self.outstanding.queue
            and (self.pull is None or self.pull.is_ready(now_ns))
        )

    def _run_next(
        self, lane: Pump, room: int, now_ns: int, out: list[Effect], *, direct: bool
    ) -> int | Stop:
        """Deliver a run, if no effect must be performed before it; return 0 if the next message
        needs `_deliver_one`."""
        if self.is_stalled:
            return Stop.ACKS
        if out or not direct:
            if self.cursor.row is not None or lane.has_next(self.cursor.next):
                return Stop.RUN
            self.cursor.reached_end()
            return Stop.END
        run = self._run(lane, room, now_ns, out)
        return Stop.END if run.at_end else run.size

    def _run(self, lane: Pump, room: int, now_ns: int, out: list[Effect]) -> DeliveryRun:
        """Deliver a run to the takers that need no further checks."""
        num_undelivered, counted_to, at_most = self.cursor.counts()
        if self._acks:
            at_most = min(at_most, self._outstanding_max - len(self.log.state.pending))
        takers, waiting = [(self._to, at_most, 0)], []
        if self.pull is not None:
            waiting = self.pull.ready(now_ns, min(TAKERS_MAX, max(num_undelivered, 1), at_most))
            takers = [
                (as_raw(each.reply), max(each.left, 1), max(each.bytes_left, 0)) for each in waiting
            ]
        run = lane.run(
            takers,
            start=self.cursor.next,
            consumer_seq=self.log.state.delivered_consumer,
            num_undelivered=num_undelivered,
            counted_to=counted_to,
            msgs_max=at_most,
            size_max=room,
            flow_max=NO_LIMIT if self.push is None else self.push.room,
            in_turns=self.pull is None or len(waiting) == len(self.pull.queue),
            spans_kept=self._acks or self.ack_processor.by_interest,
            row=self.cursor.row,
            row_at=self.cursor.row_at,
        )
        self.cursor.ran(run)
        if run.sent:
            self._note_run(run, waiting, now_ns, out)
        return run

    def _note_run(
        self, run: DeliveryRun, waiting: list[Waiting], now_ns: int, out: list[Effect]
    ) -> None:
        before = self.log.state.delivered_consumer
        if self._acks:
            self.outstanding.delivered_run(before + 1, run.spans, now_ns)
        else:
            self.log.passed(before + run.sent, run.last_seq)
            for first, last in run.spans:
                self.ack_processor.note(first, last)
        self.last_ns = now_ns
        if self.pull is not None:
            self.pull.ran(waiting, run, now_ns, out)
        elif self.push is not None:
            at_limit = self.is_stalled
            self.push.sent_run(
                run.flow, run.last_flow, at_ack_limit=at_limit, now_ns=now_ns, out=out
            )

    # -- one by one

    def _may_push(self) -> bool:
        return self.push is not None and self.push.ready

    def _deliver_one(self, now_ns: int, out: list[Effect]) -> int | Stop:
        redeliveries = 0
        record = self._next_again(now_ns, out) if self.outstanding.queue else None
        if record is None:
            if self.is_stalled:
                return Stop.ACKS
            record = self.cursor.peek()
            if record is None:
                return Stop.END
        elif not isinstance(record, Cold):
            redeliveries = self.outstanding.redeliveries(record.seq) + 1
        if isinstance(record, Cold):
            out.append(Fetch(record))
            return Stop.COLD
        size = self._offer(record, redeliveries, now_ns, out)
        if size:
            return size
        return Stop.END if self.hold_ns is None else Stop.HELD

    def _next_again(self, now_ns: int, out: list[Effect]) -> MessageRecord | Cold | None:
        """Return the next message to redeliver; skip removed ones and those that reached
        max_deliver."""
        queue = self.outstanding.queue
        while queue:
            seq = next(iter(queue))
            deliveries = self.outstanding.redeliveries(seq) + 1
            if 0 < self._cfg.max_deliver <= deliveries:
                self.ack_processor.give_up_message(seq, deliveries, out)
                continue
            found = self._around.store.load(seq)
            if not isinstance(found, Missing):
                return found
            self.ack_processor.lost(seq, now_ns, out)
        return None

    def _offer(
        self, record: MessageRecord, redeliveries: int, now_ns: int, out: list[Effect]
    ) -> int:
        """Give a message to the next client; return its size, or 0 if no client gets it now."""
        seq, ts_ns, subject, header, payload = record
        consumer_seq = self.log.state.delivered_consumer + 1
        cursor = self.cursor
        num_undelivered = cursor.pending() if redeliveries else cursor.pending_after(seq)
        reply = (
            f"{self._ack_prefix}{redeliveries + 1}.{seq}.{consumer_seq}.{ts_ns}.{num_undelivered}"
        )
        if self._cfg.headers_only:
            header = headers.added(header, b"Nats-Msg-Size", b"%d" % len(payload))
            payload = b""
        size = len(subject) + len(reply) + len(header) + len(payload)
        if (self.replay or self._rate) and self._is_held(ts_ns, size, now_ns):
            return 0
        if self.pull is None:
            out.append(Deliver(self._cfg.deliver_subject, subject, reply, header, payload))
            self._note_delivered(consumer_seq, seq, redeliveries, now_ns)
            self._note_pushed(size - len(subject), now_ns, out)
            return size
        waiting = self.pull.take(size, now_ns, out)
        if waiting is None:
            return 0
        if self._pins:
            header = headers.added(header, b"Nats-Pin-Id", self.pull.pin.id.encode())
        out.append(Deliver(waiting.reply, subject, reply, header, payload))
        self._note_delivered(consumer_seq, seq, redeliveries, now_ns)
        self.pull.served(waiting, out)
        return size

    def _note_delivered(self, consumer_seq: int, seq: int, redeliveries: int, now_ns: int) -> None:
        if not redeliveries:
            self.cursor.passed(seq)
        if self._acks:
            self.outstanding.delivered(consumer_seq, seq, now_ns, redeliveries)
        else:
            self.log.passed(consumer_seq, seq)
            self.ack_processor.note(seq, seq)
        self.last_ns = now_ns

    def _note_pushed(self, size: int, now_ns: int, out: list[Effect]) -> None:
        assert self.push is not None
        at_limit = self.is_stalled
        size += len(self._cfg.deliver_subject)
        self.push.sent(size, at_ack_limit=at_limit, now_ns=now_ns, out=out)

    def _is_held(self, ts_ns: int, size: int, now_ns: int) -> bool:
        """Return whether replay or rate limit hold a message; if not, record it as sent."""
        until_ns = 0
        if self.replay is not None:
            until_ns = self.replay.may_go_ns(ts_ns)
        if self._rate is not None:
            until_ns = max(until_ns, self._rate.may_go_ns(size, now_ns))
        if until_ns > now_ns:
            self.hold_ns = until_ns
            return True
        if self.replay is not None:
            self.replay.left(ts_ns, now_ns)
        if self._rate is not None:
            self._rate.left(size)
        return False


def make_pump(around: ConsumerContext, ack_prefix: str) -> Pump | None:
    """Create the pump; None without a router, or with a store that it cannot read."""
    if around.outlet is None or not isinstance(around.store, IndexedStore):
        return None
    log = around.store.lane_parts()["log"]
    return Pump(log=log, ack_prefix=ack_prefix, **around.outlet._asdict())


def as_raw(subject: str) -> bytes:
    return subject.encode("utf-8", "surrogateescape")
