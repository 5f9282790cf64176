"""One consumer: delivers the messages of a stream to clients until each message is acknowledged.

Every call takes the current time, updates the state and returns effects for the server to perform;
no call blocks. This module handles the events; `Delivery` moves messages, `AckProcessor` processes
acks. Invariants: first deliveries are in stream order; a message that is delivered and not
acknowledged is delivered again; the ack floor never passes an ack-pending message. A consumer reads
its stream's store and writes only its own state, through the `StateLog`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.api.ack_protocol import Verb, parse_ack
from penstock.api.api_levels import REQUIRED_LEVEL_HEADER, demands_too_much
from penstock.api.consumer_config import (
    CONSUMER_SHORTCUTS,
    AckPolicy,
    ConsumerInfo,
    PriorityGroupState,
    SequenceInfo,
    pause_remaining,
)
from penstock.api.refusals import ApiError
from penstock.api.shortcuts import Shortcut
from penstock.base.effects import Send
from penstock.base.sequences import number_in
from penstock.jetstream.consumers import position_changes, status_lines
from penstock.jetstream.consumers.ack_deadlines import AckDeadlines
from penstock.jetstream.consumers.acks import Acked
from penstock.jetstream.consumers.consumer_advisories import Events
from penstock.jetstream.consumers.cursor import CursorStart, select_start
from penstock.jetstream.consumers.delivery import Delivery
from penstock.jetstream.consumers.lifetime import Lifetime
from penstock.wire import headers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.api.ack_protocol import AckRef
    from penstock.api.consumer_config import ConsumerConfig
    from penstock.base.effects import Effect
    from penstock.jetstream.consumers.acks import AckSpan
    from penstock.jetstream.consumers.consumer_context import ConsumerContext
    from penstock.jetstream.consumers.pull_delivery import Closing
    from penstock.jetstream.consumers.state.consumer_state import StateLog
    from penstock.store.contract import Range

_ANSWERING = (AckPolicy.EXPLICIT, AckPolicy.ALL)


class Reset(NamedTuple):
    """The result of a reset: the sequence that delivery continues at, and the effects."""

    seq: int
    effects: list[Effect]


class Consumer:
    """A consumer as its stream host uses it."""

    def __init__(
        self,
        name: str,
        cfg: ConsumerConfig,
        around: ConsumerContext,
        log: StateLog,
        *,
        created_ns: int,
        now_ns: int,
        recovered: bool,
    ) -> None:
        """`recovered`: the log has the state of an earlier run, so no start is selected."""
        self.name = name
        self.stream_name = around.stream_name
        self.cfg = cfg
        self.created_ns = created_ns
        self.log = log
        self._abandoned_ns: int | None = None
        self._around = around
        self._events = Events(around.stream_name, name, around.account)
        self._outstanding = AckDeadlines(log, cfg)
        start = self._recover() if recovered else self._begin()
        self._delivery = Delivery(name, cfg, around, self._outstanding, start, self._events, now_ns)
        self._cursor = self._delivery.cursor
        self._ack_processor = self._delivery.ack_processor
        self._push = self._delivery.push
        self._pull = self._delivery.pull
        self._lifetime = Lifetime(cfg)
        if self._push is None or not self._push.active:
            self._lifetime.start(now_ns)

    def _begin(self) -> CursorStart:
        around = self._around
        start = select_start(self.cfg, around.store, around.max_msgs_per_subject)
        self.log.reset(0, start.seq - 1)
        return start

    def _recover(self) -> CursorStart:
        start = CursorStart(position_changes.reconcile(self._outstanding, self._around.store))
        if not self.cfg.sourcing:
            return start
        # A stream that sources from this one counts deliveries from its own start.
        floor = self.log.state.floor_stream
        self._outstanding.reset(0, floor)
        return CursorStart(floor + 1)

    @property
    def busy(self) -> bool:
        """Return whether the last call stopped with more to deliver: the caller wakes it again
        soon."""
        return self._delivery.busy

    # -- from clients

    def wake(self, now_ns: int, *, direct: bool = False) -> list[Effect]:
        """Deliver what may be delivered, up to a bound.

        With `direct` the caller guarantees that all earlier effects have been performed, so that
        messages may go to the outboxes without becoming effects.
        """
        out: list[Effect] = []
        self._delivery.pump(now_ns, out, direct=direct)
        return out

    @property
    def has_lane(self) -> bool:
        """Return whether the consumer can use a `direct` wake."""
        return self._delivery.lane is not None

    def request(self, reply: str, header: bytes, body: bytes, now_ns: int) -> list[Effect]:
        """Queue a pull request, or return the status that rejects it.

        The caller wakes the consumer once all requests of its turn are queued: priorities decide
        between requests that arrived together.
        """
        if not reply:
            return []
        if self._pull is None:
            return [Send(reply, header=status_lines.PUSH_BASED)]
        if header and _asks_too_much(header):
            return [Send(reply, header=status_lines.REQUIRED_API_LEVEL)]
        out: list[Effect] = []
        self._pull.submit(reply, body, len(self._outstanding.queue), now_ns, out)
        return out

    def ack(self, ref: AckRef, reply: str, header: bytes, payload: bytes, now_ns: int) -> Acked:
        """Process an ack of any kind. The server sends its effects once the state is durable."""
        if not self.takes_acks:
            return Acked([])
        out: list[Effect] = []
        self._note_use(now_ns)
        was_stalled = self._delivery.is_stalled
        ack = parse_ack(payload)
        answered = self._ack_processor.apply_ack(ref, ack, now_ns, out)
        if answered and reply:
            out.append(Send(reply))
        if ack.verb is Verb.NEXT:
            out += self.request(reply, b"", ack.pull, now_ns)
        elif was_stalled or self._outstanding.queue:
            self._delivery.pump(now_ns, out)
        return Acked(out, self.take_acked())

    @property
    def takes_acks(self) -> bool:
        """Return whether clients acknowledge messages; otherwise acks are ignored."""
        return self.cfg.ack_policy in _ANSWERING

    @property
    def takes_plain_acks(self) -> bool:
        """Return whether plain acks may come through `ack_many`."""
        return self.takes_acks and CONSUMER_SHORTCUTS.allow(self.cfg, Shortcut.ACK)

    def ack_many(self, spans: list[AckSpan], now_ns: int) -> Acked:
        """Process plain acks without a reply subject, in order of arrival."""
        if not self.takes_acks:
            return Acked([])
        out: list[Effect] = []
        self._note_use(now_ns)
        was_stalled = self._delivery.is_stalled
        self._ack_processor.ack_many(spans, now_ns)
        if was_stalled or self._outstanding.queue:
            self._delivery.pump(now_ns, out)
        return Acked(out, self.take_acked())

    def flow_reply(self, subject: str, header: bytes, now_ns: int) -> list[Effect]:
        """Process a subscriber's reply to a flow control request."""
        if self._push is None or not self._push.answered(subject):
            return []
        if self.cfg.ack_policy is AckPolicy.FLOW_CONTROL and header:
            seq = _number(header, b"Nats-Last-Stream")
            if seq > 0:
                consumer_seq = _number(header, b"Nats-Last-Consumer")
                self._ack_processor.ack_through(consumer_seq, seq, now_ns)
        return self.wake(now_ns)

    def interest_changed(self, now_ns: int) -> list[Effect]:
        """Handle a change of the subscriptions to the consumer's delivery subjects."""
        out: list[Effect] = []
        if self._pull is not None:
            self._pull.sweep(now_ns, out)
            return out
        assert self._push is not None
        if self._push.look(now_ns):
            if self._push.active:
                self._lifetime.stop()
            else:
                self._lifetime.start(now_ns)
        self._delivery.pump(now_ns, out)
        return out

    def closing(self, why: Closing) -> list[Effect]:
        """Return the statuses that end the waiting requests."""
        out: list[Effect] = []
        if self._pull is not None:
            self._pull.close(why, out)
        return out

    def _note_use(self, now_ns: int) -> None:
        if self._pull is not None:
            self._pull.last_active_ns = now_ns
        self._lifetime.prolong(now_ns)

    # -- from the stream

    def stored(self, seq: int, subject: str, now_ns: int) -> bool:
        """Record a message that became visible; return whether to `wake` this consumer."""
        return self._cursor.stored(seq, subject)

    def stored_some(self) -> bool:
        """Record that unspecified messages became visible; return whether to `wake` this
        consumer."""
        self._cursor.stored_some()
        return True

    def removed(self, ranges: tuple[Range, ...], now_ns: int) -> list[Effect]:
        """Handle the removal of messages, other than by a purge."""
        self._cursor.removed(ranges)
        out: list[Effect] = []
        known = self._outstanding.within(ranges)
        if known:
            was_stalled = self._delivery.is_stalled
            for seq in known:
                self._ack_processor.lost(seq, now_ns, out)
            if was_stalled:
                self._delivery.pump(now_ns, out)
        return out

    def purged(self, subject: str | None, ranges: tuple[Range, ...], now_ns: int) -> list[Effect]:
        """Handle a purge of everything or of the subjects that a filter matches."""
        start = position_changes.start_after_purge(
            subject, self._cursor.filters, self._around.store
        )
        if start is None:
            return []
        if position_changes.purge(self._cursor, self._outstanding, ranges, start):
            self._ack_processor.last_ns = now_ns
        return self.wake(now_ns)

    def wants(self, subject: str) -> bool:
        """Return whether the filters match a subject."""
        return self._cursor.matches(subject)

    def needs(self, seq: int, subject: str) -> bool:
        """Return whether a stream that keeps messages for its consumers must keep this one for
        it."""
        return self._cursor.matches(subject) and self.holds(seq)

    def holds(self, seq: int) -> bool:
        """As `needs`, for a message that the filters match."""
        state = self.log.state
        if seq in state.redelivered:
            return True
        if seq <= state.floor_stream:
            return False
        if self.cfg.ack_policy is not AckPolicy.EXPLICIT:
            return True
        return seq >= self._cursor.next or seq in state.pending

    @property
    def holds_all_from(self) -> int:
        """The sequence from which it holds every message; 0 if its filters exclude some."""
        if self._cursor.filters:
            return 0
        is_explicit = self.cfg.ack_policy is AckPolicy.EXPLICIT
        floor = self.log.state.floor_stream
        return max(self._cursor.next, floor + 1) if is_explicit else floor + 1

    def has_passed(self, seq: int) -> bool:
        """Return whether it certainly holds nothing up to this sequence."""
        state = self.log.state
        return seq <= state.floor_stream and not state.redelivered

    def take_acked(self) -> tuple[Range, ...]:
        """Return the sequences done since the last call; empty unless the stream keeps by interest.

        A range may cover messages that the filters do not match.
        """
        spans = self._ack_processor.acked_spans
        if not spans:
            return ()
        taken = tuple(spans)
        spans.clear()
        return taken

    # -- time

    def tick(self, now_ns: int) -> list[Effect]:
        """Do what is due."""
        out: list[Effect] = []
        self._again(self._outstanding.take_due(now_ns), out)
        delivery = self._delivery
        if delivery.pause_end_ns is not None and now_ns >= delivery.pause_end_ns:
            out.append(self._events.paused(delivery.pause_end_ns, paused=False))
            delivery.pause_end_ns = None
        if self._pull is not None:
            self._pull.pin.expire(now_ns, out)
        delivery.pump(now_ns, out)
        if self._push is not None:
            num_ack_pending = delivery.num_ack_pending()
            self._push.send_heartbeat(
                delivery.position(), outstanding=num_ack_pending, now_ns=now_ns, out=out
            )
        self._check_use(now_ns, out)
        return out

    def _again(self, seqs: Iterable[int], out: list[Effect]) -> None:
        """Queue messages for redelivery; give up those with max_deliver of 1 or already
        exceeded."""
        for seq in seqs:
            redeliveries = self._outstanding.redeliveries(seq)
            if 0 < self.cfg.max_deliver <= max(redeliveries, 1):
                self._ack_processor.give_up_message(seq, redeliveries + 1, out)
            else:
                self._outstanding.requeue((seq,))

    def _check_use(self, now_ns: int, out: list[Effect]) -> None:
        lifetime, pull = self._lifetime, self._pull
        if lifetime.due_ns is None or now_ns < lifetime.due_ns:
            return
        if pull is not None:
            pull.sweep(now_ns, out, at_end=True)
            if pull.queue:
                lifetime.start(now_ns)
                return
            # A client may work on a delivered message until its ack wait ends.
            used_ns = max(pull.last_active_ns, self._outstanding.last_deadline_ns())
            lifetime.start(used_ns)
            if lifetime.due_ns > now_ns:
                return
        lifetime.stop()
        self._abandoned_ns = now_ns

    def is_abandoned(self, now_ns: int) -> bool:
        """Return whether the consumer was unused for its inactive threshold: the caller deletes
        it."""
        return self._abandoned_ns is not None and now_ns >= self._abandoned_ns

    def next_deadline_ns(self) -> int | None:
        """Return when `tick` has something to do; None if it needs no tick."""
        delivery, push, pull = self._delivery, self._push, self._pull
        times = [
            self._outstanding.next_deadline_ns(),
            delivery.hold_ns,
            delivery.pause_end_ns,
            self._lifetime.due_ns,
        ]
        if push is not None:
            times.append(push.heartbeat_at_ns)
        if pull is not None:
            times += [pull.queue.next_event_ns, pull.pin.until_ns]
        return min((at_ns for at_ns in times if at_ns is not None), default=None)

    # -- from administrators

    def update(self, cfg: ConsumerConfig, now_ns: int) -> list[Effect]:
        """Apply a new configuration that the caller has checked."""
        old, self.cfg = self.cfg, cfg
        out: list[Effect] = []
        if cfg.filters != old.filters:
            self._cursor.set_filters(cfg)
        if (cfg.ack_wait, cfg.backoff) != (old.ack_wait, old.backoff):
            self._outstanding.configure(cfg)
        if cfg.inactive_threshold != old.inactive_threshold:
            self._lifetime.configure(cfg)
            if self._push is None or not self._push.active:
                self._lifetime.start(now_ns)
        self._ack_processor.configure(cfg)
        self._delivery.configure(cfg, now_ns)
        if (cfg.pause_until or 0) != (old.pause_until or 0):
            paused = self._delivery.pause_end_ns is not None
            out.append(self._events.paused(cfg.pause_until or 0, paused=paused))
        if cfg.sourcing:
            self._go_to(self.log.state.floor_stream + 1)
        if self._pull is not None:
            self._pull.configure(cfg)
            return out + self.wake(now_ns)
        assert self._push is not None
        if cfg.deliver_subject != old.deliver_subject:
            self._again(sorted(self.log.state.pending), out)
        self._push.configure(cfg)
        return out + self.interest_changed(now_ns)

    def retention_changed(self, *, by_interest: bool) -> None:
        """Set whether the stream keeps messages for its consumers."""
        self._ack_processor.keep_by_interest(by_interest)

    def reset(self, seq: int, now_ns: int) -> Reset | ApiError:
        """Restart at a sequence, or with 0 at the first unacknowledged one; forgets all ack-pending
        messages."""
        state = self.log.state
        target = position_changes.reset_target(
            seq, self.cfg, state.floor_stream, self._around.store
        )
        if isinstance(target, ApiError):
            return target
        self._go_to(target)
        return Reset(target, self.wake(now_ns))

    def _go_to(self, seq: int) -> None:
        self._outstanding.reset(0, seq - 1)
        self._cursor.jump(seq)
        self._ack_processor.note(self._around.store.state().first_seq, seq - 1)
        self._delivery.last_ns = self._ack_processor.last_ns = 0

    def creation_advisories(self, now_ns: int) -> list[Effect]:
        """Return the advisories at creation, besides the creation advisory itself."""
        until_ns = self.cfg.pause_until or 0
        return [self._events.paused(until_ns, paused=True)] if until_ns > now_ns else []

    def unpin(self, group: str, now_ns: int) -> list[Effect]:
        """Unpin the client of a group; the advisory is sent even if no client was pinned."""
        if self._pull is None:
            return []
        self._pull.pin.release()
        return [self._events.unpinned(group, "admin"), *self.wake(now_ns)]

    def info(self, now_ns: int) -> ConsumerInfo:
        """Return the consumer info for the API."""
        state, cfg = self.log.state, self.cfg
        remaining = pause_remaining(cfg.pause_until, now_ns)
        return ConsumerInfo(
            stream_name=self.stream_name,
            name=self.name,
            created=self.created_ns,
            config=cfg,
            delivered=SequenceInfo(
                consumer_seq=state.delivered_consumer,
                stream_seq=state.delivered_stream,
                last_active=self._delivery.last_ns or None,
            ),
            ack_floor=SequenceInfo(
                consumer_seq=state.floor_consumer,
                stream_seq=state.floor_stream,
                last_active=self._ack_processor.last_ns or None,
            ),
            num_ack_pending=len(state.pending),
            num_redelivered=len(state.redelivered) if cfg.max_deliver != 1 else 0,
            num_waiting=self._pull.count_waiting(now_ns) if self._pull is not None else 0,
            num_pending=self._delivery.num_undelivered(),
            push_bound=self._push is not None and self._push.active,
            paused=remaining > 0,
            pause_remaining=remaining,
            ts=now_ns,
            priority_groups=self._groups(),
        )

    def _groups(self) -> tuple[PriorityGroupState, ...]:
        """Return the state of the one priority group in effect."""
        if not self.cfg.priority_groups or self._pull is None:
            return ()
        pin = self._pull.pin
        group = self.cfg.priority_groups[0]
        state = PriorityGroupState(group=group, pinned_client_id=pin.id, pinned_ts=pin.since_ns)
        return (state,)


def _asks_too_much(header: bytes) -> bool:
    """Return whether a request needs an API level that is unsupported or invalid."""
    wanted = headers.get(header, REQUIRED_LEVEL_HEADER.encode())
    return wanted is not None and demands_too_much(wanted.decode(errors="replace"))


def _number(header: bytes, key: bytes) -> int:
    return number_in(headers.get(header, key))
