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


def recovery_steps(ledger: PlanState, schedules: Schedules, now_ns: int) -> Iterator[Cold]:
    """Run the whole recovery; yield each block that is needed, and continue once it is loaded."""
    yield from _drop_torn_batches(ledger)
    yield from _last_msg_id(ledger)
    if ledger.cfg.duplicate_window > 0:
        yield from _seen_ids(ledger, now_ns)
    if ledger.cfg.allow_msg_schedules:
        yield from _schedules(ledger, schedules, now_ns)
    if ledger.cfg.sources:
        yield from source_steps(ledger)


def _drop_torn_batches(ledger: PlanState) -> Iterator[Cold]:
    """Remove the rest of batches that lost messages to a power cut."""
    if ledger.cfg.mirror is not None:
        # A mirror gets missing messages from its origin again.
        return
    for first, last in ledger.store.lost:
        yield from _drop_before(ledger, first)
        yield from _drop_behind(ledger, last)
    number = _unfinished((yield from _loaded(ledger, ledger.last_seq)))
    if number:
        ledger.store.truncate(max(ledger.last_seq - number, 0))
        ledger.last_seq = ledger.store.state().last_seq


def _drop_before(ledger: PlanState, gap: int) -> Iterator[Cold]:
    """Remove the start of a batch whose end was lost."""
    number = _unfinished((yield from _loaded(ledger, gap - 1)))
    for seq in range(max(gap - number, 1), gap):
        ledger.store.remove(seq)


def _drop_behind(ledger: PlanState, gap: int) -> Iterator[Cold]:
    """Remove the end of a batch whose start was lost."""
    seq = gap + 1
    found = yield from _loaded(ledger, seq)
    while found is not None and _number(found) > 1:
        ledger.store.remove(seq)
        seq += 1
        found = yield from _loaded(ledger, seq)


def _loaded(ledger: PlanState, seq: int) -> Generator[Cold, None, MessageRecord | None]:
    while isinstance(found := ledger.store.load(seq, unsynced=True), Cold):
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


def _last_msg_id(ledger: PlanState) -> Iterator[Cold]:
    last = yield from _loaded(ledger, ledger.last_seq)
    if last is not None:
        ledger.last_msg_id = headers.get(last.header, publish_headers.MSG_ID) or b""


def _seen_ids(ledger: PlanState, now_ns: int) -> Iterator[Cold]:
    store = ledger.store
    seq = store.seq_at_time(max(now_ns - ledger.cfg.duplicate_window, 0))
    while (found := store.next_match((), seq, unsynced=True)) is not None:
        if isinstance(found, Cold):
            yield found
            continue
        seq = found.seq + 1
        msg_id = headers.get(found.header, publish_headers.MSG_ID) if found.header else None
        if msg_id:
            ledger.dedupe.add(msg_id, found.seq, found.ts_ns)


def _schedules(ledger: PlanState, schedules: Schedules, now_ns: int) -> Iterator[Cold]:
    for subject in sorted(ledger.store.subject_states()):
        while isinstance(record := ledger.latest(subject), Cold):
            yield record
        if isinstance(record, Missing) or not headers.get(record.header, publish_headers.SCHEDULE):
            continue
        following = yield from _last_copy(ledger, record)
        schedules.restore(record, following, now_ns)


def source_steps(ledger: PlanState) -> Iterator[Cold]:
    """Search backwards for the newest message of each source whose position is unknown or not up to
    date."""
    since, ledger.recalled_seq = ledger.recalled_seq, 0
    if since > ledger.last_seq:
        # A power cut lost messages that the recorded positions cover.
        ledger.sources.clear()
        since = 0
    wanted = {index_name(source) for source in ledger.cfg.sources}
    if not since:
        wanted -= ledger.sources.keys()
    bound = ledger.last_seq
    while wanted and bound > since:
        found = ledger.store.load_last(EVERYTHING, at_or_before=bound, unsynced=True)
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
            ledger.sources[ref.index_name] = ref


def _last_copy(ledger: PlanState, schedule: MessageRecord) -> Generator[Cold, None, str]:
    """Return the next time that the last copy of a schedule states; empty if none is found."""
    target = text_of(headers.get(schedule.header, publish_headers.SCHEDULE_TARGET))
    bound = ledger.last_seq
    for _ in range(COPIES_SEARCHED_MAX):
        while isinstance(
            found := ledger.store.load_last(target, at_or_before=bound, unsynced=True), Cold
        ):
            yield found
        if isinstance(found, Missing) or found.seq < schedule.seq:
            return ""
        if text_of(headers.get(found.header, publish_headers.SCHEDULER)) == schedule.subject:
            return text_of(headers.get(found.header, publish_headers.SCHEDULE_NEXT))
        bound = found.seq - 1
    return ""
