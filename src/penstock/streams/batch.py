"""Atomic batches: messages that are stored together, in a row, or not at all.

A batch is gathered in memory, message by message, each numbered; the one that commits brings all
of them before the checks at once and makes a single entry. Until then nothing of it is stored and
nobody sees it. A batch that goes silent, skips a number or grows too large is given up. How many
may be under way is bounded, for a stream and for the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.api import refusals
from penstock.api.advisories import BatchAbandoned
from penstock.api.subjects import BATCH_ABANDONED
from penstock.base.effects import Advise, Effect
from penstock.base.version import REFERENCE_API_LEVEL
from penstock.store.contract import Cold
from penstock.streams import names
from penstock.streams.batch_checks import StagedLedger, judge_batched
from penstock.streams.checks import Duplicate, sequence_of
from penstock.streams.entries import Answer, Batch, NotLoaded, Planned, Publish
from penstock.wire import headers

if TYPE_CHECKING:
    from penstock.api.refusals import ApiError
    from penstock.base.message import Inbound
    from penstock.streams.checks import Verdict
    from penstock.streams.ledger import Draft, Ledger
    from penstock.streams.planner import Planner

BATCH_ID_BYTES_MAX: Final = 64
COMMIT: Final = b"1"
COMMIT_WITHOUT: Final = b"eob"
"""Ends the batch and is no message of it."""
COMMITS: Final = (COMMIT, COMMIT_WITHOUT)


class BatchLimits(NamedTuple):
    """What batches may cost."""

    msgs_max: int = 1_000
    """Messages of an atomic batch."""
    atomic_max: int = 50
    """Atomic batches under way in one stream."""
    atomic_total_max: int = 1_000
    fast_max: int = 1_000
    fast_total_max: int = 50_000
    idle_ns_max: int = 10_000_000_000
    """A batch silent for so long is given up."""


class InFlight:
    """How many batches are under way in all streams that share this count."""

    def __init__(self) -> None:
        self.atomic = 0
        self.fast = 0


class _Staged(NamedTuple):
    subject: str
    header: bytes
    payload: bytes
    fields: dict[bytes, bytes]


class _Gathering:
    """A batch under way."""

    __slots__ = ("deadline_ns", "items", "last")

    def __init__(self) -> None:
        self.items: list[_Staged] = []
        self.last = 0
        self.deadline_ns = 0


class AtomicBatches:
    """The atomic batches of one stream."""

    def __init__(
        self,
        ledger: Ledger,
        planner: Planner,
        limits: BatchLimits,
        in_flight: InFlight,
    ) -> None:
        self._ledger = ledger
        self._planner = planner
        self._limits = limits
        self._in_flight = in_flight
        self._gathering: dict[str, _Gathering] = {}
        self._wake_ns = 0  # no batch has an earlier deadline; 0 if there is none

    def __len__(self) -> int:
        return len(self._gathering)

    def plan(self, batch_id: str, msg: Inbound, now_ns: int) -> Planned:
        """One more message of a batch; the entry of all of them if it commits."""
        fields = headers.parse(msg.header)
        fault = self._fault(batch_id, msg, fields)
        if fault is not None:
            return self._refuse(msg, fault)
        seq = sequence_of(fields.get(names.BATCH_SEQ, b""))
        commit = fields.get(names.BATCH_COMMIT)
        level = fields.get(names.REQUIRED_API_LEVEL)
        batch = self._gathering.get(batch_id)
        if batch is None:
            fault = self._start_fault(seq, commit)
            if fault is not None:
                return self._refuse(msg, fault)
            batch = self._gathering[batch_id] = _Gathering()
            batch.deadline_ns = now_ns + self._limits.idle_ns_max
            self._wake_ns = self._wake_ns or batch.deadline_ns
            self._in_flight.atomic += 1
        if level and (commit is None or commit in COMMITS):
            if not level.isdigit() or int(level[:9]) > REFERENCE_API_LEVEL:
                return self._abandon(batch_id, msg, "unsupported", refusals.REQUIRED_API_LEVEL)
            msg = msg._replace(header=headers.without(msg.header, names.REQUIRED_API_LEVEL))
            fields = headers.parse(msg.header)
        return self._take(batch_id, batch, msg, fields, seq, commit, now_ns)

    def _fault(self, batch_id: str, msg: Inbound, fields: dict[bytes, bytes]) -> ApiError | None:
        """What is wrong with the message by itself, before its batch is looked at."""
        ledger, cfg = self._ledger, self._ledger.cfg
        if cfg.sealed:
            return refusals.STREAM_SEALED
        refused = ledger.may_store and ledger.may_store(ledger.size_of(msg.subject, *msg[2:]))
        if refused:
            return refused
        if 0 < cfg.max_msg_size < len(msg.header) + len(msg.payload):
            return refusals.STREAM_MESSAGE_EXCEEDS_MAXIMUM
        if not cfg.allow_atomic:
            return refusals.ATOMIC_PUBLISH_DISABLED
        if batch_id not in self._gathering and _is_too_long(batch_id):
            return refusals.ATOMIC_PUBLISH_INVALID_BATCH_ID
        number = fields.get(names.BATCH_SEQ)
        if not number or not number.isdigit() or (len(number) > 19 and int(number[:21]) >= 2**64):
            return refusals.ATOMIC_PUBLISH_MISSING_SEQ
        return None

    def _start_fault(self, seq: int, commit: bytes | None) -> ApiError | None:
        """Why no batch can start with this message."""
        if seq != 1:
            return self._size_fault(seq, commit) or refusals.ATOMIC_PUBLISH_INCOMPLETE_BATCH
        is_crowded = len(self._gathering) >= self._limits.atomic_max
        if is_crowded or self._in_flight.atomic >= self._limits.atomic_total_max:
            return refusals.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT
        return None

    def _size_fault(self, seq: int, commit: bytes | None) -> ApiError | None:
        size = seq - 1 if commit == COMMIT_WITHOUT else seq
        if 0 <= size <= self._limits.msgs_max:  # the reference counts without sign
            return None
        return refusals.ATOMIC_PUBLISH_TOO_LARGE_BATCH(size=self._limits.msgs_max)

    def _take(
        self,
        batch_id: str,
        batch: _Gathering,
        msg: Inbound,
        fields: dict[bytes, bytes],
        seq: int,
        commit: bytes | None,
        now_ns: int,
    ) -> Planned:
        if commit is not None and commit not in COMMITS:
            self._drop(batch_id)
            return self._refuse(msg, refusals.ATOMIC_PUBLISH_INVALID_BATCH_COMMIT)
        if seq != batch.last + 1 or (seq == 1 and commit == COMMIT_WITHOUT):
            fault = refusals.ATOMIC_PUBLISH_INCOMPLETE_BATCH
            return self._abandon(batch_id, msg, "incomplete", fault)
        size_fault = self._size_fault(seq, commit)
        if size_fault is not None:
            return self._abandon(batch_id, msg, "large", size_fault)
        if commit is not None:
            return self._commit(batch_id, batch, msg, fields, commit, now_ns)
        batch.last = seq
        batch.deadline_ns = now_ns + self._limits.idle_ns_max
        batch.items.append(_Staged(msg.subject, msg.header, msg.payload, fields))
        return Answer(self._planner.said(msg.reply, b""))

    def _commit(
        self,
        batch_id: str,
        batch: _Gathering,
        msg: Inbound,
        fields: dict[bytes, bytes],
        commit: bytes,
        now_ns: int,
    ) -> Planned:
        items = batch.items
        if commit == COMMIT:
            items = [*items, _Staged(msg.subject, msg.header, msg.payload, fields)]
        planned = self._plan_all(items, now_ns)
        if isinstance(planned, Cold):
            # The message will come again, and find the batch as it was.
            return NotLoaded(planned)
        self._drop(batch_id)
        if not isinstance(planned, list):
            return self._refuse(msg, planned)
        if commit == COMMIT_WITHOUT:
            last = planned[-1]
            header = headers.added(last.header, names.BATCH_COMMIT, COMMIT)
            planned[-1] = Publish(
                last.ts_ns, last.subject, header, last.payload, special=last.special
            )
        return Batch(planned[-1].ts_ns, batch_id, tuple(planned), len(planned), msg.reply)

    def _plan_all(self, items: list[_Staged], now_ns: int) -> list[Publish] | ApiError | Cold:
        staged = StagedLedger(self._ledger)
        planned: list[Publish] = []
        for item in items:
            draft = self._planner.draft(
                item.subject, "", item.header, item.payload, now_ns, fields=item.fields
            )
            verdict = _verdict(staged, draft)
            if verdict is not None:
                return verdict
            staged.stage(draft)
            skip = self._planner.is_unwanted(draft.subject)
            planned.append(self._planner.publish(draft, skip=skip))
        return planned

    def _refuse(self, msg: Inbound, fault: ApiError) -> Answer | NotLoaded:
        return self._planner.answer(fault, msg.reply)

    def _abandon(self, batch_id: str, msg: Inbound, reason: str, fault: ApiError) -> Answer:
        advice = self._drop(batch_id, reason)
        answer = self._refuse(msg, fault)
        assert isinstance(answer, Answer)
        return answer._replace(effects=(*advice, *answer.effects))

    def _drop(self, batch_id: str, reason: str = "") -> tuple[Effect, ...]:
        del self._gathering[batch_id]
        self._in_flight.atomic -= 1
        if not self._gathering:
            self._wake_ns = 0
        if not reason:
            return ()
        stream = self._ledger.cfg.name
        event = BatchAbandoned(stream=stream, batch=batch_id, reason=reason)
        return (Advise(f"{BATCH_ABANDONED}{stream}", event),)

    # -- time

    def next_deadline_ns(self) -> int | None:
        """When the next batch may be given up, or earlier: batches move their deadlines on."""
        return self._wake_ns or None

    def expire(self, now_ns: int) -> tuple[Effect, ...]:
        """Gives up the batches that were silent for too long."""
        silent = [
            batch_id for batch_id, batch in self._gathering.items() if batch.deadline_ns <= now_ns
        ]
        effects = [effect for batch_id in silent for effect in self._drop(batch_id, "timeout")]
        self._wake_ns = min((batch.deadline_ns for batch in self._gathering.values()), default=0)
        return tuple(effects)

    def clear(self) -> None:
        """Forgets all batches, without a word: the stream ends or does not take them any more."""
        for batch_id in list(self._gathering):
            self._drop(batch_id)


def _is_too_long(batch_id: str) -> bool:
    return len(batch_id.encode("utf-8", "surrogateescape")) > BATCH_ID_BYTES_MAX


def _verdict(staged: StagedLedger, draft: Draft) -> ApiError | Cold | None:
    """As the checks of batches, where a duplicate is a fault like others."""
    if draft.fields.get(names.EXPECTED_LAST_MSG_ID):
        key = names.EXPECTED_LAST_MSG_ID.decode()
        return refusals.ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH(header=key)
    verdict: Verdict = judge_batched(staged, draft)
    if isinstance(verdict, Duplicate):
        return refusals.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE
    return verdict
