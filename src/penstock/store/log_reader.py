"""The reading half of a store: messages, counts, positions and totals from its log.

Follows `contract.Store`. Reads change nothing, with one exception: a message found damaged is no
longer live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.sequences import SEQ_MAX
from penstock.store.contract import (
    SLICE_SUBJECTS,
    TIME_NS_MAX,
    Cold,
    MessageRecord,
    Missing,
    StoreState,
    SubjectState,
)
from penstock.store.index.message_log import DamagedRecord, MessageLog
from penstock.store.index.removal_index import lose_one
from penstock.store.index.seq_set import SequenceSet
from penstock.store.index.subject_table import SubjectTable

if TYPE_CHECKING:
    from array import array


class LogReader:
    """Queries on a log."""

    def __init__(self, log: MessageLog) -> None:
        self._log = log
        self._damaged = SequenceSet()

    def _forget_deadline(self, seq: int) -> None:
        """Forget the deadline of a message that is no longer live."""
        raise NotImplementedError

    @property
    def visible_seq(self) -> int:
        return min(self._log.last_seq, self._log.visible_max)

    def load(self, seq: int, *, unsynced: bool = False) -> MessageRecord | Missing | Cold:
        if seq > self._log.visible_max and not unsynced:
            return Missing.ABSENT
        try:
            found = self._log.load(seq)
        except DamagedRecord:
            self._note_damage(seq)
            return Missing.DAMAGED
        if found is None:
            return Missing.DAMAGED if seq in self._damaged else Missing.ABSENT
        return found

    def _note_damage(self, seq: int) -> None:
        """Mark a message that cannot be read as not live. Writes no record of it, so that the
        message can be found again if the disk returns it."""
        lose_one(self._log, seq)
        self._forget_deadline(seq)
        self._damaged.insert(seq)

    def load_last(
        self, subject: str, *, at_or_before: int | None = None, unsynced: bool = False
    ) -> MessageRecord | Missing | Cold:
        bound = self._log.last_seq if unsynced else self.visible_seq
        if at_or_before is not None:
            bound = min(bound, at_or_before)
        seq = self._log.last_match(subject, bound)
        return self.load(seq, unsynced=unsynced) if seq else Missing.ABSENT

    def next_match(
        self, filters: tuple[str, ...], start: int, *, unsynced: bool = False
    ) -> MessageRecord | Cold | None:
        last = SEQ_MAX if unsynced else self._log.visible_max
        while 0 < (seq := self._log.next_seq(filters, start)) <= last:
            found = self.load(seq, unsynced=unsynced)
            if not isinstance(found, Missing):
                return found
            start = seq + 1
        return None

    def num_pending(
        self,
        start: int,
        filters: tuple[str, ...],
        *,
        last_per_subject: bool = False,
        unsynced: bool = False,
    ) -> int:
        last = SEQ_MAX if unsynced else self.visible_seq
        return self._log.num_pending(start, filters, last=last, last_per_subject=last_per_subject)

    def seq_at_time(self, ts_ns: int) -> int:
        reached_ns = min(max(ts_ns, 0), TIME_NS_MAX)  # requests may name years up to 9999
        return self._log.seq_at_time(reached_ns) or self._log.last_seq + 1

    def subject_states(self, pattern: str = ">") -> dict[str, SubjectState]:
        states = self._log.subject_states(pattern)
        return {subject: SubjectState(*state) for subject, state in states.items()}

    def subject_table(self, pattern: str) -> SubjectTable:
        return SubjectTable(pattern)

    def fill_table(self, table: SubjectTable) -> bool:
        return table.collect(self._log, SLICE_SUBJECTS)

    def last_of_each(
        self, filters: tuple[str, ...], *, at_or_before: int | None = None
    ) -> array[int]:
        bound = self.visible_seq
        if at_or_before is not None:
            bound = min(bound, at_or_before)
        return self._log.last_of_each(filters, bound)

    def first_since(self, filters: tuple[str, ...], start: int) -> int:
        return self._log.first_since(filters, start)

    def next_seq(self, filters: tuple[str, ...], start: int) -> int:
        return self._log.next_seq(filters, start)

    def subject_of(self, seq: int) -> str | None:
        return self._log.subject_of(seq)

    def deleted_seqs(self, at_most: int) -> array[int]:
        return self._log.deleted_seqs(at_most)

    def state(self, *, deleted: bool = False) -> StoreState:
        log = self._log
        missing = None
        if deleted:
            missing = SequenceSet()
            for first, last in log.deleted_ranges():
                missing.insert_range(first, last)
        return StoreState(
            msgs=log.msgs,
            bytes=log.total_size,
            first_seq=log.first_seq,
            first_ts_ns=log.ts_of(log.first_seq),
            last_seq=log.last_seq,
            last_ts_ns=log.last_ts_ns,
            num_subjects=len(log.subjects),
            num_deleted=log.last_seq - log.first_seq + 1 - log.msgs if log.msgs else 0,
            deleted=missing,
            damaged=tuple(self._damaged.ranges()),
        )

    @property
    def last_seq(self) -> int:
        return self._log.last_seq

    @property
    def last_ts_ns(self) -> int:
        return self._log.last_ts_ns
