"""Cursor: a consumer's filters, the next sequence to read, and the count of undelivered messages.

Invariant: `next` only moves forward, except by a reset, and never past a matching message that was
not handed out; messages that are stored but not visible yet are never skipped. The undelivered
messages are counted once; then the stream's reports update the count. They are counted again after
removals of messages with unknown subjects. The cursor only reads the store.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.api.consumer_config import DeliverPolicy
from penstock.jetstream.consumers.filters import SubjectFilter
from penstock.store.contract import Cold, Missing

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from penstock.api.consumer_config import ConsumerConfig
    from penstock.jetstream.consumers.delivery_pump import DeliveryRun
    from penstock.store.contract import MessageRecord, Range, Store, StoreState

EVERYTHING: Final = ">"
SCAN_MAX: Final = 32
"""Messages scanned one by one before the index is used. For a wildcard the index visits every
subject that matches, which costs more than a few neighbours where most of them match."""
TAIL_SCAN_MAX: Final = 256
"""New messages counted one by one instead of recounting everything."""
UNCERTAIN_MAX: Final = 256
"""Removals after which undelivered messages are always recounted."""
CHEAP_SUBJECTS_MAX: Final = 256
"""Up to this many subjects a recount costs about as much as delivering a message."""


NO_LIMIT: Final = 2**62


class CursorStart(NamedTuple):
    """Where to start: at a sequence, or with a row of sequences and then after `resume`."""

    seq: int
    row: array[int] | None = None
    resume: int = 0
    """The last sequence that only the row covers."""


def select_start(cfg: ConsumerConfig, store: Store, per_subject_max: int) -> CursorStart:
    """Return the start that the deliver policy selects in the current stream."""
    state = store.state()
    filters = effective_filters(cfg)
    if cfg.opt_start_seq:
        return CursorStart(max(cfg.opt_start_seq, state.first_seq))
    if cfg.deliver_policy is DeliverPolicy.LAST_PER_SUBJECT and per_subject_max != 1:
        row = store.last_of_each(filters)
        if row:
            return CursorStart(row[0], row, store.visible_seq)
    wanted = _first_wanted(cfg, store, state, filters)
    return CursorStart(max(min(wanted, state.last_seq + 1), state.first_seq))


def _first_wanted(
    cfg: ConsumerConfig, store: Store, state: StoreState, filters: tuple[str, ...]
) -> int:
    match cfg.deliver_policy:
        case DeliverPolicy.ALL:
            return state.first_seq
        case DeliverPolicy.LAST if filters:
            return max(store.last_of_each(filters), default=0)
        case DeliverPolicy.LAST:
            return state.last_seq
        case DeliverPolicy.LAST_PER_SUBJECT:
            # Either every subject has exactly one message, or there are no messages.
            return state.first_seq if state.num_subjects else state.last_seq
        case DeliverPolicy.BY_START_TIME:
            return _first_since(cfg.opt_start_time or 0, store, state, filters)
        case _:
            return state.last_seq + 1


def _first_since(ts_ns: int, store: Store, state: StoreState, filters: tuple[str, ...]) -> int:
    """Return the first message at or after a time; skip a gap that the filters leave before the
    first match."""
    seq = store.seq_at_time(ts_ns)
    later = store.first_since(filters, seq) or seq
    return later if later < state.last_seq else seq


def effective_filters(cfg: ConsumerConfig) -> tuple[str, ...]:
    """Return the filters for the store: none if one of them matches everything."""
    return () if EVERYTHING in cfg.filters else cfg.filters


class Cursor:
    """The read position of one consumer."""

    __slots__ = (
        "_count",
        "_counted_to",
        "_filter",
        "_resume",
        "_scans",
        "_stale",
        "_store",
        "_tail_unknown",
        "_uncertain",
        "filters",
        "next",
        "row",
        "row_at",
    )

    def __init__(self, store: Store, cfg: ConsumerConfig, start: CursorStart) -> None:
        self._store = store
        self.next = start.seq
        self.row = start.row
        """Sequences to hand out before those after `_resume`; None when that is done."""
        self.row_at = 0
        self._resume = start.resume
        self._count = 0
        self._counted_to = 0
        self._uncertain = 0
        """How many of `_count` may be removed: it is unknown whether removed messages matched."""
        self._tail_unknown = False
        """Whether there may be unannounced messages after `_counted_to`."""
        self._stale = True
        self.set_filters(cfg)

    def set_filters(self, cfg: ConsumerConfig) -> None:
        """Set the filters; what was handed out stays so."""
        self.filters = effective_filters(cfg)
        self._filter = SubjectFilter(self.filters)
        self._scans = SCAN_MAX
        self._stale = True

    def matches(self, subject: str) -> bool:
        """Return whether the filters match a subject."""
        return self._filter.matches(subject)

    # -- reading

    def peek(self) -> MessageRecord | Cold | None:
        """Return the next message to hand out, the same one until `passed`; None at the end."""
        if self.row is not None:
            found = self._peek_row(self.row)
            if found is not None:
                return found
        if self._filter.is_wild:
            record = self._search()
        else:
            record = self._store.next_match(self.filters, self.next)
        if record is None:
            self.reached_end()
        return record

    def _search(self) -> MessageRecord | Cold | None:
        """Return the next match: scan the next messages first, then use the index."""
        at = self.next
        for _ in range(self._scans):
            record = self._store.next_match((), at)
            if record is None:
                return None
            if isinstance(record, Cold):
                break  # the index may show that the block has no match
            if self._filter.matches(record.subject):
                self._scans = SCAN_MAX
                return record
            at = record.seq + 1
        self._scans = 1
        return self._store.next_match(self.filters, at)

    def _peek_row(self, row: array[int]) -> MessageRecord | Cold | None:
        while self.row is not None:
            found = self._store.load(row[self.row_at])
            if not isinstance(found, Missing):
                return found
            self._leave_row_entries(1, row[self.row_at])
            self._stale = True
        return None

    def reached_end(self) -> None:
        """Record that every visible message has been examined."""
        end = self._store.visible_seq + 1
        if end > self.next:
            self.next = end
        if self._count and not self._stale and self.next > self._counted_to:
            self._stale = True

    def passed(self, seq: int) -> None:
        """Record that the message from `peek` was handed out."""
        self._leave_row_entries(1, seq)
        if seq <= self._counted_to:
            self._count -= 1
        else:
            self._counted_to = seq  # it was read before it was announced

    # -- runs of the pump

    def counts(self) -> tuple[int, int, int]:
        """Return the undelivered messages, the sequence up to which they are counted, and how many
        messages a run may count down before the count must be checked again."""
        self.pending_after(self.next)
        doubtless = self._count - self._uncertain - 1 if self._uncertain else NO_LIMIT
        return self._count, self._counted_to, doubtless

    def ran(self, run: DeliveryRun) -> None:
        """Record a run that handed out messages of the row or from `next` on."""
        if run.sent:
            self._leave_row_entries(run.sent, run.last_seq)
            self._count, self._counted_to = run.num_undelivered, run.counted_to
        if run.at_end:
            self.reached_end()

    def _leave_row_entries(self, number: int, seq: int) -> None:
        """Continue after `seq`; in a row advance by `number` entries."""
        self.next = seq + 1
        if self.row is None:
            return
        self.row_at += number
        if self.row_at == len(self.row):
            self.row = None
            self.next = self._resume + 1

    def jump(self, seq: int) -> None:
        """Continue at a sequence, forward or back; drops the rest of a row."""
        self.row = None
        self.next = seq
        self._stale = True

    # -- counting

    def pending(self) -> int:
        """Return the number of undelivered messages."""
        if self._tail_unknown:
            self._count_tail()
        if self._stale or self._uncertain:
            self._recount()
        return max(self._count, 0)

    def pending_after(self, seq: int) -> int:
        """Return `pending` as it is once this message has been handed out for the first time.

        If counting is expensive, the result may include messages removed recently, unless that
        would turn zero into more than zero: clients take 0 for the end.
        """
        if self._tail_unknown:
            self._count_tail()
        if self._stale or (self._uncertain and not self._may_estimate()):
            self._recount()
        num_undelivered = self._count - (seq <= self._counted_to)
        return num_undelivered if num_undelivered > 0 else 0

    def _may_estimate(self) -> bool:
        if (
            not self._filter.is_wild
            or self._uncertain > UNCERTAIN_MAX
            or self._count - self._uncertain <= 1
        ):
            return False
        return self._store.state().num_subjects > CHEAP_SUBJECTS_MAX

    def _recount(self) -> None:
        start, in_row = self.next, 0
        if self.row is not None:
            start, in_row = self._resume + 1, len(self.row) - self.row_at
        self._count = in_row + self._store.num_pending(start, self.filters)
        self._counted_to = self._store.visible_seq
        self._uncertain = 0
        self._stale = self._tail_unknown = False

    def _count_tail(self) -> None:
        """Add the messages after `_counted_to`, or mark the count for a full recount."""
        self._tail_unknown = False
        behind = self.next if self.row is None else self._resume + 1
        start = max(self._counted_to + 1, behind)
        last = self._store.visible_seq
        if self._stale or start > last:
            return
        if not self.filters:
            self._count += self._store.num_pending(start, ())
        elif last - start < TAIL_SCAN_MAX:
            self._count_one_by_one(start)
        else:
            self._stale = True
        self._counted_to = last

    def _count_one_by_one(self, start: int) -> None:
        while (record := self._store.next_match((), start)) is not None:
            if isinstance(record, Cold):
                self._stale = True
                return
            self._count += self._filter.matches(record.subject)
            start = record.seq + 1

    def stored(self, seq: int, subject: str) -> bool:
        """Record a message that became visible; return whether it is for this consumer."""
        if self.filters and not self._filter.matches(subject):
            return False
        # While the tail is unknown it is counted from `_counted_to` on, including this message.
        if seq > self._counted_to and not self._tail_unknown:
            self._count += 1
            self._counted_to = seq
        return True

    def stored_some(self) -> None:
        """Record that unspecified messages became visible."""
        self._tail_unknown = True

    def removed(self, ranges: Sequence[Range]) -> None:
        """Record the removal of the messages in these ascending ranges."""
        if not ranges or ranges[-1][1] < self.next:
            return
        for at in range(max(bisect_left(ranges, (self.next, 0)) - 1, 0), len(ranges)):
            first, last = ranges[at]
            if last < self.next:
                continue
            if self._stale:
                return  # everything is recounted anyway
            if first != last or self.row is not None or last > self._counted_to:
                self._stale = True
            elif self.filters:
                self._uncertain += 1
            else:
                self._count -= 1
