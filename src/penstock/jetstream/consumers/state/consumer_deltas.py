"""Consumer deltas: the state of a consumer's deliveries and acks, and its changes as bytes.

`ConsumerState` is the value; each of its methods is one kind of change. The `pack_...` function of
its kind packs a change; `replay` applies it again through the same method. Invariant: the state
after replay equals the state before. docs/formats/consumer.md has the byte tables.

The floor moves as in the reference server: with the ack of the lowest ack-pending delivery, or to
the last delivery when nothing is ack-pending. No file access here.
"""

from __future__ import annotations

import struct
import sys
from array import array
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.base.sequences import SEQ_MAX
from penstock.jetstream.consumers.state.ack_pending import AckPending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.store.contract import Range

ENTRIES_MAX: Final = 1_000_000
"""Maximum ack-pending deliveries, and redelivery counts, of one consumer."""

DELIVERED: Final = 1
PASSED: Final = 2
ACKED: Final = 3
ACKED_THROUGH: Final = 4
NACKED: Final = 5
DROPPED: Final = 6
RESET: Final = 7
DELIVERED_RUN: Final = 8
ACKED_RUN: Final = 9

pack_delivered: Final = struct.Struct("<BQQqI").pack
pack_pair: Final = struct.Struct("<BQQ").pack
pack_acked: Final = struct.Struct("<BQ").pack
pack_nacked: Final = struct.Struct("<BQqI").pack

_LAYOUT: Final = {
    DELIVERED: struct.Struct("<QQqI"),
    PASSED: struct.Struct("<QQ"),
    ACKED: struct.Struct("<Q"),
    ACKED_THROUGH: struct.Struct("<QQ"),
    NACKED: struct.Struct("<QqI"),
    DROPPED: struct.Struct("<Q"),
    RESET: struct.Struct("<QQ"),
}
_RUN_LAYOUT: Final = {
    DELIVERED_RUN: struct.Struct("<QqI"),
    ACKED_RUN: struct.Struct("<I"),
}
"""The fields before the spans of a run; the last field is the number of spans."""
_SPAN_BYTES: Final = 16
_CHECKPOINT: Final = struct.Struct("<QQQQQII")
_PENDING_BYTES: Final = 24
_REDELIVERED_BYTES: Final = 16


class MalformedDelta(ValueError):
    """Bytes with a valid checksum that are not valid in this format."""


@dataclass(slots=True)
class ConsumerState:
    """Sequences come in pairs: consumer sequence and stream sequence."""

    delivered_consumer: int = 0
    delivered_stream: int = 0
    floor_consumer: int = 0
    floor_stream: int = 0
    pending: AckPending = field(default_factory=AckPending)
    """Stream sequence -> (consumer sequence of the first delivery, time of the last one)."""
    redelivered: dict[int, int] = field(default_factory=dict)
    """Stream sequence -> how often it was delivered after the first time."""

    def deliver(self, consumer_seq: int, stream_seq: int, ts_ns: int, redeliveries: int) -> None:
        """Record a delivery that waits for an ack."""
        if consumer_seq > self.delivered_consumer:
            self.delivered_consumer = consumer_seq
        if stream_seq > self.delivered_stream:
            self.delivered_stream = stream_seq
        self.pending.put(stream_seq, consumer_seq, ts_ns)
        if redeliveries:
            self.redelivered[stream_seq] = redeliveries

    def deliver_run(self, consumer_seq: int, ts_ns: int, spans: list[Range]) -> None:
        """Record consecutive first deliveries."""
        self.pending.put_run(consumer_seq, spans, ts_ns)
        last_one = consumer_seq + span_count(spans) - 1
        self.delivered_consumer = max(self.delivered_consumer, last_one)
        self.delivered_stream = max(self.delivered_stream, *(last for _, last in spans))

    def pass_by(self, consumer_seq: int, stream_seq: int) -> None:
        """Record a delivery that needs no ack."""
        self.delivered_consumer = consumer_seq
        self.delivered_stream = stream_seq
        self._raise_floor(consumer_seq, stream_seq)

    def ack(self, stream_seq: int) -> None:
        """Acknowledge one message."""
        self.redelivered.pop(stream_seq, None)
        entry = self.pending.pop(stream_seq, None)
        if entry is None:
            return
        if not self.pending:
            self._raise_floor(self.delivered_consumer, self.delivered_stream)
        elif entry[0] == self.floor_consumer + 1:
            low = self.pending.lowest()
            self._raise_floor(max(self.pending[low][0] - 1, 0), low - 1)

    def ack_run(self, spans: list[Range]) -> list[Range]:
        """Acknowledge messages in order; return those that were known."""
        if self.redelivered:
            return self._ack_each(spans)
        delivered = (self.delivered_consumer, self.delivered_stream)
        floor = (self.floor_consumer, self.floor_stream)
        floor, known = self.pending.remove_spans(spans, delivered, floor)
        self.floor_consumer, self.floor_stream = floor
        return known

    def _ack_each(self, spans: list[Range]) -> list[Range]:
        known = []
        for seq in chain.from_iterable(range(first, last + 1) for first, last in spans):
            if seq in self.pending or seq in self.redelivered:
                self.ack(seq)
                known.append((seq, seq))
        return known

    def ack_through(self, consumer_seq: int, stream_seq: int) -> None:
        """Acknowledge everything up to this delivery; no effect below the floor."""
        if stream_seq < self.floor_stream:
            return
        for acked in self.pending.through(stream_seq) if self.redelivered else ():
            self.redelivered.pop(acked, None)
        self.pending.drop_through(stream_seq)
        self._raise_floor(consumer_seq, stream_seq)

    def nack(self, stream_seq: int, ts_ns: int, redeliveries: int) -> None:
        """Set the start of an ack-pending message's wait, and its count if it is not 0."""
        if stream_seq not in self.pending:
            return
        self.pending.put(stream_seq, 0, ts_ns)
        if redeliveries:
            self.redelivered[stream_seq] = redeliveries

    def drop(self, stream_seq: int) -> None:
        """Remove a message that exceeded max_deliver without acknowledging it. Its count stays,
        even when the floor has passed it, until the message is acknowledged or removed. The floor
        does not move for it."""
        self.pending.pop(stream_seq)

    def reset(self, consumer_seq: int, stream_seq: int) -> None:
        """Clear all ack-pending messages; the next delivery comes after these sequences."""
        self.delivered_consumer = self.floor_consumer = consumer_seq
        self.delivered_stream = self.floor_stream = stream_seq
        self.pending.clear()
        self.redelivered = {}

    def _raise_floor(self, consumer_seq: int, stream_seq: int) -> None:
        if stream_seq < self.floor_stream:
            return
        self.floor_consumer = consumer_seq
        self.floor_stream = stream_seq

    # -- encoding

    def encoded_bytes(self) -> int:
        """Return the length of the encoded state."""
        lists = len(self.pending) * _PENDING_BYTES + len(self.redelivered) * _REDELIVERED_BYTES
        return _CHECKPOINT.size + lists

    def encode(self, delta_seq: int) -> bytes:
        """Return the whole state as of the change with this number."""
        entries = self.pending.values()
        return b"".join(
            (
                _CHECKPOINT.pack(
                    delta_seq,
                    self.delivered_consumer,
                    self.delivered_stream,
                    self.floor_consumer,
                    self.floor_stream,
                    len(self.pending),
                    len(self.redelivered),
                ),
                _numbers("Q", self.pending),
                _numbers("Q", [entry[0] for entry in entries]),
                _numbers("q", [entry[1] for entry in entries]),
                _numbers("Q", self.redelivered),
                _numbers("Q", self.redelivered.values()),
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> tuple[ConsumerState, int]:
        """Return the state and the number of its last change; MalformedDelta if it is invalid."""
        if len(data) < _CHECKPOINT.size:
            raise MalformedDelta("shorter than a checkpoint")
        delta_seq, *pairs, pending, redelivered = _CHECKPOINT.unpack_from(data)
        if max(pending, redelivered) > ENTRIES_MAX:
            raise MalformedDelta("more entries than a consumer may have")
        lists = pending * _PENDING_BYTES + redelivered * _REDELIVERED_BYTES
        if len(data) != _CHECKPOINT.size + lists:
            raise MalformedDelta("not as long as its counts say")
        rest = memoryview(data)[_CHECKPOINT.size :]
        seqs, rest = _take("Q", rest, pending)
        firsts, rest = _take("Q", rest, pending)
        times, rest = _take("q", rest, pending)
        counted, rest = _take("Q", rest, redelivered)
        counts, rest = _take("Q", rest, redelivered)
        if max(delta_seq, *pairs, *seqs, *firsts, *counted, *counts) > SEQ_MAX:
            raise MalformedDelta("a number that no sequence has")
        if 0 in seqs:
            raise MalformedDelta("a delivery of no message")
        state = cls(*pairs)
        for seq, first, ts_ns in zip(seqs, firsts, times, strict=True):
            state.pending.put(seq, first, ts_ns)
        state.redelivered = dict(zip(counted, counts, strict=True))
        if len(state.pending) != pending or len(state.redelivered) != redelivered:
            raise MalformedDelta("a sequence twice")
        return state, delta_seq


APPLY: Final[dict[int, Callable[..., object]]] = {
    DELIVERED: ConsumerState.deliver,
    PASSED: ConsumerState.pass_by,
    ACKED: ConsumerState.ack,
    ACKED_THROUGH: ConsumerState.ack_through,
    NACKED: ConsumerState.nack,
    DROPPED: ConsumerState.drop,
    RESET: ConsumerState.reset,
    DELIVERED_RUN: ConsumerState.deliver_run,
    ACKED_RUN: ConsumerState.ack_run,
}

Change: TypeAlias = tuple[int, tuple[Any, ...]]
"""A kind, and the arguments of its method."""


def span_count(spans: Iterable[Range]) -> int:
    """Return how many sequences the spans contain."""
    return sum(last - first + 1 for first, last in spans)


def pack_delivered_run(consumer_seq: int, ts_ns: int, spans: list[Range]) -> bytes:
    head = _RUN_LAYOUT[DELIVERED_RUN].pack(consumer_seq, ts_ns, len(spans))
    return bytes((DELIVERED_RUN,)) + head + _numbers("Q", chain.from_iterable(spans))


def pack_acked_run(spans: list[Range]) -> bytes:
    head = _RUN_LAYOUT[ACKED_RUN].pack(len(spans))
    return bytes((ACKED_RUN,)) + head + _numbers("Q", chain.from_iterable(spans))


def unpack(body: bytes) -> list[Change]:
    """Unpack consecutive changes as (kind, arguments); MalformedDelta if they are invalid."""
    changes: list[Change] = []
    at = 0
    while at < len(body):
        kind = body[at]
        layout = _LAYOUT.get(kind) or _RUN_LAYOUT.get(kind)
        if layout is None:
            raise MalformedDelta(f"no change is of kind {kind}")
        end = at + 1 + layout.size
        if end > len(body):
            raise MalformedDelta("ends within a change")
        fields = layout.unpack_from(body, at + 1)
        if max(fields) > SEQ_MAX:
            raise MalformedDelta("a number that no sequence has")
        if kind == DELIVERED and fields[1] == 0:
            raise MalformedDelta("a delivery of no message")
        if kind in _RUN_LAYOUT:
            spans, end = _unpack_spans(body, end, fields[-1])
            fields = (*fields[:-1], spans)
            if kind == DELIVERED_RUN and fields[0] + span_count(spans) > SEQ_MAX:
                raise MalformedDelta("a run beyond the last sequence")
        changes.append((kind, fields))
        at = end
    return changes


def _unpack_spans(body: bytes, at: int, count: int) -> tuple[list[Range], int]:
    end = at + count * _SPAN_BYTES
    if end > len(body):
        raise MalformedDelta("ends within a run")
    numbers, _ = _take("Q", memoryview(body)[at:end], 2 * count)
    spans = list(zip(numbers[::2], numbers[1::2], strict=True))
    if not spans or any(not 0 < first <= last <= SEQ_MAX for first, last in spans):
        raise MalformedDelta("a run without messages")
    if span_count(spans) > ENTRIES_MAX:
        raise MalformedDelta("a run of more messages than a consumer may have")
    return spans, end


def replay(state: ConsumerState, changes: Iterable[Change]) -> None:
    """Apply changes in order; MalformedDelta if the result exceeds a consumer's limits."""
    for kind, arguments in changes:
        APPLY[kind](state, *arguments)
        if max(len(state.pending), len(state.redelivered)) > ENTRIES_MAX:
            raise MalformedDelta("more entries than a consumer may have")


def _numbers(code: str, values: Iterable[int]) -> bytes:
    packed = array(code, values)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _take(code: str, data: memoryview, count: int) -> tuple[list[int], memoryview]:
    values = array(code)
    values.frombytes(data[: 8 * count])
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist(), data[8 * count :]
