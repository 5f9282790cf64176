"""Acks of one consumer: ack, nak, in-progress, term, and giving up at max_deliver.

Only the stream sequence counts: an ack applies to its message, whichever delivery it names. An ack
beyond what was delivered has no effect and gets no reply, as in the reference. Acknowledged
sequences are collected only for a stream that keeps messages for its consumers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from penstock.api.ack_protocol import Verb
from penstock.api.consumer_config import AckPolicy
from penstock.api.rules.consumer_rules import sampled_percent
from penstock.store.contract import TIME_NS_MAX

if TYPE_CHECKING:
    from penstock.api.ack_protocol import Ack, AckRef
    from penstock.api.consumer_config import ConsumerConfig
    from penstock.base.effects import Effect
    from penstock.jetstream.consumers.ack_deadlines import AckDeadlines
    from penstock.jetstream.consumers.consumer_advisories import Events
    from penstock.jetstream.consumers.cursor import Cursor
    from penstock.store.contract import Range

REASON_DELETED: Final = "Unacknowledged message was deleted"
_PERCENT: Final = 100


AckSpan: TypeAlias = tuple[int, int, int]
"""First and last stream sequence, consumer sequence of the last; both rise by one within a span."""


class Acked(NamedTuple):
    """The result of an ack."""

    effects: list[Effect]
    acked_spans: tuple[Range, ...] = ()
    """Sequences this consumer no longer needs; empty unless the stream keeps by interest."""


class AckProcessor:
    """Processes the acks of one consumer."""

    __slots__ = (
        "_cfg",
        "_cursor",
        "_events",
        "_outstanding",
        "_sampled",
        "_share",
        "acked_spans",
        "by_interest",
        "last_ns",
    )

    def __init__(
        self,
        cfg: ConsumerConfig,
        cursor: Cursor,
        outstanding: AckDeadlines,
        events: Events,
        *,
        by_interest: bool,
    ) -> None:
        self._cursor = cursor
        self._outstanding = outstanding
        self._events = events
        self.by_interest = by_interest
        """Whether the stream needs to know which sequences are done."""
        self._sampled = 0
        self.last_ns = 0
        """When an ack last had an effect."""
        self.acked_spans: list[Range] = []
        self.configure(cfg)

    def configure(self, cfg: ConsumerConfig) -> None:
        """Apply a new configuration."""
        self._cfg = cfg
        self._share = min(sampled_percent(cfg.sample_freq), _PERCENT)

    def keep_by_interest(self, by_interest: bool) -> None:
        """Set whether the stream needs to know which sequences are done."""
        self.by_interest = by_interest

    def note(self, first: int, last: int) -> None:
        """Record that the consumer no longer needs these sequences."""
        if self.by_interest and first <= last:
            self.acked_spans.append((first, last))

    # -- verbs

    def apply_ack(self, ref: AckRef, ack: Ack, now_ns: int, out: list[Effect]) -> bool:
        """Apply an ack; return whether to reply to it."""
        match ack.verb:
            case Verb.ACK:
                self._sample(ref, now_ns, out)
                return self._ack(ref, now_ns)
            case Verb.NEXT:
                self._sample(ref, now_ns, out)
                self._ack(ref, now_ns)
                return False
            case Verb.TERM:
                answered = self._ack(ref, now_ns)
                delivery = (ref.consumer_seq, ref.stream_seq, ref.delivered)
                out.append(self._events.terminated(*delivery, ack.reason))
                return answered
            case Verb.NAK:
                self._refuse(ref, ack.delay_ns, now_ns, out)
            case Verb.PROGRESS:
                if ref.stream_seq in self._outstanding.log.state.pending:
                    self._outstanding.restart(ref.stream_seq, now_ns)
        return ref.stream_seq > 0

    def _ack(self, ref: AckRef, now_ns: int) -> bool:
        """Acknowledge a message, and with policy `all` those before it. Return whether the message
        was delivered."""
        if ref.stream_seq <= 0 or self._is_ahead(ref.stream_seq):
            return False
        if self._cfg.ack_policy is AckPolicy.EXPLICIT:
            self._ack_one(ref.stream_seq)
            self.last_ns = now_ns
        else:
            self.ack_through(ref.consumer_seq, ref.stream_seq, now_ns)
        return True

    def ack_many(self, spans: list[AckSpan], now_ns: int) -> None:
        """Process a plain ack for each message in these spans, in order."""
        if not self._cfg.flow_control:
            end = self._cursor.next - 1
            spans = [_clipped(span, end) for span in spans if span[0] <= end]
        if self._cfg.ack_policy is not AckPolicy.EXPLICIT:
            for _, last, consumer_seq in spans:
                self.ack_through(consumer_seq, last, now_ns)
        elif spans:
            known = self._outstanding.log.acked_run([(first, last) for first, last, _ in spans])
            self._outstanding.unqueue(known)
            if self.by_interest:
                self.acked_spans += known
            self.last_ns = now_ns

    def _is_ahead(self, seq: int) -> bool:
        # The state of a flow-controlled consumer may lag the progress of its reader.
        return seq >= self._cursor.next and not self._cfg.flow_control

    def _ack_one(self, seq: int) -> None:
        if self._outstanding.acked(seq):
            self.note(seq, seq)

    def ack_through(self, consumer_seq: int, seq: int, now_ns: int) -> None:
        """Acknowledge everything delivered up to here."""
        state = self._outstanding.log.state
        if consumer_seq <= 0 or seq <= state.floor_stream:
            return
        # An ack may refer to deliveries that a power cut removed from the state.
        consumer_seq = min(max(consumer_seq, state.floor_consumer), state.delivered_consumer)
        if self.by_interest:
            self.acked_spans += state.pending.spans_within(0, seq)
        self._outstanding.acked_through(consumer_seq, seq)
        self.last_ns = now_ns

    def _refuse(self, ref: AckRef, delay_ns: int | None, now_ns: int, out: list[Effect]) -> None:
        state = self._outstanding.log.state
        if not state.floor_consumer < ref.consumer_seq <= state.delivered_consumer + 1:
            return
        if ref.stream_seq not in state.pending:
            return
        out.append(self._events.refused(ref))
        if delay_ns is None:
            self._outstanding.requeue((ref.stream_seq,))
        else:
            # The wait restarts from a time such that ack_wait ends after the delay. With backoff
            # the wait has another length, so the delay differs too. The reference does the same.
            since_ns = now_ns - self._cfg.ack_wait + delay_ns
            since_ns = max(-TIME_NS_MAX, min(since_ns, TIME_NS_MAX))
            self._outstanding.wait_from(ref.stream_seq, since_ns)

    # -- without an ack

    def lost(self, seq: int, now_ns: int, out: list[Effect]) -> None:
        """Forget a message that the stream no longer has."""
        outstanding = self._outstanding
        entry = outstanding.log.state.pending.get(seq)
        deliveries = max(outstanding.redeliveries(seq), 1)
        if outstanding.acked(seq):
            self.last_ns = now_ns
        if entry is not None:
            out.append(self._events.terminated(entry[0], seq, deliveries, REASON_DELETED))

    def give_up_message(self, seq: int, deliveries: int, out: list[Effect]) -> None:
        """Give up a message that reached max_deliver. A stream that keeps by interest still keeps
        it."""
        out.append(self._events.exhausted(seq, deliveries))
        self._outstanding.dropped(seq, deliveries)

    # -- samples

    def _sample(self, ref: AckRef, now_ns: int, out: list[Effect]) -> None:
        if not self._share or self._cfg.ack_policy is not AckPolicy.EXPLICIT:
            return
        entry = self._outstanding.log.state.pending.get(ref.stream_seq)
        if entry is None:
            return
        self._sampled += self._share
        if self._sampled >= _PERCENT:
            self._sampled -= _PERCENT
            out.append(self._events.acked(ref, now_ns - entry[1]))


def _clipped(span: AckSpan, end: int) -> AckSpan:
    """Return the part of a span up to `end`."""
    first, last, consumer_seq = span
    beyond = max(last - end, 0)
    return first, last - beyond, consumer_seq - beyond
