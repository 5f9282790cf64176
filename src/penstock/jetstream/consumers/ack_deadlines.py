"""Ack deadlines: when ack-pending messages are due for redelivery, and in which order.

Invariant: every ack-pending message either has a deadline or is queued for redelivery, never both.
Deadlines usually come in ascending order and go to a queue (`_line`); others (backoff, delayed
naks) go to a heap. An ack does not remove its deadline: an entry that no longer matches the state
is skipped, and both structures are rebuilt when stale entries outnumber the rest. The state log
owns which messages are ack-pending, since when, and how often they were delivered.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from penstock.jetstream.consumers.state.consumer_deltas import ENTRIES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.api.consumer_config import ConsumerConfig
    from penstock.jetstream.consumers.state.consumer_state import StateLog
    from penstock.store.contract import Range

STALE_MAX: Final = 1_024
"""Stale deadlines that are kept, in addition to one per valid deadline."""
GIVEN_UP_MAX: Final = 100_000
"""Messages over max_deliver that are remembered; beyond that the oldest are forgotten."""
OUTSTANDING_MAX: Final = ENTRIES_MAX - GIVEN_UP_MAX
"""Upper limit of ack-pending messages, whatever the configuration sets."""


class AckDeadlines:
    """The ack-pending messages of one consumer."""

    __slots__ = ("_ack_wait_ns", "_backoff_ns", "_given_up", "_heap", "_line", "log", "queue")

    def __init__(self, log: StateLog, cfg: ConsumerConfig) -> None:
        self.log = log
        self.queue: OrderedDict[int, None] = OrderedDict()
        """Sequences to redeliver, in order of arrival."""
        state = log.state
        self._given_up = deque(sorted(s for s in state.redelivered if s not in state.pending))
        self._line: deque[tuple[int, int, int]] = deque()
        self._heap: list[tuple[int, int, int]] = []
        self.configure(cfg)

    def configure(self, cfg: ConsumerConfig) -> None:
        """Set the ack waits, also for messages that are already ack-pending."""
        self._ack_wait_ns = cfg.ack_wait
        self._backoff_ns = cfg.backoff
        self._rebuild()

    def wait_ns(self, redeliveries: int) -> int:
        """Return the ack wait after this many redeliveries; 0: without end."""
        backoff = self._backoff_ns
        if not backoff:
            return self._ack_wait_ns
        return backoff[min(redeliveries, len(backoff) - 1)]

    # -- changes

    def delivered(self, consumer_seq: int, seq: int, now_ns: int, redeliveries: int) -> None:
        """Record a delivery, the first or a later one."""
        self.log.delivered(consumer_seq, seq, now_ns, redeliveries)
        if redeliveries:
            self.queue.pop(seq, None)
        wait_ns = self.wait_ns(redeliveries) if self._backoff_ns else self._ack_wait_ns
        self._arm(seq, now_ns + wait_ns)

    def delivered_run(self, consumer_seq: int, spans: list[Range], now_ns: int) -> None:
        """Record first deliveries; `consumer_seq` is that of the first."""
        self.log.delivered_run(consumer_seq, spans, now_ns)
        at_ns = now_ns + self.wait_ns(0)
        for first, last in spans:
            self._arm(first, at_ns, last)

    def acked(self, seq: int) -> bool:
        """Acknowledge a message; False if it was unknown."""
        self.queue.pop(seq, None)
        return self.log.acked(seq)

    def unqueue(self, spans: Iterable[Range]) -> None:
        """Remove acknowledged messages from the queue for redelivery."""
        for first, last in spans if self.queue else ():
            for seq in range(first, last + 1):
                self.queue.pop(seq, None)

    def acked_within(self, ranges: Sequence[Range]) -> bool:
        """Acknowledge everything in these ascending ranges; False if all of it was unknown."""
        state = self.log.state
        if state.redelivered:
            known = self.within(ranges)
            for seq in known:
                self.acked(seq)
            return bool(known)
        spans = self._pending_spans(ranges)
        acked = self.log.acked_run(spans) if spans else []
        self.unqueue(acked)
        return bool(acked)

    def acked_through(self, consumer_seq: int, seq: int) -> None:
        """Acknowledge everything up to here."""
        for queued in [s for s in self.queue if s <= seq]:
            del self.queue[queued]
        self.log.acked_through(consumer_seq, seq)

    def wait_from(self, seq: int, ts_ns: int) -> None:
        """Start the wait of an ack-pending message at this time, which may be in the past."""
        self.queue.pop(seq, None)
        self.restart(seq, ts_ns)

    def restart(self, seq: int, ts_ns: int) -> None:
        """As `wait_from`, but a queued message stays queued."""
        self.log.nacked(seq, ts_ns)
        if seq not in self.queue:
            self._arm(seq, ts_ns + self.wait_ns(self.redeliveries(seq)))

    def requeue(self, seqs: Iterable[int]) -> None:
        """Queue messages for redelivery."""
        for seq in seqs:
            self.queue.setdefault(seq, None)

    def dropped(self, seq: int, redeliveries: int) -> None:
        """Give up a message over max_deliver: no longer ack-pending, but its count is kept."""
        self.queue.pop(seq, None)
        entry = self.log.state.pending.get(seq)
        if entry is None:
            return
        self.log.nacked(seq, entry[1], redeliveries)
        self.log.dropped(seq)
        self._given_up.append(seq)
        if len(self._given_up) > GIVEN_UP_MAX:
            self._forget(self._given_up.popleft())

    def _forget(self, seq: int) -> None:
        if seq not in self.log.state.pending:
            self.log.acked(seq)

    def reset(self, consumer_seq: int, seq: int) -> None:
        """Clear all ack-pending messages; deliveries continue after these sequences."""
        self.log.reset(consumer_seq, seq)
        self.queue.clear()
        self._given_up.clear()
        self._rebuild()

    # -- queries

    def redeliveries(self, seq: int) -> int:
        """Return how often a message was delivered after the first time."""
        return self.log.state.redelivered.get(seq, 0)

    def within(self, ranges: Sequence[Range]) -> list[int]:
        """Return the known sequences in these ascending ranges, ascending."""
        state = self.log.state
        known = {s for s in state.redelivered if _covers(ranges, s)} if state.redelivered else set()
        for first, last in self._pending_spans(ranges):
            known.update(range(first, last + 1))
        return sorted(known)

    def _pending_spans(self, ranges: Sequence[Range]) -> list[Range]:
        """Return the ack-pending messages in these ascending ranges."""
        pending = self.log.state.pending
        spans: list[Range] = []
        lowest = pending.lowest()
        if not lowest or not ranges or ranges[-1][1] < lowest:
            return spans
        for at in range(max(bisect_left(ranges, (lowest, 0)) - 1, 0), len(ranges)):
            if not pending.at_least(ranges[at][0]):
                break
            spans += pending.spans_within(*ranges[at])
        return spans

    def take_due(self, now_ns: int) -> list[int]:
        """Return the ack-pending messages whose wait is over, ascending. They have no deadline any
        more: the caller queues or drops each."""
        due: set[int] = set()
        line, heap = self._line, self._heap
        while line and line[0][0] <= now_ns:
            due.update(self._true_ones(*line.popleft()))
        while heap and heap[0][0] <= now_ns:
            due.update(self._true_ones(*heappop(heap)))
        return sorted(due)

    def _true_ones(self, at_ns: int, first: int, last: int) -> Iterator[int]:
        """Yield the messages of a deadline entry for which the deadline is still valid."""
        pending = self.log.state.pending
        seq = pending.at_least(first)
        while 0 < seq <= last:
            if self._is_true(at_ns, seq):
                yield seq
            seq = pending.at_least(seq + 1)

    def next_deadline_ns(self) -> int | None:
        """Return when the first wait ends, or None."""
        self._trim()
        heads = [timers[0][0] for timers in (self._line, self._heap) if timers]
        return min(heads, default=None)

    def last_deadline_ns(self) -> int:
        """Return when the last wait ends; 0 if there is none."""
        state = self.log.state
        waits = (ts + self.wait_ns(self.redeliveries(s)) for s, (_, ts) in state.pending.items())
        return max(waits, default=0)

    # -- deadlines

    def _arm(self, first: int, at_ns: int, last: int = 0) -> None:
        """Set a deadline for a message, or for all ack-pending ones from `first` to `last`."""
        if not self._ack_wait_ns:
            return
        line, deadline = self._line, (at_ns, first, last or first)
        if not line or at_ns >= line[-1][0]:
            line.append(deadline)
        else:
            heappush(self._heap, deadline)
        if len(line) + len(self._heap) > 2 * len(self.log.state.pending) + STALE_MAX:
            self._rebuild()

    def _is_true(self, at_ns: int, seq: int) -> bool:
        entry = self.log.state.pending.get(seq)
        if entry is None or seq in self.queue:
            return False
        return entry[1] + self.wait_ns(self.redeliveries(seq)) == at_ns

    def _trim(self) -> None:
        """Remove stale entries from the front, so that the first one is a valid deadline."""
        line, heap = self._line, self._heap
        while line:
            at_ns, first, last = line[0]
            seq = next(self._true_ones(at_ns, first, last), 0)
            if seq:
                line[0] = (at_ns, seq, last)
                break
            line.popleft()
        while heap and not any(self._true_ones(*heap[0])):
            heappop(heap)

    def _rebuild(self) -> None:
        self._line.clear()
        self._heap.clear()
        if not self._ack_wait_ns:
            return
        pending = self.log.state.pending.items()
        waits = (
            (ts + self.wait_ns(self.redeliveries(seq)), seq, seq)
            for seq, (_, ts) in pending
            if seq not in self.queue
        )
        self._line.extend(sorted(waits))


def _covers(ranges: Sequence[Range], seq: int) -> bool:
    """Return whether one of the ascending ranges contains a sequence."""
    at = bisect_right(ranges, seq, key=lambda each: each[0])
    return at > 0 and seq <= ranges[at - 1][1]
