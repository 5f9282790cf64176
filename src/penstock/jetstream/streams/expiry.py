"""Stream expiry: messages expire, schedules fire, and old message ids are forgotten.

`tick` changes only in-memory state; every change to messages is returned as an entry. A stream with
delete markers does not remove due messages directly: when the last message of a subject expires, a
marker with a TTL replaces it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.base.durations import format_duration
from penstock.base.effects import Effect, Fetch
from penstock.base.units import SECOND_NS
from penstock.jetstream.streams import publish_headers
from penstock.jetstream.streams.entries import Due, Entry, Expire, NotLoaded, Publish, Remove
from penstock.jetstream.streams.schedule import RETRY_NS, fire
from penstock.store.contract import Cold, Missing
from penstock.wire import headers

if TYPE_CHECKING:
    from penstock.jetstream.streams.planner import Planner
    from penstock.jetstream.streams.schedule import Schedules
    from penstock.jetstream.streams.stream_state import PlanState
    from penstock.store.contract import MessageRecord

PER_TICK_MAX: Final = 200
"""Messages with markers, and schedules, that one tick handles; the rest stay due."""


class StreamExpiry:
    """The deadlines of one stream."""

    def __init__(self, plan_state: PlanState, planner: Planner, schedules: Schedules) -> None:
        self._plan_state = plan_state
        self._planner = planner
        self._schedules = schedules

    def next_deadline_ns(self) -> int | None:
        """Return a time not later than the next deadline; None if there is none."""
        plan_state = self._plan_state
        deadlines = (
            plan_state.store.next_deadline_ns(),
            plan_state.dedupe.next_deadline_ns(),
            self._schedules.next_deadline_ns() if plan_state.cfg.allow_msg_schedules else None,
        )
        return min((at for at in deadlines if at is not None), default=None)

    def tick(self, now_ns: int) -> Due:
        """Return everything that is due."""
        plan_state = self._plan_state
        plan_state.dedupe.expire(now_ns)
        entries: list[Entry] = []
        effects: list[Effect] = []
        at_ns = plan_state.store.next_deadline_ns()
        if at_ns is not None and at_ns <= now_ns:
            if plan_state.cfg.subject_delete_marker_ttl > 0:
                self._leave_markers(now_ns, entries, effects)
            else:
                entries.append(Expire(now_ns))
        if plan_state.cfg.allow_msg_schedules:
            self._fire(now_ns, entries, effects)
        return Due(tuple(entries), tuple(effects))

    # -- markers

    def _leave_markers(self, now_ns: int, entries: list[Entry], effects: list[Effect]) -> None:
        plan_state = self._plan_state
        leaving: dict[str, int] = {}
        expired: list[int] = []
        for seq in plan_state.store.due(now_ns, at_most=PER_TICK_MAX):
            record = plan_state.store.load(seq, unsynced=True)
            if isinstance(record, Cold):
                effects.append(Fetch(record))
                break
            expired.append(seq)
            if isinstance(record, Missing):
                continue
            held = plan_state.store.subject_states(record.subject)[record.subject].msgs
            leaving[record.subject] = leaving.get(record.subject, 0) + 1
            if leaving[record.subject] == held and not _is_marker(record):
                marker = self._marker(record.subject, now_ns)
                entries += [marker] if isinstance(marker, Publish) else []
        if expired:
            # A marker's rollup removes its subject's messages; a rejected marker removes nothing.
            entries.append(Remove(now_ns, tuple(expired)))

    def _marker(self, subject: str, now_ns: int) -> object:
        ttl_ns = self._plan_state.cfg.subject_delete_marker_ttl // SECOND_NS * SECOND_NS
        header = b"NATS/1.0\r\n%b: MaxAge\r\n%b: %b\r\n%b: sub\r\n\r\n" % (
            publish_headers.MARKER_REASON,
            publish_headers.TTL,
            format_duration(ttl_ns).encode(),
            publish_headers.ROLLUP,
        )
        return self._planner.plan(subject, "", header, b"", now_ns, is_internal=True)

    # -- schedules

    def _fire(self, now_ns: int, entries: list[Entry], effects: list[Effect]) -> None:
        for _ in range(PER_TICK_MAX):
            due = self._schedules.take_due(now_ns)
            if due is None:
                return
            made = self._fired(*due, now_ns)
            if isinstance(made, Cold):
                self._schedules.put_back(due[2], due[0])
                effects.append(Fetch(made))
                return
            if made is not None:
                entries.append(made)

    def _fired(self, due_ns: int, seq: int, subject: str, now_ns: int) -> Publish | Cold | None:
        """Return the message of one schedule, unless the schedule was removed or the message
        rejected."""
        record = self._plan_state.store.load(seq, unsynced=True)
        if isinstance(record, Cold):
            return record
        fired = (
            None if isinstance(record, Missing) else fire(self._plan_state, record, due_ns, now_ns)
        )
        if isinstance(fired, Cold):
            return fired
        if fired is None:
            self._schedules.drop(subject)
            return None
        planned = self._planner.plan(
            fired.subject, "", fired.header, fired.payload, now_ns, is_internal=True
        )
        if isinstance(planned, NotLoaded):
            return planned.cold
        if not isinstance(planned, Publish):
            self._schedules.put_back(subject, now_ns + RETRY_NS)
            return None
        return planned


def _is_marker(record: MessageRecord) -> bool:
    """Return whether a message already is a delete marker or a KV purge."""
    if headers.get(record.header, publish_headers.MARKER_REASON):
        return True
    return headers.get(record.header, publish_headers.KV_OPERATION) == b"PURGE"
