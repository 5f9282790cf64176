"""Checks of the messages of a batch: the rules of single messages, in the order of batches.

The messages of a batch are checked together, before any of them is stored, so each is checked
against the stream as it will be after its predecessors: `StagedPlanState` is the plan state with
the staged messages on top. A check that would depend on a write of the same batch rejects the
message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api import refusals
from penstock.api.stream_config import Discard
from penstock.jetstream.streams import counter, publish_checks, publish_headers, schedule
from penstock.jetstream.streams.stream_state import Draft, PlanState
from penstock.jetstream.streams.ttl import parse_ttl
from penstock.store.contract import Cold, MessageRecord, Missing, Refusal
from penstock.store.index.message_pack import holds_subject

if TYPE_CHECKING:
    from penstock.jetstream.streams.publish_checks import Rejection

_SUBJECT_AGAIN: Final = refusals.STREAM_ROLLUP_FAILED(err="batch rollup sub invalid")
_NOT_FIRST: Final = refusals.STREAM_ROLLUP_FAILED(err="batch rollup all invalid")


class StagedPlanState(PlanState):
    """The plan state as it will be once the messages staged so far are stored."""

    __slots__ = (
        "_base",
        "_bytes",
        "_newest",
        "_packed",
        "at_fault",
        "expected",
        "is_bounded",
        "msg_ids",
        "subjects",
    )

    def __init__(self, plan_state: PlanState, packed: bytes = b"", num_packed: int = 0) -> None:
        """`packed` and `num_packed`: the messages at the start of the batch that need no checks."""
        for name in PlanState.__slots__:
            if name != "recalled_seq":  # of recovery
                setattr(self, name, getattr(plan_state, name))
        self._base = plan_state
        self._packed = packed
        self.last_seq += num_packed
        self._bytes = 0
        self._newest: dict[str, tuple[int, Draft]] = {}
        self.is_bounded = self.cfg.discard is Discard.NEW
        """Whether the stream's limits reject messages; otherwise the staged size is not counted."""
        self.subjects: dict[str, int] = {}
        """Number of staged messages of each subject, without the packed ones."""
        self.msg_ids: set[bytes] = set()
        self.expected: dict[str, int] = {}
        """Last sequences that a check already read, by subject or pattern."""
        self.at_fault = b""
        """Header of the message that a check rejected."""

    def stage(self, draft: Draft) -> None:
        """Add a draft that passed the checks; the next draft comes after it."""
        self.last_seq += 1
        if self.is_bounded:
            self._bytes += self.size_of(draft.subject, draft.header, draft.payload)
        self._newest[draft.subject] = self.last_seq, draft
        self.subjects[draft.subject] = self.subjects.get(draft.subject, 0) + 1
        if draft.msg_id:
            self.msg_ids.add(draft.msg_id)

    @property
    def is_begun(self) -> bool:
        """Return whether the batch already has a message."""
        return bool(self.subjects or self._packed)

    def wrote(self, subject: str) -> bool:
        """Return whether the batch has a message of this subject."""
        return subject in self.subjects or holds_subject(self._packed, subject)

    def latest(self, subject: str) -> MessageRecord | Missing | Cold:
        staged = self._newest.get(subject)
        if staged is None:
            return self._base.latest(subject)
        seq, draft = staged
        return MessageRecord(seq, draft.now_ns, draft.subject, draft.header, draft.payload)

    def last_of(self, pattern: str) -> int:
        if pattern not in self.expected:
            self.expected[pattern] = self._base.last_of(pattern)
        return self.expected[pattern]

    def require_applied(self) -> None:
        self._base.require_applied()

    def find_id(self, msg_id: bytes, now_ns: int) -> int:
        return self._base.find_id(msg_id, now_ns)

    def refusal(self, subject: str, header: bytes, payload: bytes) -> Refusal | None:
        return self._base.refusal(subject, header, payload)

    def overflow(self, draft: Draft) -> Refusal | None:
        """Return which limit of a stream with discard policy `new` this message would exceed."""
        cfg = self.cfg
        if not self.is_bounded:
            return None
        self.require_applied()
        if cfg.max_msgs > 0 or cfg.max_bytes > 0:
            state = self.store.state()
            size = self._bytes + self.size_of(draft.subject, draft.header, draft.payload)
            staged = sum(self.subjects.values()) + 1
            if 0 < cfg.max_msgs < state.msgs + staged:
                return Refusal.MAX_MSGS
            if 0 < cfg.max_bytes < state.bytes + size:
                return Refusal.MAX_BYTES
        if cfg.discard_new_per_subject and cfg.max_msgs_per_subject > 0:
            return self._subject_overflow(draft)
        return None

    def _subject_overflow(self, draft: Draft) -> Refusal | None:
        if draft.fields.get(publish_headers.ROLLUP):
            return None
        states = self.store.subject_states(draft.subject)
        held = states[draft.subject].msgs if draft.subject in states else 0
        over = held + self.subjects.get(draft.subject, 0) + 1 > self.cfg.max_msgs_per_subject
        return Refusal.MAX_PER_SUBJECT if over else None


def header_size(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check the header's size; the total size was checked on arrival."""
    if len(draft.header) > publish_checks.HEADER_BYTES_MAX:
        return refusals.STREAM_HEADER_EXCEEDS_MAXIMUM
    return None


def ttl(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check that the stream allows TTLs and that the TTL is valid."""
    value = draft.fields.get(publish_headers.TTL)
    if not value or parse_ttl(value) == 0:
        return None
    return (
        publish_checks.ttl_value(plan_state, draft)
        if plan_state.cfg.allow_msg_ttl
        else (refusals.MESSAGE_TTL_DISABLED)
    )


def not_seen(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check that the message id is new, also within the batch."""
    assert isinstance(plan_state, StagedPlanState)
    draft.msg_id = draft.fields.get(publish_headers.MSG_ID, b"")
    if draft.msg_id in plan_state.msg_ids:
        return refusals.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE
    return publish_checks.not_seen(plan_state, draft)


def expected_last_seq(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check the expected last sequence, which only the first message of a batch may have."""
    assert isinstance(plan_state, StagedPlanState)
    rejection = publish_checks.expected_last_seq(plan_state, draft)
    if (
        rejection is None
        and draft.fields.get(publish_headers.EXPECTED_LAST_SEQ)
        and plan_state.is_begun
    ):
        return refusals.STREAM_WRONG_LAST_SEQUENCE_CONSTANT
    return rejection


def expected_subject_seq(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check that the batch has not written to the subject of the expectation."""
    assert isinstance(plan_state, StagedPlanState)
    if draft.fields.get(publish_headers.EXPECTED_SUBJECT_SEQ):
        other = schedule.text_of(draft.fields.get(publish_headers.EXPECTED_SUBJECT))
        if plan_state.wrote(other or draft.subject):
            return refusals.STREAM_WRONG_LAST_SEQUENCE_CONSTANT
    return publish_checks.expected_subject_seq(plan_state, draft)


def rollup(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check that a rollup does not remove messages of the same batch."""
    assert isinstance(plan_state, StagedPlanState)
    value = draft.fields.get(publish_headers.ROLLUP, b"").lower()
    rejection = publish_checks.rollup(plan_state, draft)
    if rejection is None and value == b"sub" and plan_state.wrote(draft.subject):
        return _SUBJECT_AGAIN
    return (
        _NOT_FIRST if rejection is None and value == b"all" and plan_state.is_begun else rejection
    )


def limits(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check that the stream has room for the whole batch."""
    assert isinstance(plan_state, StagedPlanState)
    refused = plan_state.overflow(draft)
    return None if refused is None else refusals.STREAM_STORE_FAILED(err=refused.value)


_HEADER_CHECKS: Final = publish_checks.KeyedChecks(
    (counter.increment, (publish_headers.INCR,)),
    (publish_checks.expected_stream, (publish_headers.EXPECTED_STREAM,)),
    (ttl, (publish_headers.TTL,)),
    (not_seen, (publish_headers.MSG_ID,)),
    (publish_checks.not_set_by_client, (publish_headers.STREAM_SOURCE,)),
)
_PLACE_CHECKS: Final = publish_checks.KeyedChecks(
    (expected_last_seq, (publish_headers.EXPECTED_LAST_SEQ,)),
    (
        expected_subject_seq,
        (publish_headers.EXPECTED_SUBJECT_SEQ, publish_headers.EXPECTED_SUBJECT),
    ),
    (schedule.schedule_allowed, (publish_headers.SCHEDULE, publish_headers.SCHEDULE_TIME_ZONE)),
    (schedule.scheduler_allowed, (publish_headers.SCHEDULE_NEXT, publish_headers.SCHEDULER)),
    (rollup, (publish_headers.ROLLUP, publish_headers.SCHEDULE)),
)


_MEMBER_KEYS: Final = frozenset({publish_headers.BATCH_ID, publish_headers.BATCH_SEQ})
"""Keys of every message of a batch; most messages have no others, and no check uses these."""


def check_batched(plan_state: StagedPlanState, draft: Draft) -> Rejection:
    """Run all checks of one message of a batch."""
    has_more = len(draft.fields) > len(_MEMBER_KEYS) or not draft.fields.keys() <= _MEMBER_KEYS
    rejection = header_size(plan_state, draft)
    if rejection is None and has_more:
        rejection = publish_checks.first_rejection(
            _HEADER_CHECKS.needed_by(draft.fields), plan_state, draft
        )
    if rejection is None:
        rejection = publish_checks.first_rejection(publish_checks.REWRITES, plan_state, draft)
    if rejection is None and has_more:
        rejection = publish_checks.first_rejection(
            _PLACE_CHECKS.needed_by(draft.fields), plan_state, draft
        )
    return limits(plan_state, draft) if rejection is None and plan_state.is_bounded else rejection
