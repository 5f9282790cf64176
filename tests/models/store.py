"""A naive store: a dict from sequence to message, asked by looking at every one.

It follows `penstock.store.contract.Store` and shares no code with a real store: totals are added
up, limits are a loop that takes the first message until all is well. Nothing is ever cold, damaged
or unsynced.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.subjects import matches
from penstock.store.contract import (
    EXPIRE_BATCH,
    NOTHING_REMOVED,
    Appended,
    Limits,
    MessageRecord,
    Missing,
    Refusal,
    Removed,
    StoreState,
    SubjectState,
)
from penstock.store.index.seq_set import SequenceSet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.store.contract import Cold, Work


def file_size(subject: str, header: bytes, payload: bytes) -> int:
    """What a message counts in a file store of the reference: its record there."""
    return 22 + len(subject) + len(payload) + 8 + (4 + len(header) if header else 0)


def memory_size(subject: str, header: bytes, payload: bytes) -> int:
    """What a message counts in a memory store of the reference."""
    return len(subject) + len(header) + len(payload) + 16


@dataclass(slots=True)
class Kept:
    """A message, the size it counts, and when it is due: never, at a time, or by age alone."""

    record: MessageRecord
    size: int
    deadline_ns: int | None
    ages: bool

    def due_ns(self, age_ns_max: int) -> int | None:
        by_age = self.record.ts_ns + age_ns_max if age_ns_max > 0 and self.ages else None
        known = [at for at in (self.deadline_ns, by_age) if at is not None]
        return min(known, default=None)


class StoreModel:
    """Messages by sequence."""

    def __init__(
        self, limits: Limits | None = None, *, first_seq: int = 1, counts_as_file: bool = True
    ) -> None:
        self.limits = limits or Limits()
        self.size_of = file_size if counts_as_file else memory_size
        self.kept: dict[int, Kept] = {}
        self.last_seq = first_seq - 1
        self.last_ts_ns = 0
        self.loss_floor = 0
        self.losses = 0

    # -- looking

    def live(self, filters: tuple[str, ...] = (), start: int = 0) -> list[int]:
        """Sequences from `start` on that some filter matches, ascending."""
        return [
            seq
            for seq, kept in sorted(self.kept.items())
            if seq >= start
            and (not filters or any(matches(kept.record.subject, f) for f in filters))
        ]

    def of_subject(self, subject: str) -> list[int]:
        return [seq for seq in self.live() if self.kept[seq].record.subject == subject]

    @property
    def msgs(self) -> int:
        return len(self.kept)

    @property
    def bytes(self) -> int:
        return sum(kept.size for kept in self.kept.values())

    @property
    def first_seq(self) -> int:
        return min(self.kept, default=self.last_seq + 1)

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
        if seq is not None and seq <= self.last_seq:
            raise ValueError(f"{seq} is not behind {self.last_seq}")
        size = self.size_of(subject, header, payload)
        refused = None if admitted else self.refusal(subject, header, payload)
        if refused is not None:
            return refused
        self.last_seq = self.last_seq + 1 if seq is None else seq
        self.last_ts_ns = ts_ns
        record = MessageRecord(self.last_seq, ts_ns, subject, header, payload)
        deadline_ns = ts_ns + ttl_ns if ttl_ns > 0 else None
        self.kept[self.last_seq] = Kept(record, size, deadline_ns, ages=ttl_ns >= 0)
        return Appended(self.last_seq, self._enforce())

    def append_packed(self, packed: bytes, ts_ns: int) -> Removed:
        removed: list[Removed] = []
        while packed:
            sizes = struct.unpack_from("<III", packed)
            ends = list(itertools.accumulate(sizes, initial=12))
            subject, header, payload = (packed[i:j] for i, j in itertools.pairwise(ends))
            stored = self.append(subject.decode(), header, payload, ts_ns, admitted=True)
            assert isinstance(stored, Appended)
            removed.append(stored.removed)
            packed = packed[ends[-1] :]
        seqs = sorted(span for one in removed for span in one.seqs)
        return Removed(
            sum(one.msgs for one in removed), sum(one.bytes for one in removed), tuple(seqs)
        )

    def refusal(self, subject: str, header: bytes, payload: bytes) -> Refusal | None:
        limits, held = self.limits, self.of_subject(subject)
        size = self.size_of(subject, header, payload)
        if not limits.discard_new:
            return None
        full = 0 < limits.per_subject_max <= len(held)
        if full and limits.discard_new_per_subject:
            return Refusal.MAX_PER_SUBJECT
        if 0 < limits.msgs_max <= self.msgs and not full:
            return Refusal.MAX_MSGS
        makes_room = full and self.kept[held[0]].size >= size
        if 0 < limits.bytes_max < self.bytes + size and not makes_room:
            return Refusal.MAX_BYTES
        return None

    def _enforce(self) -> Removed:
        gone: dict[int, Kept] = {}
        self._enforce_subjects(gone)
        self._enforce_front(gone)
        return _removed(gone)

    def _enforce_subjects(self, gone: dict[int, Kept]) -> None:
        if self.limits.per_subject_max > 0:
            for subject in {kept.record.subject for kept in self.kept.values()}:
                for seq in self.of_subject(subject)[: -self.limits.per_subject_max]:
                    gone[seq] = self._pop(seq)

    def _enforce_front(self, gone: dict[int, Kept]) -> None:
        limits = self.limits
        while not limits.discard_new and (
            0 < limits.msgs_max < self.msgs or 0 < limits.bytes_max < self.bytes
        ):
            oldest = self.first_seq
            gone[oldest] = self._pop(oldest)

    def skip(self, first: int, last: int, ts_ns: int) -> None:
        if first != self.last_seq + 1 or last < first:
            raise ValueError(f"cannot skip {first} to {last} behind {self.last_seq}")
        self.last_seq = last
        self.last_ts_ns = ts_ns

    def note_lost(self, last: int) -> None:
        self.loss_floor = max(self.loss_floor, last)
        self.losses += 1

    def set_limits(self, limits: Limits) -> Removed:
        self.limits = limits
        gone: dict[int, Kept] = {}
        self._enforce_front(gone)
        self._enforce_subjects(gone)
        return _removed(gone)

    # -- reading

    @property
    def visible_seq(self) -> int:
        return self.last_seq

    def load(self, seq: int, *, unsynced: bool = False) -> MessageRecord | Missing:
        return self.kept[seq].record if seq in self.kept else Missing.ABSENT

    def load_last(
        self, subject: str, *, at_or_before: int | None = None, unsynced: bool = False
    ) -> MessageRecord | Missing:
        bound = self.last_seq if at_or_before is None else at_or_before
        found = [seq for seq in self.live((subject,)) if seq <= bound]
        return self.load(found[-1]) if found else Missing.ABSENT

    def next_match(
        self, filters: tuple[str, ...], start: int, *, unsynced: bool = False
    ) -> MessageRecord | None:
        found = self.live(filters, start)
        return self.kept[found[0]].record if found else None

    def num_pending(
        self,
        start: int,
        filters: tuple[str, ...],
        *,
        last_per_subject: bool = False,
        unsynced: bool = False,
    ) -> int:
        found = self.live(filters, start)
        if last_per_subject:
            return len({self.kept[seq].record.subject for seq in found})
        return len(found)

    def seq_at_time(self, ts_ns: int) -> int:
        young = [seq for seq in self.live() if self.kept[seq].record.ts_ns >= ts_ns]
        return min(young, default=self.last_seq + 1)

    def subject_states(self, pattern: str = ">") -> dict[str, SubjectState]:
        states = {}
        for seq in self.live((pattern,)):
            subject = self.kept[seq].record.subject
            held = self.of_subject(subject)
            states[subject] = SubjectState(held[0], held[-1], len(held))
        return states

    def last_of_each(self, filters: tuple[str, ...]) -> array[int]:
        lasts = {self.kept[seq].record.subject: seq for seq in self.live(filters)}
        return array("Q", sorted(lasts.values()))

    def state(self, *, deleted: bool = False) -> StoreState:
        gone = self._gaps()
        return StoreState(
            msgs=self.msgs,
            bytes=self.bytes,
            first_seq=self.first_seq,
            first_ts_ns=self.kept[self.first_seq].record.ts_ns if self.kept else 0,
            last_seq=self.last_seq,
            last_ts_ns=self.last_ts_ns,
            num_subjects=len({kept.record.subject for kept in self.kept.values()}),
            num_deleted=sum(last - first + 1 for first, last in gone),
            deleted=SequenceSet(gone) if deleted else None,
            damaged=(),
        )

    def _gaps(self) -> list[tuple[int, int]]:
        """What lies between one live sequence and the next, or the end."""
        seqs = [*self.live(), self.last_seq + 1]
        return [(a + 1, b - 1) for a, b in itertools.pairwise(seqs) if a + 1 < b]

    # -- removing

    def remove(self, seq: int) -> Removed | None:
        return self._take([seq], requested=True) if seq in self.kept else None

    def erase(self, seq: int) -> Removed | None:
        return self.remove(seq)

    def purge(
        self, *, subject: str | None = None, before_seq: int | None = None, keep: int = 0
    ) -> Removed:
        if keep and before_seq is not None:
            raise ValueError("keep and before_seq do not go together")
        victims = self.live() if subject is None else self.live((subject,))
        if before_seq is not None:
            victims = [seq for seq in victims if seq < before_seq]
            if subject in (None, ">"):
                self.last_seq = max(self.last_seq, before_seq - 1)
        taken = victims[: len(victims) - min(keep, len(victims))]
        return self._take(taken, requested=True)

    def truncate(self, seq: int) -> Removed:
        if seq > self.last_seq:
            raise ValueError(f"{seq} is behind the last sequence, {self.last_seq}")
        if seq == self.last_seq and seq in self.kept:
            return _removed({})
        floor, losses = self.loss_floor, self.losses
        removed = self._take(self.live(start=seq + 1))
        self.loss_floor = max(floor, seq) if removed.msgs else floor
        self.losses = losses + 1
        self.last_seq = seq
        self.last_ts_ns = self.kept[max(self.kept)].record.ts_ns if self.kept else 0
        return removed

    def expire(self, now_ns: int, *, at_most: int = EXPIRE_BATCH) -> Removed:
        return self._take(self.due(now_ns, at_most=at_most))

    def due(self, now_ns: int, *, at_most: int = EXPIRE_BATCH) -> tuple[int, ...]:
        due = [seq for seq in self.live() if (self._due_ns(seq) or now_ns + 1) <= now_ns]
        return tuple(due[:at_most])

    def next_deadline_ns(self) -> int | None:
        known = [at for at in map(self._due_ns, self.kept) if at is not None]
        return min(known, default=None)

    def _due_ns(self, seq: int) -> int | None:
        return self.kept[seq].due_ns(self.limits.age_ns_max)

    def _take(self, seqs: Iterable[int], *, requested: bool = False) -> Removed:
        return _removed({seq: self._pop(seq, requested=requested) for seq in seqs})

    def _pop(self, seq: int, *, requested: bool = False) -> Kept:
        of_subject = self.of_subject(self.kept[seq].record.subject)
        if seq == of_subject[-1]:
            self.loss_floor = max(self.loss_floor, seq)
            self.losses += requested or len(of_subject) > 1
        return self.kept.pop(seq)

    # -- the edge's part

    @property
    def lost(self) -> tuple[tuple[int, int], ...]:
        return ()

    @property
    def durable_seq(self) -> int:
        return self.last_seq

    @property
    def sync_wanted(self) -> bool:
        return False

    def pending_sync(self, *, write_only: bool = False) -> Work | None:
        return None

    def synced(self, work: Work, failure: Exception | None = None) -> None:
        raise ValueError("a model has no disk")

    def fetch(self, cold: Cold) -> Work:
        raise ValueError("a model is never cold")

    def fetched(self, work: Work) -> None:
        raise ValueError("a model is never cold")

    def close(self) -> None:
        """Nothing to let go of."""


def _removed(gone: dict[int, Kept]) -> Removed:
    if not gone:
        return NOTHING_REMOVED
    ranges = tuple((seq, seq) for seq in sorted(gone))
    return Removed(len(gone), sum(kept.size for kept in gone.values()), ranges)
