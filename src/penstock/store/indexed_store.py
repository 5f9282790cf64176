"""The rules of a store over a message log: limits, purging, deadlines.

IndexedStore makes every decision that depends on the messages alone, for memory and file stores;
the subclass decides what reaches a disk, and when. The calls follow `contract.Store`.

Long operations have a sliced form (`trim`, `purge_slice`): one call does a bounded part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from penstock.base.sequences import SEQ_MAX
from penstock.store.contract import (
    EXPIRE_BATCH,
    NOTHING_REMOVED,
    SLICE_LOOKS,
    SLICE_MSGS,
    TTL_NEVER,
    Appended,
    Cold,
    Limits,
    PurgeStep,
    Refusal,
    Removed,
)
from penstock.store.index.deadline_wheel import DeadlineWheel
from penstock.store.index.message_pack import append_packed, unpacked
from penstock.store.index.removal_index import (
    erase_one,
    newest_from,
    remove_one,
    slice_matching,
    slice_surplus,
    take_front,
    take_older,
    take_span,
)
from penstock.store.index.seq_set import SequenceSet
from penstock.store.log_reader import LogReader
from penstock.store.removal import Removal, by_request, first_aging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.store.append_commit import Appender
    from penstock.store.index.message_log import MessageLog
    from penstock.store.index.removal_index import Taken


class LaneParts(TypedDict):
    """The internals of a store, for compiled code that appends without Python calls."""

    log: MessageLog
    deadlines: dict[int, int]
    exempt: set[int]
    appender: Appender | None


class IndexedStore(LogReader):
    """A log with limits. `noise` returns the requested number of random bytes, to erase with."""

    def __init__(self, log: MessageLog, limits: Limits, noise: Callable[[int], bytes]) -> None:
        super().__init__(log)
        self._limits = limits
        self._noise = noise
        self._wheel = DeadlineWheel()
        self._deadlines: dict[int, int] = {}
        self._exempt: set[int] = set()  # from the age limit
        self._age_from = log.first_seq  # live messages below this are exempt
        self._surplus_from: int | None = None  # `trim` checks subjects from this sequence on
        self._is_front_first = False  # new limits: remove the store's oldest before that

    # -- writing

    def append(
        self,
        subject: str,
        header: bytes,
        payload: bytes,
        ts_ns: int,
        *,
        seq: int | None = None,
        ttl_ns: int = 0,
        admitted: bool = False,
    ) -> Appended | Refusal:
        self._check_writable()
        if seq is not None and seq <= self._log.last_seq:
            raise ValueError(f"sequence {seq} is not behind {self._log.last_seq}")
        refused = None if admitted else self.refusal(subject, header, payload)
        if refused is not None:
            return refused
        deadline_ns = ts_ns + ttl_ns if ttl_ns > 0 else (TTL_NEVER if ttl_ns < 0 else 0)
        stored = self._log.append(
            subject, header, payload, ts_ns, seq=seq or 0, deadline_ns=deadline_ns
        )
        self._note_deadline(stored, deadline_ns)
        if self._limits.is_boundless:
            return Appended(stored, NOTHING_REMOVED)
        return Appended(stored, self._enforce(Removal(), subject, ts_ns).removed())

    def append_packed(self, packed: bytes, ts_ns: int) -> Removed:
        self._check_writable()
        if self._limits.is_boundless:
            append_packed(self._log, packed, ts_ns)
            return NOTHING_REMOVED
        removal = Removal()
        for subject, header, payload in unpacked(packed):
            self._log.append(subject, header, payload, ts_ns)
            self._enforce(removal, subject, ts_ns)
        return removal.removed()

    def _note_deadline(self, seq: int, deadline_ns: int) -> None:
        if deadline_ns > 0:
            self._wheel.add(seq, deadline_ns)
            self._deadlines[seq] = deadline_ns
        elif deadline_ns == TTL_NEVER:
            self._exempt.add(seq)

    def refusal(self, subject: str, header: bytes, payload: bytes) -> Refusal | None:
        limits, log = self._limits, self._log
        if not limits.discard_new:
            return None
        state = log.subject_state(subject)
        full = state is not None and 0 < limits.per_subject_max <= state[2]
        if full and limits.discard_new_per_subject:
            return Refusal.MAX_PER_SUBJECT
        if 0 < limits.msgs_max <= log.msgs and not full:
            return Refusal.MAX_MSGS
        size = log.message_size(subject, header, payload)
        if 0 < limits.bytes_max < log.total_size + size:
            oldest = log.size_at(state[0]) if full and state is not None else 0
            if not full or oldest < size:
                return Refusal.MAX_BYTES
        return None

    def _enforce(self, removal: Removal, subject: str, ts_ns: int) -> Removal:
        limits, log = self._limits, self._log
        self._is_front_first = self._is_front_first and self._is_front_over()
        if self._is_front_first:
            return removal  # `trim` is running and counts this message, too
        if limits.per_subject_max > 0:
            state = log.subject_state(subject)
            room = SLICE_MSGS  # a subject exceeds its limit by more only while `trim` is running
            while state is not None and state[2] > limits.per_subject_max and room:
                removal.one(*self._take(state[0], ts_ns))
                state = log.subject_state(subject)
                room -= 1
        if self._surplus_from is None:  # else `trim` has not finished the per-subject limits
            self._take_front(removal, ts_ns)
        return removal

    def _take_front(self, removal: Removal, ts_ns: int) -> None:
        limits = self._limits
        if self._is_front_over():
            taken = take_front(self._log, limits.msgs_max, limits.bytes_max, SLICE_MSGS, ts_ns)
            removal.add(self._taken(taken))

    def _is_front_over(self) -> bool:
        limits, log = self._limits, self._log
        return not limits.discard_new and (
            (0 < limits.msgs_max < log.msgs) or (0 < limits.bytes_max < log.total_size)
        )

    def skip(self, first: int, last: int, ts_ns: int) -> None:
        self._check_writable()
        if first != self._log.last_seq + 1 or not first <= last <= SEQ_MAX:
            raise ValueError(f"cannot skip {first} to {last} behind {self._log.last_seq}")
        self._log.skip(last, ts_ns)

    def set_limits(self, limits: Limits) -> Removed:
        removal = Removal()
        self.change_limits(limits)
        while self.is_over:
            removal.add_removed(self.trim())
        return removal.removed()

    def change_limits(self, limits: Limits) -> None:
        self._check_writable()
        self._limits = limits
        self._age_from = self._log.first_seq
        self._surplus_from = self._log.first_seq if limits.per_subject_max > 0 else None
        self._is_front_first = self._is_front_over()

    @property
    def is_over(self) -> bool:
        return self._surplus_from is not None or self._is_front_over()

    def trim(self) -> Removed:
        self._check_writable()
        log, removal = self._log, Removal()
        if self._is_front_first:
            self._take_front(removal, log.last_ts_ns)
            self._is_front_first = self._is_front_over()
        if self._surplus_from is not None and not removal.msgs:
            kept, start, bound = self._limits.per_subject_max, self._surplus_from, log.last_seq + 1
            taken, start = slice_surplus(
                log, kept, start, bound, SLICE_MSGS, SLICE_LOOKS, log.last_ts_ns
            )
            self._surplus_from = start if start <= log.last_seq else None
            removal.add(self._taken(taken))
        if self._surplus_from is None and not removal.msgs:
            self._take_front(removal, log.last_ts_ns)
        return removal.removed()

    @property
    def has_remains(self) -> bool:
        return self._log.has_remains

    def shed(self) -> None:
        self._log.shed()

    def note_lost(self, last: int) -> None:
        self._check_writable()
        self._log.loss_floor = max(self._log.loss_floor, last)
        self._log.losses += 1
        self._log.is_loss_unsaid = True
        self._log.note_loss()

    def lane_parts(self) -> LaneParts:
        """Return what a compiled lane appends to; the lane enforces every rule itself."""
        return {
            "log": self._log,
            "deadlines": self._deadlines,
            "exempt": self._exempt,
            "appender": self.appender,
        }

    @property
    def appender(self) -> Appender | None:
        """The fast commit path; None if the store commits nothing."""
        return None

    @property
    def total_bytes(self) -> int:
        return self._log.total_size

    @property
    def loss_floor(self) -> int:
        return self._log.loss_floor

    @property
    def losses(self) -> int:
        # A log on disk reports the count it has recorded: a crash may undo the rest.
        return self._log.losses_kept if self._log.records_removals else self._log.losses

    # -- removing

    def _take(self, seq: int, ts_ns: int) -> tuple[int, int]:
        """Remove a live message; return its sequence and size."""
        size = remove_one(self._log, seq, ts_ns)
        self._forget_deadline(seq)
        return seq, size

    def _taken(self, taken: Taken) -> Taken:
        """Forget the deadlines of removed messages, and damaged sequences between them."""
        if not self._log.msgs:
            self._wheel = DeadlineWheel()
            self._deadlines.clear()  # in place: the lanes share these objects
            self._exempt.clear()
            self._damaged = SequenceSet()
            return taken
        held = len(self._deadlines) + len(self._exempt)
        for first, last in taken.ranges if self._damaged else ():
            self._damaged.remove_range(first, last)
        for first, last in taken.ranges if held else ():
            seqs: Iterable[int] = range(first, last + 1)
            if last - first > held:
                timed = (*self._deadlines, *self._exempt)
                seqs = [seq for seq in timed if first <= seq <= last]
            for seq in seqs:
                self._forget_deadline(seq)
        return taken

    def _forget_deadline(self, seq: int) -> None:
        deadline_ns = self._deadlines.pop(seq, None)
        if deadline_ns is not None:
            self._wheel.remove(seq, deadline_ns)
        self._exempt.discard(seq)

    def remove(self, seq: int) -> Removed | None:
        self._check_writable()
        with by_request(self._log):
            size = remove_one(self._log, seq, self._log.last_ts_ns)
        if not size:
            return None
        self._forget_deadline(seq)
        return Removed(1, size, ((seq, seq),))

    def remove_span(self, first: int, last: int) -> Removed:
        self._check_writable()
        with by_request(self._log):
            taken = take_span(self._log, first, last, self._log.last_ts_ns)
        return Removal().add(self._taken(taken)).removed()

    def erase(self, seq: int) -> Removed | Cold | None:
        self._check_writable()
        size = self._log.size_at(seq)
        with by_request(self._log):
            place = erase_one(self._log, seq, self._noise)
        if place is None or isinstance(place, Cold):
            return place
        self._forget_deadline(seq)
        self._overwritten(seq, *place)
        return Removed(1, size, ((seq, seq),))

    def _check_writable(self) -> None:
        """Raise StoreError if the store must not change any more; a memory store always may."""

    def _forgotten(self, blocks: list[int]) -> None:
        """Hook: these blocks are no longer part of the log."""

    def _overwritten(self, seq: int, block: int, place: int, length: int) -> None:
        """Hook: bytes that may be on disk have changed. A memory store does nothing."""

    def purge(
        self, *, subject: str | None = None, before_seq: int | None = None, keep: int = 0
    ) -> Removed:
        removal = Removal()
        step: PurgeStep | None = self.begin_purge(subject=subject, before_seq=before_seq, keep=keep)
        while step is not None:
            removed, step = self.purge_slice(step)
            removal.add_removed(removed)
        return removal.removed()

    def begin_purge(
        self, *, subject: str | None = None, before_seq: int | None = None, keep: int = 0
    ) -> PurgeStep:
        if keep and before_seq is not None:
            raise ValueError("keep and before_seq do not go together")
        subject = None if subject == ">" else subject
        bound = self._log.last_seq + 1 if before_seq is None else before_seq
        if keep and subject is None:
            return PurgeStep(None, self._nth_newest(keep))
        return PurgeStep(subject, bound, keep)

    def _nth_newest(self, n: int) -> int:
        """Return the sequence from which on there are `n` messages; 1 if there are fewer."""
        low, high = 1, self._log.last_seq + 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._log.count_from(middle) >= n:
                low = middle
            else:
                high = middle - 1
        return low

    def purge_slice(self, step: PurgeStep) -> tuple[Removed, PurgeStep | None]:
        self._check_writable()
        subject, bound, keep, start = step
        log = self._log
        if subject is None:
            return self._purge_span(step)
        if keep:
            seq, missing = newest_from(log, subject, keep, bound, SLICE_LOOKS)
            if not seq:
                return NOTHING_REMOVED, None  # fewer messages match than are to be kept
            return NOTHING_REMOVED, PurgeStep(subject, seq, missing)
        with by_request(self._log):
            taken, start = slice_matching(
                log, subject, start, bound, SLICE_MSGS, SLICE_LOOKS, log.last_ts_ns
            )
        rest = step._replace(start=start) if start < bound else None
        return Removal().add(self._taken(taken)).removed(), rest

    def _purge_span(self, step: PurgeStep) -> tuple[Removed, PurgeStep | None]:
        log, bound = self._log, step.bound
        if bound < 1:
            return NOTHING_REMOVED, None
        is_bounded = bound <= log.last_seq
        at_most = SLICE_MSGS if is_bounded else SEQ_MAX
        with by_request(self._log):
            taken = take_span(log, step.start, bound - 1, log.last_ts_ns, at_most=at_most)
        removed = Removal().add(self._taken(taken)).removed()
        if is_bounded and removed.msgs == SLICE_MSGS:
            return removed, step._replace(start=removed.seqs[-1][1] + 1)
        if bound > log.last_seq + 1:
            log.restart_at(bound)
        return removed, None

    def truncate(self, seq: int) -> Removed:
        self._check_writable()
        if seq > self._log.last_seq:
            raise ValueError(f"{seq} is behind the last sequence, {self._log.last_seq}")
        if seq == self._log.last_seq and self._log.ts_of(seq):
            return NOTHING_REMOVED  # the message of `seq` is live and the last one
        floor, losses = self._log.loss_floor, self._log.losses
        taken = take_span(self._log, seq + 1, SEQ_MAX, self._log.last_ts_ns, noted=False)
        # Truncated messages do not count as lost. Older messages that they displaced do.
        self._log.loss_floor = max(floor, seq) if taken.msgs else floor
        self._log.losses = losses + 1
        self._taken(taken)
        self._age_from = min(self._age_from, seq + 1)
        self._forgotten(self._log.truncate(seq))
        return Removal().add(taken).removed()

    # -- time

    def ttl_ns(self, seq: int) -> int:
        """Return the TTL a live message was appended with, so that a copy falls due with it."""
        if seq in self._exempt:
            return TTL_NEVER
        deadline_ns = self._deadlines.get(seq)
        return 0 if deadline_ns is None else deadline_ns - self._log.ts_of(seq)

    def expire(self, now_ns: int, *, at_most: int = EXPIRE_BATCH) -> Removed:
        self._check_writable()
        removal = Removal()
        self._expire_old(now_ns, at_most, removal)
        if removal.msgs < at_most:
            # In order, as `due` lists them: a newer message removed first counts as a loss.
            for seq in sorted(self._wheel.expire(now_ns, at_most=at_most - removal.msgs)):
                self._deadlines.pop(seq, None)
                size = remove_one(self._log, seq, now_ns)
                if size:
                    removal.one(seq, size)
        return removal.removed()

    def _expire_old(self, now_ns: int, at_most: int, removal: Removal) -> None:
        age_ns = self._limits.age_ns_max
        if age_ns <= 0:
            return
        if not self._exempt:
            taken = take_older(self._log, self._age_from, now_ns - age_ns, at_most, now_ns)
            removal.add(self._taken(taken))
            self._age_from = max(self._age_from, self._log.first_seq)
            return
        seq = self._first_aging()
        while seq and removal.msgs < at_most and self._log.ts_of(seq) + age_ns <= now_ns:
            if seq in self._exempt:  # too many exempt messages; the next call continues
                break
            removal.one(*self._take(seq, now_ns))
            self._age_from = seq + 1
            seq = self._first_aging()

    def _first_aging(self) -> int:
        seq, self._age_from = first_aging(self._log, self._exempt, self._age_from)
        return seq

    def due(self, now_ns: int, *, at_most: int = EXPIRE_BATCH) -> tuple[int, ...]:
        found: set[int] = set()
        age_ns = self._limits.age_ns_max
        seq, looks = self._first_aging() if age_ns > 0 else 0, 0
        while seq and len(found) < at_most and self._log.ts_of(seq) + age_ns <= now_ns:
            if seq not in self._exempt:
                found.add(seq)
            seq, looks = self._log.next_seq((), seq + 1) if looks < SLICE_LOOKS else 0, looks + 1
        timed = self._wheel.expire(now_ns, at_most=at_most)
        for seq in timed:
            self._wheel.add(seq, self._deadlines[seq])
        return tuple(sorted(found.union(timed))[:at_most])

    def next_deadline_ns(self) -> int | None:
        due = self._wheel.next_deadline_ns()
        age_ns = self._limits.age_ns_max
        if age_ns > 0 and (seq := self._first_aging()):
            old = self._log.ts_of(seq) + age_ns
            due = old if due is None else min(due, old)
        return due
