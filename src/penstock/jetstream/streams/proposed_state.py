"""Proposed state: a stream as it will be once the entries in flight are applied.

A leader plans the next message before the replicas have the last one. `ProposedState` answers the
questions of the checks with the entries in flight on top of the applied state. Invariant: an answer
is what the applied state will answer after those entries, or the question raises `AwaitsApply`: the
caller plans the message again when an entry was applied. Appends, ids, counters and sequences are
tracked. Whether removals, limits or a new configuration change an answer is not: those questions
wait. `ReplicatedStream` reports each entry with `proposed`, then with `applied`, in order.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from penstock.jetstream.streams.entries import BatchEntry, Publish, Purge, Skip, Special, Update
from penstock.jetstream.streams.stream_state import PlanState
from penstock.store.contract import MessageRecord
from penstock.store.index.message_pack import unpacked
from penstock.subjects.tokens import has_wildcard

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.api.refusals import ApiError
    from penstock.api.stream_config import StreamConfig
    from penstock.jetstream.streams.dedupe import DuplicateWindow
    from penstock.jetstream.streams.entries import Entry
    from penstock.jetstream.streams.source_progress import SourceRef
    from penstock.jetstream.streams.stream_parts import StreamParts
    from penstock.store.contract import Cold, Missing, Refusal, Store

PLAIN = Special()


class AwaitsApply(Exception):
    """The answer depends on an entry in flight in a way that is not tracked."""


class _Staged(NamedTuple):
    """What an entry in flight adds to the state."""

    messages: tuple[tuple[int, str, bytes, bool], ...] = ()
    """Sequence, subject and id of each message, and whether it is stored."""
    size: int = 0
    removes: bool = False
    """Whether it removes messages in a way that is not tracked."""
    blocks: bool = False
    """Whether every plan depends on it: a configuration, or a purge that moves the end."""


class ProposedState(PlanState):
    """The applied state of a stream with the entries in flight on top."""

    __slots__ = (
        "_applied",
        "_blocks",
        "_end",
        "_ids",
        "_in_flight",
        "_msgs",
        "_newest",
        "_per_subject",
        "_removes",
        "_size",
    )

    def __init__(self, applied: PlanState) -> None:
        self._applied = applied
        self.clear()

    def clear(self) -> None:
        """Forget the entries in flight: they are dropped."""
        self._in_flight: deque[_Staged] = deque()
        self._end = (0, 0, b"")  # last sequence, time and id
        self._ids: dict[bytes, tuple[int, int]] = {}
        self._newest: dict[str, tuple[int, Publish]] = {}
        self._per_subject: dict[str, int] = {}
        self._msgs = self._size = self._removes = self._blocks = 0

    # -- entries

    def proposed(self, entry: Entry) -> None:
        """Put an entry on top of the state."""
        staged = self._staged(entry)
        self._in_flight.append(staged)
        self._msgs += sum(stored for *_, stored in staged.messages)
        self._size += staged.size
        self._removes += staged.removes
        self._blocks += staged.blocks

    def _staged(self, entry: Entry) -> _Staged:
        if isinstance(entry, Publish):
            return self._stage((entry,))
        if isinstance(entry, BatchEntry):
            packed = (Publish(entry.ts_ns, *each) for each in unpacked(entry.packed))
            return self._stage((*packed, *entry.items))
        if isinstance(entry, Skip):
            self._end = (entry.seqs[1], entry.ts_ns, self.last_msg_id)
            return _Staged()
        moves_end = isinstance(entry, Purge) and entry.before_seq > self.last_seq
        self._end = (self.last_seq, self.last_ts_ns, self.last_msg_id)
        return _Staged(removes=True, blocks=moves_end or isinstance(entry, Update))

    def _stage(self, messages: tuple[Publish, ...]) -> _Staged:
        staged: list[tuple[int, str, bytes, bool]] = []
        seq, size, removes = self.last_seq, 0, False
        for each in messages:
            special = each.special or PLAIN
            seq = special.origin_seq or seq + 1
            if special.msg_id:
                self._ids[special.msg_id] = (seq, each.ts_ns)
            if not special.skip:
                size += self.size_of(each.subject, each.header, each.payload)
                self._newest[each.subject] = (seq, each)
                self._per_subject[each.subject] = self._per_subject.get(each.subject, 0) + 1
            removes |= bool(special.rollup or special.purged)
            staged.append((seq, each.subject, special.msg_id, not special.skip))
            self._end = (seq, each.ts_ns, special.msg_id)
        return _Staged(tuple(staged), size, removes)

    def applied(self) -> None:
        """Take the oldest entry off: it is part of the applied state now."""
        staged = self._in_flight.popleft()
        if not self._in_flight:
            self.clear()
            return
        self._size -= staged.size
        self._removes -= staged.removes
        self._blocks -= staged.blocks
        for seq, subject, msg_id, is_stored in staged.messages:
            if msg_id and self._ids[msg_id][0] == seq:
                del self._ids[msg_id]
            if not is_stored:
                continue
            self._msgs -= 1
            self._per_subject[subject] -= 1
            if self._newest[subject][0] == seq:
                del self._newest[subject], self._per_subject[subject]

    # -- questions

    def require_applied(self) -> None:
        """Raise AwaitsApply while entries are in flight."""
        if self._in_flight:
            raise AwaitsApply

    def require_plannable(self) -> None:
        """Raise AwaitsApply while an entry is in flight that every plan depends on."""
        if self._blocks:
            raise AwaitsApply

    @property
    def last_seq(self) -> int:  # type: ignore[override]
        return self._end[0] if self._in_flight else self._applied.last_seq

    @property
    def last_ts_ns(self) -> int:  # type: ignore[override]
        return self._end[1] if self._in_flight else self._applied.last_ts_ns

    @property  # type: ignore[misc]
    def last_msg_id(self) -> bytes:
        return self._end[2] if self._in_flight else self._applied.last_msg_id

    def find_id(self, msg_id: bytes, now_ns: int) -> int:
        seq, ts_ns = self._ids.get(msg_id, (0, 0))
        if seq and now_ns - ts_ns < self.dedupe.window_ns:
            return seq
        return self._applied.find_id(msg_id, now_ns)

    def latest(self, subject: str) -> MessageRecord | Missing | Cold:
        if self._in_flight:
            self._require_kept()
            found = self._newest.get(subject)
            if found is not None:
                seq, message = found
                rest = (subject, message.header, message.payload)
                return MessageRecord(seq, message.ts_ns, *rest)
        return self._applied.latest(subject)

    def last_of(self, pattern: str) -> int:
        if self._in_flight:
            self._require_kept()
            if has_wildcard(pattern):
                raise AwaitsApply
            found = self._newest.get(pattern)
            if found is not None:
                return found[0]
        return self._applied.last_of(pattern)

    def _require_kept(self) -> None:
        """Raise AwaitsApply if an entry in flight may remove the newest message of a subject."""
        cfg = self.cfg
        if self._removes or self.store.is_over:
            raise AwaitsApply
        if cfg.max_msgs > 0 or cfg.max_bytes > 0:
            state = self.store.state()
            if 0 < cfg.max_msgs < state.msgs + self._msgs:
                raise AwaitsApply
            if 0 < cfg.max_bytes < state.bytes + self._size:
                raise AwaitsApply

    def refusal(self, subject: str, header: bytes, payload: bytes) -> Refusal | None:
        if not self._in_flight or not self.parts.limits.discard_new:
            return self._applied.refusal(subject, header, payload)
        # Removals only make room, so a message that fits beside everything in flight fits.
        limits, state = self.parts.limits, self.store.state()
        size = self._size + self.size_of(subject, header, payload)
        held = self.store.subject_states(subject).get(subject)
        of_subject = self._per_subject.get(subject, 0) + (0 if held is None else held.msgs)
        fits = (
            not 0 < limits.msgs_max <= state.msgs + self._msgs
            and not 0 < limits.bytes_max < state.bytes + size
            and not (limits.discard_new_per_subject and 0 < limits.per_subject_max <= of_subject)
        )
        if not fits:
            raise AwaitsApply
        return None

    @property
    def may_store(self) -> Callable[[int], ApiError | None] | None:  # type: ignore[override]
        ask, size = self._applied.may_store, self._size
        return ask if ask is None or not size else lambda n: ask(n + size)

    # -- what is the same in the applied state

    @property
    def cfg(self) -> StreamConfig:  # type: ignore[override]
        return self._applied.cfg

    @property
    def parts(self) -> StreamParts:  # type: ignore[override]
        return self._applied.parts

    @property
    def store(self) -> Store:  # type: ignore[override]
        return self._applied.store

    @property
    def dedupe(self) -> DuplicateWindow:  # type: ignore[override]
        return self._applied.dedupe

    @property
    def has_interest(self) -> Callable[[str], bool]:  # type: ignore[override]
        return self._applied.has_interest

    @property
    def max_payload(self) -> int:  # type: ignore[override]
        return self._applied.max_payload

    @property
    def sources(self) -> dict[str, SourceRef]:  # type: ignore[override]
        return self._applied.sources
