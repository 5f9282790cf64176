"""How messages get from the stream to those who take them.

The parts of a consumer and the loop over them: redeliveries first, in their order, then what
`Cursor` has next, as long as somebody may get it. Everything a message needs is decided before
anything changes, so a message that finds no taker is as untouched as if nobody had looked. A call
delivers a bounded number of bytes. This is the hot path: the ordinary message passes a few plain
tests, one ack subject is formatted and one change noted.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from penstock.api.consumer import AckPolicy, PriorityPolicy, ReplayPolicy
from penstock.base.effects import Deliver, Fetch
from penstock.consumers.cursor import Cursor
from penstock.consumers.pace import RateLimit, Replay
from penstock.consumers.pending import OUTSTANDING_MAX
from penstock.consumers.pull import PullSide
from penstock.consumers.push import PushSide
from penstock.consumers.settling import Settling
from penstock.store.contract import Cold, Missing
from penstock.wire import headers

if TYPE_CHECKING:
    from penstock.api.consumer import ConsumerConfig
    from penstock.base.effects import Effect
    from penstock.consumers.cursor import Start
    from penstock.consumers.events import Events
    from penstock.consumers.pending import Outstanding
    from penstock.consumers.surroundings import Surroundings
    from penstock.store.contract import MessageRecord

PUMP_BYTES_MAX: Final = 262_144
"""Delivered by one call; what is left waits for the next, so that nobody hogs the turn."""


class Stop(enum.Enum):
    """Why delivering stopped."""

    END = enum.auto()
    """Nothing to deliver, or nobody who may get it."""
    ACKS = enum.auto()
    """As many are outstanding as may be."""
    COLD = enum.auto()
    """The next message is not in memory."""
    HELD = enum.auto()
    """The next message has its time."""
    BOUND = enum.auto()
    """Enough for one call."""


class Delivery:
    """The moving parts of one consumer."""

    def __init__(
        self,
        name: str,
        cfg: ConsumerConfig,
        around: Surroundings,
        outstanding: Outstanding,
        start: Start,
        events: Events,
        now_ns: int,
    ) -> None:
        self._around = around
        self._ack_prefix = around.ack_prefix(name)
        self.log = outstanding.log
        self.outstanding = outstanding
        self.cursor = Cursor(around.store, cfg, start)
        self.settling = Settling(
            cfg, self.cursor, outstanding, events, by_interest=around.by_interest
        )
        self.replay: Replay | None = None
        if cfg.replay_policy is ReplayPolicy.ORIGINAL:
            self.replay = Replay(around.store.state().last_seq)
        self.push: PushSide | None = None
        self.pull: PullSide | None = None
        if cfg.is_push:
            self.push = PushSide(cfg, around, around.flow_prefix(name), now_ns)
        else:
            self.pull = PullSide(cfg, around, self, events, now_ns)
        self.busy = False
        self.hold_ns: int | None = None
        """When a message that was held back may go."""
        self.last_ns = 0
        """When the last message went."""
        self.configure(cfg, now_ns)

    def configure(self, cfg: ConsumerConfig, now_ns: int) -> None:
        """Take over what is kept ready of a configuration."""
        self._cfg = cfg
        limit = cfg.max_ack_pending
        self._outstanding_max = limit if 0 < limit < OUTSTANDING_MAX else OUTSTANDING_MAX
        self._acks = cfg.ack_policy is not AckPolicy.NONE
        self._pins = cfg.priority_policy is PriorityPolicy.PINNED_CLIENT
        self._rate: RateLimit | None = None
        if cfg.rate_limit_bps:
            self._rate = RateLimit(cfg.rate_limit_bps, self._around.burst_bytes, now_ns)
        until_ns = cfg.pause_until or 0
        self.pause_end_ns = until_ns if until_ns > now_ns else None

    # -- what others ask

    def position(self) -> tuple[int, int]:
        """How many deliveries there were, and up to where the stream has been read."""
        return self.log.state.delivered_consumer, self.cursor.next - 1

    def to_come(self) -> int:
        """How many messages are still to be delivered for the first time."""
        return self.cursor.pending()

    def on_the_way(self) -> int:
        """How many are delivered and not settled."""
        return len(self.log.state.pending)

    @property
    def is_stalled(self) -> bool:
        """Whether as many are outstanding as may be."""
        return len(self.log.state.pending) >= self._outstanding_max

    # -- delivering

    def pump(self, now_ns: int, out: list[Effect]) -> None:
        """Deliver what may be delivered, up to a bound; `busy` if there is more."""
        self.hold_ns = None
        stop = self._deliver_all(now_ns, out)
        self.busy = stop is Stop.BOUND
        at_end = stop is Stop.END
        if at_end and self.replay is not None and self.replay.is_over(self.cursor.next):
            self.replay = None
        if self.pull is not None and self.pull.must_sweep(now_ns, at_end=at_end):
            self.pull.sweep(now_ns, out, at_end=at_end)

    def _deliver_all(self, now_ns: int, out: list[Effect]) -> Stop:
        if self.pause_end_ns is not None and now_ns < self.pause_end_ns:
            return Stop.END
        room = PUMP_BYTES_MAX
        pending, queue = self.log.state.pending, self.outstanding.queue
        while room > 0:
            if not (self.pull.queue if self.pull is not None else self._may_push()):
                return Stop.END
            redeliveries = 0
            record = self._next_again(now_ns, out) if queue else None
            if record is None:
                if len(pending) >= self._outstanding_max:
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
            if not size:
                return Stop.END if self.hold_ns is None else Stop.HELD
            room -= size
        return Stop.BOUND

    def _may_push(self) -> bool:
        return self.push is not None and self.push.ready

    def _next_again(self, now_ns: int, out: list[Effect]) -> MessageRecord | Cold | None:
        """The next message to redeliver; those that are gone or were out too often are not."""
        queue = self.outstanding.queue
        while queue:
            seq = next(iter(queue))
            deliveries = self.outstanding.redeliveries(seq) + 1
            if 0 < self._cfg.max_deliver <= deliveries:
                self.settling.give_up(seq, deliveries, out)
                continue
            found = self._around.store.load(seq)
            if not isinstance(found, Missing):
                return found
            self.settling.lost(seq, now_ns, out)
        return None

    def _offer(
        self, record: MessageRecord, redeliveries: int, now_ns: int, out: list[Effect]
    ) -> int:
        """Give a message to whoever is next; its size, or 0 if nobody gets it now."""
        seq, ts_ns, subject, header, payload = record
        consumer_seq = self.log.state.delivered_consumer + 1
        cursor = self.cursor
        to_come = cursor.pending() if redeliveries else cursor.pending_after(seq)
        reply = f"{self._ack_prefix}{redeliveries + 1}.{seq}.{consumer_seq}.{ts_ns}.{to_come}"
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
            self.settling.note(seq, seq)
        self.last_ns = now_ns

    def _note_pushed(self, size: int, now_ns: int, out: list[Effect]) -> None:
        assert self.push is not None
        at_limit = self.is_stalled
        size += len(self._cfg.deliver_subject)
        self.push.sent(size, at_ack_limit=at_limit, now_ns=now_ns, out=out)

    def _is_held(self, ts_ns: int, size: int, now_ns: int) -> bool:
        """Whether pace or rate say that a message must wait; if not, that it goes now."""
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
