"""What a consumer has delivered and what was acknowledged, and the changes to it as bytes.

`ConsumerState` is the value; each of its methods is one kind of change. A change is packed by the
`pack_...` of its kind and applied again by `replay`, which calls the same method: state after
replay equals state before, whatever was packed. docs/formats/consumer.md has the byte tables.

The floor moves as in the reference server: with the acknowledgement of the lowest outstanding
delivery, or to what was delivered last when nothing is outstanding. No files here.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ENTRIES_MAX: Final = 1_000_000
"""Outstanding deliveries, and redelivery counts, that one consumer may have."""
STALE_MAX: Final = 64
"""Entries of the order that may be out of date before it is made anew, besides one for each that
is not."""

DELIVERED: Final = 1
PASSED: Final = 2
ACKED: Final = 3
ACKED_THROUGH: Final = 4
NACKED: Final = 5
DROPPED: Final = 6
RESET: Final = 7

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
_CHECKPOINT: Final = struct.Struct("<QQQQQII")
_PENDING_BYTES: Final = 24
_REDELIVERED_BYTES: Final = 16


class Malformed(ValueError):
    """Bytes with a right checksum that say nothing this format knows."""


@dataclass(slots=True)
class ConsumerState:
    """Sequences come in pairs: of the consumer's deliveries, and of the stream."""

    delivered_consumer: int = 0
    delivered_stream: int = 0
    floor_consumer: int = 0
    floor_stream: int = 0
    pending: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Stream sequence -> (consumer sequence of the first delivery, time of the last one)."""
    redelivered: dict[int, int] = field(default_factory=dict)
    """Stream sequence -> how often it was delivered after the first time."""
    _order: list[int] = field(default_factory=list, compare=False, repr=False)
    """From `_head` on every key of `pending`, ascending, and some that are gone."""
    _head: int = field(default=0, compare=False, repr=False)

    def deliver(self, consumer_seq: int, stream_seq: int, ts_ns: int, redeliveries: int) -> None:
        """A message went out and waits for its acknowledgement."""
        if consumer_seq > self.delivered_consumer:
            self.delivered_consumer = consumer_seq
        if stream_seq > self.delivered_stream:
            self.delivered_stream = stream_seq
        before = self.pending.get(stream_seq)
        if before is None:
            self.pending[stream_seq] = (consumer_seq, ts_ns)
            if not self._order or stream_seq > self._order[-1]:
                self._order.append(stream_seq)
            else:
                insort(self._order, stream_seq, self._head)
        else:
            # The first delivery's number stays: the floor is counted with it.
            self.pending[stream_seq] = (before[0], ts_ns)
        if redeliveries:
            self.redelivered[stream_seq] = redeliveries

    def pass_by(self, consumer_seq: int, stream_seq: int) -> None:
        """A message went out that needs no acknowledgement."""
        self.delivered_consumer = consumer_seq
        self.delivered_stream = stream_seq
        self._raise_floor(consumer_seq, stream_seq)

    def ack(self, stream_seq: int) -> None:
        """One message is done with."""
        self.redelivered.pop(stream_seq, None)
        entry = self.pending.pop(stream_seq, None)
        if entry is None:
            return
        if not self.pending:
            self._raise_floor(self.delivered_consumer, self.delivered_stream)
        elif entry[0] == self.floor_consumer + 1:
            low = self._lowest()
            self._raise_floor(self.pending[low][0] - 1, low - 1)
        if len(self._order) > 2 * len(self.pending) + STALE_MAX:
            self._sort()

    def ack_through(self, consumer_seq: int, stream_seq: int) -> None:
        """Everything up to and including this delivery is done with; below the floor it is."""
        if stream_seq < self.floor_stream:
            return
        order, head = self._order, self._head
        while head < len(order) and order[head] <= stream_seq:
            if self.pending.pop(order[head], None) is not None:
                self.redelivered.pop(order[head], None)
            head += 1
        self._head = head
        self._raise_floor(consumer_seq, stream_seq)
        if len(order) > 2 * len(self.pending) + STALE_MAX:
            self._sort()

    def nack(self, stream_seq: int, ts_ns: int, redeliveries: int) -> None:
        """The time from which an outstanding message waits, and its count, are now these."""
        entry = self.pending.get(stream_seq)
        if entry is None:
            return
        self.pending[stream_seq] = (entry[0], ts_ns)
        if redeliveries:
            self.redelivered[stream_seq] = redeliveries

    def drop(self, stream_seq: int) -> None:
        """Not outstanding any more, not acknowledged either: delivered too often. The count
        stays, also when the floor has passed, until the message is acknowledged after all or
        gone; the floor does not move for it."""
        if self.pending.pop(stream_seq, None) is None:
            return
        if len(self._order) > 2 * len(self.pending) + STALE_MAX:
            self._sort()

    def reset(self, consumer_seq: int, stream_seq: int) -> None:
        """Nothing is outstanding, and the next delivery comes behind these."""
        self.delivered_consumer = self.floor_consumer = consumer_seq
        self.delivered_stream = self.floor_stream = stream_seq
        self.pending = {}
        self.redelivered = {}
        self._sort()

    def _lowest(self) -> int:
        """The lowest outstanding sequence; there is one."""
        order, pending, head = self._order, self.pending, self._head
        while order[head] not in pending:
            head += 1
        self._head = head
        return order[head]

    def _sort(self) -> None:
        self._order = sorted(self.pending)
        self._head = 0

    def _raise_floor(self, consumer_seq: int, stream_seq: int) -> None:
        if stream_seq < self.floor_stream:
            return
        self.floor_consumer = consumer_seq
        self.floor_stream = stream_seq

    # -- as bytes

    def encoded_bytes(self) -> int:
        """How long `encode` would be."""
        lists = len(self.pending) * _PENDING_BYTES + len(self.redelivered) * _REDELIVERED_BYTES
        return _CHECKPOINT.size + lists

    def encode(self, delta_seq: int) -> bytes:
        """The whole state as it was after the change of that number."""
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
        """State and number of the last change in it; Malformed if it is neither."""
        if len(data) < _CHECKPOINT.size:
            raise Malformed("shorter than a checkpoint")
        delta_seq, *pairs, pending, redelivered = _CHECKPOINT.unpack_from(data)
        if max(pending, redelivered) > ENTRIES_MAX:
            raise Malformed("more entries than a consumer may have")
        lists = pending * _PENDING_BYTES + redelivered * _REDELIVERED_BYTES
        if len(data) != _CHECKPOINT.size + lists:
            raise Malformed("not as long as its counts say")
        rest = memoryview(data)[_CHECKPOINT.size :]
        seqs, rest = _take("Q", rest, pending)
        firsts, rest = _take("Q", rest, pending)
        times, rest = _take("q", rest, pending)
        counted, rest = _take("Q", rest, redelivered)
        counts, rest = _take("Q", rest, redelivered)
        state = cls(*pairs)
        state.pending = dict(zip(seqs, zip(firsts, times, strict=True), strict=True))
        state.redelivered = dict(zip(counted, counts, strict=True))
        if len(state.pending) != pending or len(state.redelivered) != redelivered:
            raise Malformed("a sequence twice")
        state._sort()
        return state, delta_seq


APPLY: Final[dict[int, Callable[..., None]]] = {
    DELIVERED: ConsumerState.deliver,
    PASSED: ConsumerState.pass_by,
    ACKED: ConsumerState.ack,
    ACKED_THROUGH: ConsumerState.ack_through,
    NACKED: ConsumerState.nack,
    DROPPED: ConsumerState.drop,
    RESET: ConsumerState.reset,
}


def unpack(body: bytes) -> list[tuple[int, tuple[int, ...]]]:
    """The changes in a row of packed ones, as (kind, arguments); Malformed if they are not."""
    changes = []
    at = 0
    while at < len(body):
        layout = _LAYOUT.get(body[at])
        if layout is None:
            raise Malformed(f"no change is of kind {body[at]}")
        if at + 1 + layout.size > len(body):
            raise Malformed("ends within a change")
        changes.append((body[at], layout.unpack_from(body, at + 1)))
        at += 1 + layout.size
    return changes


def replay(state: ConsumerState, changes: Iterable[tuple[int, tuple[int, ...]]]) -> None:
    """Apply changes in their order."""
    for kind, arguments in changes:
        APPLY[kind](state, *arguments)


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
