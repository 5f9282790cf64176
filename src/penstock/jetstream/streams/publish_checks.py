"""The checks of a published message, in order: the first failure is the reply.

The order is part of compatibility: clients see which of two errors is reported. A check reads the
plan state, fills in the draft and returns None, an error, the duplicate, or the block it needs in
memory. The checks of a feature live in its module (`counter`, `schedule`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from penstock.api import refusals
from penstock.api.asset_names import byte_length
from penstock.api.refusals import ApiError
from penstock.base.units import SECOND_NS
from penstock.jetstream.streams import counter, publish_headers, schedule
from penstock.jetstream.streams.entries import ROLLUP_ALL, ROLLUP_SUBJECT
from penstock.jetstream.streams.pubacks import go_quoted
from penstock.jetstream.streams.ttl import parse_ttl, ttl_ns
from penstock.store.contract import Cold
from penstock.wire import headers

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.jetstream.streams.stream_state import Draft, PlanState

HEADER_BYTES_MAX: Final = 65_535
SEQUENCE_DIGITS_MAX: Final = 20
SUBJECT_BYTES_MAX: Final = 65_535
"""Limit for a stored message: a record stores the length in 16 bits."""
SUBJECT_LENGTH_MAX: Final = SUBJECT_BYTES_MAX // 4
"""A subject of at most this many characters always fits SUBJECT_BYTES_MAX."""
UNREADABLE: Final = 2**64 - 1
"""Value of an unparsable sequence; no stream has this sequence."""

USED_UP: Final = refusals.STREAM_STORE_FAILED(err="no sequence is left in the stream")
"""The error for a message that would need a sequence after SEQ_MAX."""
NOT_PERMITTED: Final = refusals.STREAM_ROLLUP_FAILED(err="rollup not permitted")


class Duplicate(NamedTuple):
    """A message with the same id was stored under this sequence."""

    seq: int


Rejection: TypeAlias = ApiError | Duplicate | Cold | None
Check: TypeAlias = "Callable[[PlanState, Draft], Rejection]"


def sequence_of(value: bytes) -> int:
    """Parse the sequence in an expectation header; UNREADABLE if it is invalid."""
    if not value.isdigit() or len(value) > SEQUENCE_DIGITS_MAX:
        return UNREADABLE
    return int(value)


def not_sealed(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check that the stream is not sealed."""
    return refusals.STREAM_SEALED if plan_state.cfg.sealed else None


def small_enough(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check the sizes of subject, header and payload."""
    size_max = plan_state.cfg.max_msg_size
    if len(draft.subject) > SUBJECT_LENGTH_MAX and byte_length(draft.subject) > SUBJECT_BYTES_MAX:
        return refusals.STREAM_MESSAGE_EXCEEDS_MAXIMUM  # a subject transform can exceed the limit
    if 0 < size_max < len(draft.header) + len(draft.payload):
        return refusals.STREAM_MESSAGE_EXCEEDS_MAXIMUM
    if len(draft.header) > HEADER_BYTES_MAX:
        return refusals.STREAM_HEADER_EXCEEDS_MAXIMUM
    return None


def expected_stream(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check that the publisher expects this stream."""
    name = draft.fields.get(publish_headers.EXPECTED_STREAM)
    if name and name != plan_state.cfg.name.encode():
        return refusals.STREAM_NOT_MATCH
    return None


def ttl_allowed(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check that the stream allows TTLs. `ttl_value` rejects invalid values later."""
    value = draft.fields.get(publish_headers.TTL)
    if value and not draft.is_internal and not plan_state.cfg.allow_msg_ttl and parse_ttl(value):
        return refusals.MESSAGE_TTL_DISABLED
    return None


def expected_subject_seq(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check the expected last sequence of the subject, or of the subject the publisher names."""
    value = draft.fields.get(publish_headers.EXPECTED_SUBJECT_SEQ)
    other = draft.fields.get(publish_headers.EXPECTED_SUBJECT)
    if not value:
        return refusals.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID if other else None
    subject = other.decode("utf-8", "surrogateescape") if other else draft.subject
    last = plan_state.last_of(subject)
    return None if last == sequence_of(value) else refusals.STREAM_WRONG_LAST_SEQUENCE(seq=last)


def expected_last_seq(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check the expected last sequence of the stream."""
    value = draft.fields.get(publish_headers.EXPECTED_LAST_SEQ)
    if not value or sequence_of(value) == plan_state.last_seq:
        return None
    return refusals.STREAM_WRONG_LAST_SEQUENCE(seq=plan_state.last_seq)


def not_set_by_client(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check that only the server sets the source header."""
    if draft.fields.get(publish_headers.STREAM_SOURCE) and not draft.is_internal:
        return refusals.MESSAGE_SOURCE_HDR_NOT_ALLOWED
    return None


def not_seen(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check that the message id is new. A mirror stores everything its origin stored."""
    draft.msg_id = draft.fields.get(publish_headers.MSG_ID, b"")
    if not draft.msg_id or plan_state.cfg.mirror is not None:
        return None
    seq = plan_state.find_id(draft.msg_id, draft.now_ns)
    return Duplicate(seq) if seq else None


def expected_last_msg_id(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check the expected id of the last stored message."""
    value = draft.fields.get(publish_headers.EXPECTED_LAST_MSG_ID)
    if not value or value == plan_state.last_msg_id:
        return None
    return refusals.STREAM_WRONG_LAST_MSG_ID(id=plan_state.last_msg_id.decode("utf-8", "replace"))


def rollup(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check that a rollup is allowed and valid. In messages that the server itself publishes, a
    rollup that the stream does not allow is ignored."""
    value = draft.fields.get(publish_headers.ROLLUP, b"").lower()
    if not value:
        return None
    if not plan_state.may_roll_up and not draft.is_internal:
        return NOT_PERMITTED
    if value not in (b"sub", b"all"):
        quoted = go_quoted(value.decode("utf-8", "replace")).decode()
        return refusals.STREAM_ROLLUP_FAILED(err=f"rollup value invalid: {quoted}")
    if plan_state.may_roll_up:
        draft.rollup = ROLLUP_SUBJECT if value == b"sub" else ROLLUP_ALL
    return None


def resources(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check that the account and the server have room."""
    if plan_state.may_store is None:
        return None
    return plan_state.may_store(plan_state.size_of(draft.subject, draft.header, draft.payload))


def ttl_value(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check the TTL and set it in the draft. A TTL shorter than the delete marker's TTL is raised
    to it."""
    value = draft.fields.get(publish_headers.TTL)
    if not value:
        return None
    seconds = parse_ttl(value)
    if seconds is None:
        return refusals.MESSAGE_TTL_INVALID
    cfg = plan_state.cfg
    seconds_min = cfg.subject_delete_marker_ttl // SECOND_NS
    if 0 < seconds < seconds_min and cfg.max_msgs_per_subject != 1:
        seconds = seconds_min
        stripped = headers.without(draft.header, publish_headers.TTL)
        draft.header = headers.added(stripped, publish_headers.TTL, b"%d" % seconds)
    if seconds < 0 or cfg.allow_msg_ttl:
        draft.ttl_ns = ttl_ns(seconds, draft.now_ns)
    return None


def limits(plan_state: PlanState, draft: Draft) -> Rejection:
    """Check the stream's limits. A rollup passes the per-subject limit: it frees the room
    itself."""
    refused = plan_state.refusal(draft.subject, draft.header, draft.payload)
    if refused is None:
        return None
    if refused is refused.MAX_PER_SUBJECT and draft.fields.get(publish_headers.ROLLUP):
        return None
    return refusals.STREAM_STORE_FAILED(err=refused.value)


class KeyedChecks:
    """Checks in order, each run only for the header keys that need it. Most messages have at most
    one special key."""

    def __init__(self, *table: tuple[Check, tuple[bytes, ...]]) -> None:
        self._table = table
        self._bits: dict[bytes, int] = {}
        self._rows: dict[int, tuple[Check, ...]] = {}
        for at, (_, keys) in enumerate(table):
            for key in keys:
                self._bits[key] = self._bits.get(key, 0) | 1 << at

    def needed_by(self, fields: dict[bytes, bytes]) -> tuple[Check, ...]:
        """Return the checks that these header fields need."""
        bits = 0
        for key in fields:
            bits |= self._bits.get(key, 0)
        row = self._rows.get(bits)
        if row is None:
            row = tuple(check for at, (check, _) in enumerate(self._table) if bits >> at & 1)
            self._rows[bits] = row
        return row


FIRST_CHECKS: Final[tuple[Check, ...]] = (not_sealed, small_enough)
HEADER_CHECKS: Final = KeyedChecks(
    (counter.increment, (publish_headers.INCR,)),
    (expected_stream, (publish_headers.EXPECTED_STREAM,)),
    (ttl_allowed, (publish_headers.TTL,)),
    (
        expected_subject_seq,
        (publish_headers.EXPECTED_SUBJECT_SEQ, publish_headers.EXPECTED_SUBJECT),
    ),
    (expected_last_seq, (publish_headers.EXPECTED_LAST_SEQ,)),
    (schedule.schedule_allowed, (publish_headers.SCHEDULE, publish_headers.SCHEDULE_TIME_ZONE)),
    (schedule.scheduler_allowed, (publish_headers.SCHEDULE_NEXT, publish_headers.SCHEDULER)),
    (not_set_by_client, (publish_headers.STREAM_SOURCE,)),
    (not_seen, (publish_headers.MSG_ID,)),
    (expected_last_msg_id, (publish_headers.EXPECTED_LAST_MSG_ID,)),
    # A schedule is always a rollup, with or without the header.
    (rollup, (publish_headers.ROLLUP, publish_headers.SCHEDULE)),
)
REWRITES: Final[tuple[Check, ...]] = (counter.count, small_enough)
STORE_CHECKS: Final[tuple[Check, ...]] = (resources, ttl_value, limits)


def first_rejection(checks: tuple[Check, ...], plan_state: PlanState, draft: Draft) -> Rejection:
    """Return the first result that is not None."""
    for check in checks:
        rejection = check(plan_state, draft)
        if rejection is not None:
            return rejection
    return None


def check_message(plan_state: PlanState, draft: Draft) -> Rejection:
    """Run the checks that apply whether or not the message will be stored."""
    rejection = first_rejection(FIRST_CHECKS, plan_state, draft)
    if rejection is None and draft.fields:
        rejection = first_rejection(HEADER_CHECKS.needed_by(draft.fields), plan_state, draft)
    if rejection is None and (draft.schedule or plan_state.cfg.allow_msg_counter):
        rejection = first_rejection(REWRITES, plan_state, draft)
    return rejection


def admit(plan_state: PlanState, draft: Draft) -> Rejection:
    """Run the checks that apply only to a message that will be stored."""
    return first_rejection(STORE_CHECKS, plan_state, draft)
