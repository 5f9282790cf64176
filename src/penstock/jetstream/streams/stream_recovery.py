"""Stream recovery: rebuilds the in-memory state of a stream from its messages.

Message ids come from the messages of the last duplicate window, schedules from the last message of
each subject. A batch that a power cut left incomplete is removed: its publisher got no ack.
Recovery runs in steps, because a block it reads may not be in memory; the caller loads each yielded
block and continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.jetstream.streams import publish_headers
from penstock.jetstream.streams.publish_checks import UNREADABLE, sequence_of
from penstock.jetstream.streams.schedule import text_of
from penstock.jetstream.streams.source_progress import EVERYTHING, index_name, parse_note
from penstock.store.contract import Cold, MessageRecord, Missing
from penstock.wire import headers

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from penstock.jetstream.streams.schedule import Schedules
    from penstock.jetstream.streams.stream_state import PlanState

COPIES_SEARCHED_MAX: Final = 64
"""Messages of a schedule's target that are searched for its last copy."""


def recovery_steps(plan_state: PlanState, schedules: Schedules, now_ns: int) -> Iterator[Cold]:
    """Run the whole recovery; yield each block that is needed, and continue once it is loaded."""
    yield from _drop_torn_batches(plan_state)
    yield from _last_msg_id(plan_state)
    if plan_state.cfg.duplicate_window > 0:
        yield from _seen_ids(plan_state, now_ns)
    if plan_state.cfg.allow_msg_schedules:
        yield from _schedules(plan_state, schedules, now_ns)
    if plan_state.cfg.sources:
        yield from source_steps(plan_state)


def _drop_torn_batches(plan_state: PlanState) -> Iterator[Cold]:
    """Remove the rest of batches that lost messages to a power cut."""
    if plan_state.cfg.mirror is not None:
        # A mirror gets missing messages from its origin again.
        return
    for first, last in plan_state.store.lost:
        yield from _drop_before(plan_state, first)
        yield from _drop_behind(plan_state, last)
    number = _unfinished((yield from _loaded(plan_state, plan_state.last_seq)))
    if number:
        plan_state.store.truncate(max(plan_state.last_seq - number, 0))
        plan_state.last_seq = plan_state.store.state().last_seq


def _drop_before(plan_state: PlanState, gap: int) -> Iterator[Cold]:
    """Remove the start of a batch whose end was lost."""
    number = _unfinished((yield from _loaded(plan_state, gap - 1)))
    for seq in range(max(gap - number, 1), gap):
        plan_state.store.remove(seq)


def _drop_behind(plan_state: PlanState, gap: int) -> Iterator[Cold]:
    """Remove the end of a batch whose start was lost."""
    seq = gap + 1
    found = yield from _loaded(plan_state, seq)
    while found is not None and _number(found) > 1:
        plan_state.store.remove(seq)
        seq += 1
        found = yield from _loaded(plan_state, seq)


def _loaded(plan_state: PlanState, seq: int) -> Generator[Cold, None, MessageRecord | None]:
    while isinstance(found := plan_state.store.load(seq, unsynced=True), Cold):
        yield found
    return None if isinstance(found, Missing) else found


def _number(record: MessageRecord) -> int:
    """Return the number of a message in its batch; 0 if it is in none."""
    if not record.header or not headers.get(record.header, publish_headers.BATCH_ID):
        return 0
    number = sequence_of(headers.get(record.header, publish_headers.BATCH_SEQ) or b"")
    return 0 if number == UNREADABLE else number


def _unfinished(record: MessageRecord | None) -> int:
    """Return the batch number of a message whose batch must continue after it; 0 if the batch is
    complete."""
    if record is None or headers.get(record.header, publish_headers.BATCH_COMMIT):
        return 0
    return _number(record)


def _last_msg_id(plan_state: PlanState) -> Iterator[Cold]:
    last = yield from _loaded(plan_state, plan_state.last_seq)
    if last is not None:
        plan_state.last_msg_id = headers.get(last.header, publish_headers.MSG_ID) or b""


def _seen_ids(plan_state: PlanState, now_ns: int) -> Iterator[Cold]:
    store = plan_state.store
    seq = store.seq_at_time(max(now_ns - plan_state.cfg.duplicate_window, 0))
    while (found := store.next_match((), seq, unsynced=True)) is not None:
        if isinstance(found, Cold):
            yield found
            continue
        seq = found.seq + 1
        msg_id = headers.get(found.header, publish_headers.MSG_ID) if found.header else None
        if msg_id:
            plan_state.dedupe.add(msg_id, found.seq, found.ts_ns)


def _schedules(plan_state: PlanState, schedules: Schedules, now_ns: int) -> Iterator[Cold]:
    for subject in sorted(plan_state.store.subject_states()):
        while isinstance(record := plan_state.latest(subject), Cold):
            yield record
        if isinstance(record, Missing) or not headers.get(record.header, publish_headers.SCHEDULE):
            continue
        following = yield from _last_copy(plan_state, record)
        schedules.restore(record, following, now_ns)


def source_steps(plan_state: PlanState) -> Iterator[Cold]:
    """Search backwards for the newest message of each source whose position is unknown or not up to
    date."""
    since, plan_state.recalled_seq = plan_state.recalled_seq, 0
    if since > plan_state.last_seq:
        # A power cut lost messages that the recorded positions cover.
        plan_state.sources.clear()
        since = 0
    wanted = {index_name(source) for source in plan_state.cfg.sources}
    if not since:
        wanted -= plan_state.sources.keys()
    bound = plan_state.last_seq
    while wanted and bound > since:
        found = plan_state.store.load_last(EVERYTHING, at_or_before=bound, unsynced=True)
        if isinstance(found, Cold):
            yield found
            continue
        if isinstance(found, Missing) or found.seq <= since:
            return
        bound = found.seq - 1
        note = headers.get(found.header, publish_headers.STREAM_SOURCE) if found.header else None
        ref = parse_note(note) if note else None
        if ref is not None and ref.index_name in wanted:
            wanted.remove(ref.index_name)
            plan_state.sources[ref.index_name] = ref


def _last_copy(plan_state: PlanState, schedule: MessageRecord) -> Generator[Cold, None, str]:
    """Return the next time that the last copy of a schedule states; empty if none is found."""
    target = text_of(headers.get(schedule.header, publish_headers.SCHEDULE_TARGET))
    bound = plan_state.last_seq
    for _ in range(COPIES_SEARCHED_MAX):
        while isinstance(
            found := plan_state.store.load_last(target, at_or_before=bound, unsynced=True), Cold
        ):
            yield found
        if isinstance(found, Missing) or found.seq < schedule.seq:
            return ""
        if text_of(headers.get(found.header, publish_headers.SCHEDULER)) == schedule.subject:
            return text_of(headers.get(found.header, publish_headers.SCHEDULE_NEXT))
        bound = found.seq - 1
    return ""
