"""Schedules: messages that make the stream publish other messages later, once or repeatedly.

A message with `Nats-Schedule` is stored like any other, at most one per subject. When it is due,
the stream publishes a copy of its body to the schedule's target. The copy names its schedule and
the next due time, so `Schedules` can be rebuilt from the stored messages. A schedule that missed
several times fires once. The caller passes the time in.
"""

from __future__ import annotations

import heapq
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.api import refusals
from penstock.api.refusals import ApiError
from penstock.api.timestamps import TimeFault, format_time, parse_time
from penstock.base.durations import parse_duration
from penstock.base.units import SECOND_NS
from penstock.jetstream.streams import publish_headers
from penstock.jetstream.streams.cron import next_fire, parse_cron
from penstock.jetstream.streams.ttl import parse_ttl
from penstock.store.contract import Cold, Missing
from penstock.subjects.match import collides
from penstock.subjects.tokens import is_valid_literal
from penstock.wire import headers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import tzinfo

    from penstock.jetstream.streams.stream_state import Draft, PlanState
    from penstock.store.contract import MessageRecord

PURGE: Final = b"purge"
"""`Nats-Schedule-Next` of a finished schedule."""
ROLLUP_SUBJECT: Final = b"sub"
RETRY_NS: Final = SECOND_NS
"""Delay before a schedule whose message was rejected fires again."""

_AT: Final = "@at "
_EVERY: Final = "@every "
_SECONDS_MAX: Final = 253_402_300_799
"""The end of the year 9999: later times cannot be formatted."""
_PREDEFINED: Final = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}


class Next(NamedTuple):
    """When a schedule fires next; `text` is that time as the copy states it, "" for no more."""

    at_ns: int
    text: str


# -- parsing


def next_time(fields: Mapping[bytes, bytes], base_ns: int, now_ns: int) -> Next | ApiError | None:
    """Return when the schedule in a header fires after `base_ns`; None without a schedule."""
    zone = _zone(fields.get(publish_headers.SCHEDULE_TIME_ZONE))
    if isinstance(zone, ApiError):
        return zone
    pattern = fields.get(publish_headers.SCHEDULE, b"").decode("utf-8", "replace")
    if not pattern:
        return None
    if pattern.startswith((_AT, _EVERY)):
        found = None if zone else _simple(pattern, base_ns, now_ns)
    else:
        found = _cron(_PREDEFINED.get(pattern, pattern), zone or UTC, base_ns, now_ns)
    return found or refusals.MESSAGE_SCHEDULES_PATTERN_INVALID


def _zone(name: bytes | None) -> tzinfo | ApiError | None:
    if name is None:
        return None
    if name == b"Local":
        # The stream does not know the server's time zone; `Local` means UTC.
        return UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name.decode())
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return refusals.MESSAGE_SCHEDULES_TIME_ZONE_INVALID


def _simple(pattern: str, base_ns: int, now_ns: int) -> Next | None:
    """Return the next time of an `@at` or `@every` schedule, rounded to whole seconds."""
    try:
        if pattern.startswith(_AT):
            return Next(parse_time(pattern[len(_AT) :]), "")
        every_ns = parse_duration(pattern[len(_EVERY) :])
    except (TimeFault, ValueError):
        return None
    if every_ns < SECOND_NS:
        return None
    at_ns = _rounded(base_ns) + every_ns
    if at_ns < now_ns:
        at_ns = _rounded(now_ns) + every_ns
    return Next(at_ns, format_time(at_ns)) if at_ns <= _SECONDS_MAX * SECOND_NS else None


def _cron(pattern: str, zone: tzinfo, base_ns: int, now_ns: int) -> Next | None:
    cron = parse_cron(pattern)
    if cron is None:
        return None
    at = next_fire(cron, datetime.fromtimestamp(base_ns // SECOND_NS, zone))
    if at is not None and int(at.timestamp()) * SECOND_NS < now_ns:
        at = next_fire(cron, datetime.fromtimestamp(_rounded(now_ns) // SECOND_NS, zone))
    if at is None:
        return None
    text = at.isoformat()
    stated = f"{text[:-6]}Z" if text.endswith("+00:00") else text
    return Next(int(at.timestamp()) * SECOND_NS, stated)


def _rounded(ns: int) -> int:
    return (ns + SECOND_NS // 2) // SECOND_NS * SECOND_NS


def text_of(value: bytes | None) -> str:
    """Decode a subject in a header."""
    return value.decode("utf-8", "surrogateescape") if value else ""


# -- checks


def schedule_allowed(plan_state: PlanState, draft: Draft) -> ApiError | None:
    """Check that a schedule is valid and allowed; add the rollup that keeps one schedule per
    subject."""
    if draft.is_internal:
        return None
    found = next_time(draft.fields, draft.now_ns, draft.now_ns)
    if found is None or (isinstance(found, Next) and found.at_ns == 0):
        return None
    if not plan_state.cfg.allow_msg_schedules:
        return refusals.MESSAGE_SCHEDULES_DISABLED
    if isinstance(found, ApiError):
        return found
    draft.schedule = True
    return (
        _options_fault(plan_state, draft)
        or _subjects_fault(plan_state, draft)
        or _roll_up_schedule(draft)
    )


def _options_fault(plan_state: PlanState, draft: Draft) -> ApiError | None:
    lives = draft.fields.get(publish_headers.SCHEDULE_TTL)
    if lives and parse_ttl(lives) is None:
        return refusals.MESSAGE_SCHEDULES_TTL_INVALID
    if draft.fields.get(publish_headers.SCHEDULE_ROLLUP, b"") not in (b"", ROLLUP_SUBJECT):
        return refusals.MESSAGE_SCHEDULES_ROLLUP_INVALID
    if lives and not plan_state.cfg.allow_msg_ttl:
        return refusals.MESSAGE_TTL_DISABLED
    return None


def _subjects_fault(plan_state: PlanState, draft: Draft) -> ApiError | None:
    target = text_of(draft.fields.get(publish_headers.SCHEDULE_TARGET))
    source = text_of(draft.fields.get(publish_headers.SCHEDULE_SOURCE))
    if not is_valid_literal(target) or target == draft.subject:
        return refusals.MESSAGE_SCHEDULES_TARGET_INVALID
    if source and (source in (target, draft.subject) or not is_valid_literal(source)):
        return refusals.MESSAGE_SCHEDULES_SOURCE_INVALID
    if not any(collides(subject, target) for subject in plan_state.cfg.subjects):
        return refusals.MESSAGE_SCHEDULES_TARGET_INVALID
    if source and not any(collides(subject, source) for subject in plan_state.cfg.subjects):
        return refusals.MESSAGE_SCHEDULES_SOURCE_INVALID
    return None


def _roll_up_schedule(draft: Draft) -> ApiError | None:
    rollup = draft.fields.get(publish_headers.ROLLUP, b"").lower()
    if not rollup:
        draft.header = headers.added(draft.header, publish_headers.ROLLUP, ROLLUP_SUBJECT)
        draft.fields[publish_headers.ROLLUP] = ROLLUP_SUBJECT
        return None
    return None if rollup == ROLLUP_SUBJECT else refusals.MESSAGE_SCHEDULES_ROLLUP_INVALID


def scheduler_allowed(plan_state: PlanState, draft: Draft) -> ApiError | Cold | None:
    """Check that a client names a scheduler only to end its schedule."""
    following = draft.fields.get(publish_headers.SCHEDULE_NEXT)
    scheduler = text_of(draft.fields.get(publish_headers.SCHEDULER))
    if not draft.is_internal:
        fault = _ending_fault(plan_state, draft, following, scheduler)
        if fault is not None:
            return fault
    if following == PURGE and plan_state.may_roll_up:
        draft.purged = scheduler
    return None


def _ending_fault(
    plan_state: PlanState, draft: Draft, following: bytes | None, scheduler: str
) -> ApiError | Cold | None:
    if not following:
        return refusals.MESSAGE_SCHEDULES_SCHEDULER_INVALID if scheduler else None
    if following != PURGE or scheduler == draft.subject or not is_valid_literal(scheduler):
        return refusals.MESSAGE_SCHEDULES_SCHEDULER_INVALID
    if not plan_state.cfg.allow_msg_schedules:
        return refusals.MESSAGE_SCHEDULES_DISABLED
    found = plan_state.latest(scheduler)
    if isinstance(found, Cold):
        return found
    if not isinstance(found, Missing) and not headers.get(found.header, publish_headers.SCHEDULE):
        return refusals.MESSAGE_SCHEDULES_SCHEDULER_INVALID
    return None


# -- due schedules


class Fired(NamedTuple):
    """A message that a schedule publishes."""

    subject: str
    header: bytes
    payload: bytes


class Schedules:
    """The due time of each subject's schedule. A removed schedule is detected when it is due."""

    def __init__(self) -> None:
        self._of_subject: dict[str, tuple[int, int]] = {}  # due time, sequence
        self._heap: list[tuple[int, int, str]] = []

    def __len__(self) -> int:
        return len(self._of_subject)

    def stored(self, subject: str, seq: int, header: bytes, ts_ns: int) -> None:
        """Record a stored message: a schedule, the end of a schedule, or its next time."""
        fields = headers.parse(header) if header else {}
        found = next_time(fields, ts_ns, ts_ns)
        scheduler = text_of(fields.get(publish_headers.SCHEDULER))
        if isinstance(found, Next) and found.at_ns:
            self._add(subject, seq, found.at_ns)
        elif not scheduler:
            self._of_subject.pop(subject, None)
        following = fields.get(publish_headers.SCHEDULE_NEXT)
        if scheduler in self._of_subject and following and following != PURGE:
            self._move(scheduler, following.decode("utf-8", "replace"))

    def restore(self, record: MessageRecord, following: str, now_ns: int) -> None:
        """Record a schedule found during recovery; `following` is the time that its last copy
        states, or empty. A missed time is due at once."""
        fields = headers.parse(record.header)
        # Without a copy it is unknown whether the schedule fired, so a missed time is computed
        # again from now.
        found = next_time(fields, record.ts_ns, now_ns)
        if isinstance(found, Next) and found.at_ns:
            self._add(record.subject, record.seq, found.at_ns)
            if following:
                self._move(record.subject, following)

    def _move(self, subject: str, text: str) -> None:
        try:
            at_ns = parse_time(text)
        except TimeFault:
            return
        self._add(subject, self._of_subject[subject][1], at_ns)

    def _add(self, subject: str, seq: int, at_ns: int) -> None:
        self._of_subject[subject] = (at_ns, seq)
        heapq.heappush(self._heap, (at_ns, seq, subject))

    def clear(self) -> None:
        """Remove all schedules."""
        self._of_subject.clear()
        self._heap.clear()

    def next_deadline_ns(self) -> int | None:
        """Return when the next schedule is due, or None."""
        self._drop_moved()
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ns: int) -> tuple[int, int, str] | None:
        """Return the time, sequence and subject of the next due schedule. It is not due again until
        it is stored, moved or put back."""
        self._drop_moved()
        if not self._heap or self._heap[0][0] > now_ns:
            return None
        return heapq.heappop(self._heap)

    def put_back(self, subject: str, at_ns: int) -> None:
        """Make a schedule that did not fire due again at this time."""
        self._add(subject, self._of_subject[subject][1], at_ns)

    def drop(self, subject: str) -> None:
        """Remove a schedule whose message was removed or is no longer a schedule."""
        self._of_subject.pop(subject, None)

    def _drop_moved(self) -> None:
        while self._heap:
            at_ns, seq, subject = self._heap[0]
            if self._of_subject.get(subject) == (at_ns, seq):
                return
            heapq.heappop(self._heap)


def fire(
    plan_state: PlanState, record: MessageRecord, due_ns: int, now_ns: int
) -> Fired | Cold | None:
    """Return the message that a due schedule publishes; None if it is not a schedule."""
    fields = headers.parse(record.header)
    following = next_time(fields, due_ns, now_ns)
    target = text_of(fields.get(publish_headers.SCHEDULE_TARGET))
    lives = fields.get(publish_headers.SCHEDULE_TTL, b"")
    if not isinstance(following, Next) or not target or (lives and parse_ttl(lives) is None):
        return None
    header, payload = record.header, record.payload
    source = text_of(fields.get(publish_headers.SCHEDULE_SOURCE))
    if source:
        found = plan_state.latest(source)
        if isinstance(found, Cold):
            return found
        if not isinstance(found, Missing):
            header, payload = found.header, found.payload
    header = _fired_header(header, record.subject, following)
    for key, value in (
        (publish_headers.TTL, lives),
        (publish_headers.ROLLUP, fields.get(publish_headers.SCHEDULE_ROLLUP)),
    ):
        if value:
            header = headers.added(header, key, value)
    return Fired(target, header, payload)


def _fired_header(header: bytes, scheduler: str, following: Next) -> bytes:
    for prefix in (publish_headers.SCHEDULE_PREFIX, publish_headers.EXPECTED_PREFIX):
        header = headers.without_prefix(header, prefix)
    for key in (publish_headers.MSG_ID, publish_headers.TTL, publish_headers.ROLLUP):
        header = headers.without(header, key)
    header = headers.added(
        header, publish_headers.SCHEDULER, scheduler.encode("utf-8", "surrogateescape")
    )
    return headers.added(header, publish_headers.SCHEDULE_NEXT, following.text.encode() or PURGE)
