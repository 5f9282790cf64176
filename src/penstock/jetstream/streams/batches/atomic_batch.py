"""Atomic batches: messages that are stored together and consecutively, or not at all.

A batch is staged in memory, one numbered message at a time. The commit message runs the checks for
all messages and creates a single entry. Until then nothing of the batch is stored or visible. A
batch that is idle too long, skips a number or grows too large is abandoned. The number of batches
in flight is bounded per stream and per server.

Messages that need no checks are packed (`staged_batches`) until they are stored. They were plain
under the configuration at that time: a configuration change unpacks them, and they are checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.api import refusals
from penstock.api.advisories import BatchAbandoned
from penstock.api.api_subjects import BATCH_ABANDONED
from penstock.base.effects import Advise, Effect
from penstock.base.version import REFERENCE_API_LEVEL
from penstock.jetstream.streams import publish_headers
from penstock.jetstream.streams.batches.batch_checks import StagedPlanState, check_batched
from penstock.jetstream.streams.batches.staged_batches import (
    BATCH_ID_BYTES_MAX,
    Staged,
    StagedBatches,
)
from penstock.jetstream.streams.entries import Answer, BatchEntry, NotLoaded, Planned, Publish
from penstock.jetstream.streams.publish_checks import USED_UP, Duplicate, sequence_of
from penstock.store.contract import Cold
from penstock.store.index.message_pack import unpacked
from penstock.wire import headers

if TYPE_CHECKING:
    from penstock.api.refusals import ApiError
    from penstock.base.message import Inbound
    from penstock.jetstream.streams.batches.staged_batches import InFlight, StagedBatch
    from penstock.jetstream.streams.planner import Planner
    from penstock.jetstream.streams.publish_checks import Rejection
    from penstock.jetstream.streams.stream_state import Draft, PlanState

COMMIT: Final = b"1"
COMMIT_WITHOUT: Final = b"eob"
"""Ends the batch without being a message of it."""
COMMITS: Final = (COMMIT, COMMIT_WITHOUT)


class BatchLimits(NamedTuple):
    """Limits of batches."""

    msgs_max: int = 1_000
    """Messages of an atomic batch."""
    atomic_max: int = 50
    """Atomic batches in flight in one stream."""
    atomic_total_max: int = 1_000
    fast_max: int = 1_000
    fast_total_max: int = 50_000
    idle_ns_max: int = 10_000_000_000
    """A batch that is idle this long is abandoned."""


class AtomicBatches:
    """The atomic batches of one stream."""

    def __init__(
        self,
        plan_state: PlanState,
        planner: Planner,
        limits: BatchLimits,
        in_flight: InFlight,
    ) -> None:
        self._plan_state = plan_state
        self._planner = planner
        self._limits = limits
        self.staged_batches: Final = StagedBatches(limits, in_flight)

    def __len__(self) -> int:
        return len(self.staged_batches.batches)

    def plan(self, batch_id: bytes, msg: Inbound, now_ns: int) -> Planned:
        """Plan one message of a batch; a commit returns the entry of the whole batch."""
        subject, reply, header, payload = msg
        if self._has_room(msg) and self.staged_batches.add(subject, header, payload, now_ns):
            return Answer(self._planner.reply_to(reply, b""))
        fields = headers.parse(msg.header)
        fault = self._fault(batch_id, msg, fields)
        if fault is not None:
            return self._refuse(msg, fault)
        seq = sequence_of(fields.get(publish_headers.BATCH_SEQ, b""))
        commit = fields.get(publish_headers.BATCH_COMMIT)
        level = fields.get(publish_headers.REQUIRED_API_LEVEL)
        batch = self.staged_batches.batches.get(batch_id)
        if batch is None:
            fault = self._start_fault(seq, commit)
            if fault is not None:
                return self._refuse(msg, fault)
            batch = self.staged_batches.start(batch_id, now_ns)
        if level and (commit is None or commit in COMMITS):
            if not level.isdigit() or int(level[:9]) > REFERENCE_API_LEVEL:
                return self._abandon(batch_id, msg, "unsupported", refusals.REQUIRED_API_LEVEL)
            msg = msg._replace(
                header=headers.without(msg.header, publish_headers.REQUIRED_API_LEVEL)
            )
            fields = headers.parse(msg.header)
        return self._take(batch_id, batch, msg, fields, seq, commit, now_ns)

    def _has_room(self, msg: Inbound) -> bool:
        """Return whether the message is within the limits of the account and the stream."""
        plan_state, size_max = self._plan_state, self._plan_state.cfg.max_msg_size
        if 0 < size_max < len(msg.header) + len(msg.payload):
            return False
        ask = plan_state.may_store
        return ask is None or not ask(plan_state.size_of(msg.subject, msg.header, msg.payload))

    def _fault(self, batch_id: bytes, msg: Inbound, fields: dict[bytes, bytes]) -> ApiError | None:
        """Return the error of the message itself, before its batch is examined."""
        plan_state, cfg = self._plan_state, self._plan_state.cfg
        if cfg.sealed:
            return refusals.STREAM_SEALED
        refused = plan_state.may_store and plan_state.may_store(
            plan_state.size_of(msg.subject, *msg[2:])
        )
        if refused:
            return refused
        if 0 < cfg.max_msg_size < len(msg.header) + len(msg.payload):
            return refusals.STREAM_MESSAGE_EXCEEDS_MAXIMUM
        if not cfg.allow_atomic:
            return refusals.ATOMIC_PUBLISH_DISABLED
        if batch_id not in self.staged_batches.batches and len(batch_id) > BATCH_ID_BYTES_MAX:
            return refusals.ATOMIC_PUBLISH_INVALID_BATCH_ID
        number = fields.get(publish_headers.BATCH_SEQ)
        if not number or not number.isdigit() or (len(number) > 19 and int(number[:21]) >= 2**64):
            return refusals.ATOMIC_PUBLISH_MISSING_SEQ
        return None

    def _start_fault(self, seq: int, commit: bytes | None) -> ApiError | None:
        """Return why no batch can start with this message."""
        if seq != 1:
            return self._size_fault(seq, commit) or refusals.ATOMIC_PUBLISH_INCOMPLETE_BATCH
        is_crowded = len(self) >= self._limits.atomic_max
        if is_crowded or self.staged_batches.in_flight.atomic >= self._limits.atomic_total_max:
            return refusals.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT
        return None

    def _size_fault(self, seq: int, commit: bytes | None) -> ApiError | None:
        size = seq - 1 if commit == COMMIT_WITHOUT else seq
        if 0 <= size <= self._limits.msgs_max:  # unsigned in the reference: -1 is too large
            return None
        return refusals.ATOMIC_PUBLISH_TOO_LARGE_BATCH(size=self._limits.msgs_max)

    def _take(
        self,
        batch_id: bytes,
        batch: StagedBatch,
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
        batch.items.append(Staged(msg.subject, msg.header, msg.payload, fields))
        return Answer(self._planner.reply_to(msg.reply, b""))

    def _commit(
        self,
        batch_id: bytes,
        batch: StagedBatch,
        msg: Inbound,
        fields: dict[bytes, bytes],
        commit: bytes,
        now_ns: int,
    ) -> Planned:
        if commit == COMMIT_WITHOUT:
            _unpack(batch)  # the last message gets the commit header
        items, packed = batch.items, batch.packer.packed()
        if commit == COMMIT:
            items = [*items, Staged(msg.subject, msg.header, msg.payload, fields)]
        num_packed = batch.packer.count
        staged = StagedPlanState(self._plan_state, packed, num_packed)
        planned = self._plan_all(items, staged, now_ns)
        if isinstance(planned, Cold):
            # The caller repeats this call, so the batch must stay as it was.
            return NotLoaded(planned)
        self._drop(batch_id)
        if isinstance(planned, list) and self._plan_state.is_used_up(num_packed + len(planned)):
            planned = USED_UP
        if not isinstance(planned, list):
            return self._refuse(msg, planned)._replace(at_fault=staged.at_fault)
        if commit == COMMIT_WITHOUT:
            last = planned[-1]
            header = headers.added(last.header, publish_headers.BATCH_COMMIT, COMMIT)
            planned[-1] = Publish(
                last.ts_ns, last.subject, header, last.payload, special=last.special
            )
        count = num_packed + len(planned)
        name = _text(batch_id)
        return BatchEntry(planned[-1].ts_ns, name, tuple(planned), count, msg.reply, packed)

    def _plan_all(
        self, items: list[Staged], staged: StagedPlanState, now_ns: int
    ) -> list[Publish] | ApiError | Cold:
        planned: list[Publish] = []
        for item in items:
            draft = self._planner.draft(
                item.subject, "", item.header, item.payload, now_ns, fields=item.fields
            )
            rejection = _rejection(staged, draft)
            if rejection is not None:
                staged.at_fault = item.header
                return rejection
            staged.stage(draft)
            skip = self._planner.is_unwanted(draft.subject)
            planned.append(self._planner.publish(draft, skip=skip))
        return planned

    def _refuse(self, msg: Inbound, fault: ApiError) -> Answer:
        answer = self._planner.answer(fault, msg.reply)
        assert isinstance(answer, Answer)
        return answer

    def _abandon(self, batch_id: bytes, msg: Inbound, reason: str, fault: ApiError) -> Answer:
        advice = self._drop(batch_id, reason)
        answer = self._refuse(msg, fault)
        return answer._replace(effects=(*advice, *answer.effects))

    def _drop(self, batch_id: bytes, reason: str = "") -> tuple[Effect, ...]:
        self.staged_batches.drop(batch_id)
        if not reason:
            return ()
        stream = self._plan_state.cfg.name
        event = BatchAbandoned(stream=stream, batch=_text(batch_id), reason=reason)
        return (Advise(f"{BATCH_ABANDONED}{stream}", event),)

    # -- time

    def next_deadline_ns(self) -> int | None:
        """Return a time not later than the next expiry; messages move the deadlines of batches."""
        return self.staged_batches.wake_ns or None

    def expire(self, now_ns: int) -> tuple[Effect, ...]:
        """Abandon the batches that were idle too long."""
        batches = self.staged_batches.batches
        silent = [batch_id for batch_id, batch in batches.items() if batch.deadline_ns <= now_ns]
        effects = [effect for batch_id in silent for effect in self._drop(batch_id, "timeout")]
        deadlines = (batch.deadline_ns for batch in batches.values())
        self.staged_batches.wake_ns = min(deadlines, default=0)
        return tuple(effects)

    def reconfigured(self) -> None:
        """Unpack all batches: the new configuration may need other checks."""
        self.staged_batches.is_open = False  # until `configure_lane` opens it again
        for batch in self.staged_batches.batches.values():
            _unpack(batch)
        if not self._plan_state.cfg.allow_atomic:
            self.clear()

    def clear(self) -> None:
        """Drop all batches without an advisory: the stream closes or no longer allows them."""
        for batch_id in list(self.staged_batches.batches):
            self._drop(batch_id)


def _text(batch_id: bytes) -> str:
    return batch_id.decode("utf-8", "surrogateescape")


def _unpack(batch: StagedBatch) -> None:
    """Turn every packed message of the batch into an item, to be checked like others."""
    messages = unpacked(batch.take_packed())
    batch.items[:0] = [Staged(*message, headers.parse(message[1])) for message in messages]


def _rejection(staged: StagedPlanState, draft: Draft) -> ApiError | Cold | None:
    """Run the checks of batches; a duplicate is an error."""
    if draft.fields.get(publish_headers.EXPECTED_LAST_MSG_ID):
        key = publish_headers.EXPECTED_LAST_MSG_ID.decode()
        return refusals.ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH(header=key)
    rejection: Rejection = check_batched(staged, draft)
    if isinstance(rejection, Duplicate):
        return refusals.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE
    return rejection
