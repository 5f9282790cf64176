"""Changes to a consumer's position from outside: recovery, purge, reset.

Each function updates cursor, state and redelivery queue together. Afterwards the state refers only
to messages that the stream has or will have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api.consumer_config import DeliverPolicy
from penstock.api.refusals import CONSUMER_INVALID_RESET
from penstock.base.sequences import SEQ_MAX
from penstock.subjects.match import is_subset

if TYPE_CHECKING:
    from penstock.api.consumer_config import ConsumerConfig
    from penstock.api.refusals import ApiError
    from penstock.jetstream.consumers.ack_deadlines import AckDeadlines
    from penstock.jetstream.consumers.cursor import Cursor
    from penstock.store.contract import Range, Store


def reconcile(outstanding: AckDeadlines, store: Store) -> int:
    """Forget what the stream no longer has, after a restart; return the sequence to read next.

    The stream may have lost messages while the consumer was not loaded: at its start, or at its end
    if the disk lost synced data.
    """
    state, stored = outstanding.log.state, store.state()
    first, last = stored.first_seq, stored.last_seq
    for seq in sorted({*state.pending, *state.redelivered}):
        if not first <= seq <= last:
            outstanding.acked(seq)
    # A reset may have moved the position beyond the end. The reference keeps that position across a
    # restart if the stream never had a message. Nothing was delivered, so nothing was lost.
    is_beyond_empty = last == 0 and state.delivered_consumer == 0 and not state.pending
    if state.delivered_stream <= last or is_beyond_empty:
        return state.delivered_stream + 1
    if state.pending:
        return max(state.pending) + 1
    outstanding.reset(state.delivered_consumer, last)
    return last + 1


def start_after_purge(subject: str | None, filters: tuple[str, ...], store: Store) -> int | None:
    """Return the first sequence that a consumer with these filters may still find; None if the
    purge does not affect it."""
    first = store.state().first_seq
    if subject in (None, "", ">"):
        return first
    assert subject is not None
    covered = [is_subset(f, subject) for f in filters]
    if covered and all(covered):
        return store.next_seq((subject,), 0) or store.last_seq + 1
    if any(covered) or not filters or any(is_subset(subject, f) for f in filters):
        return first
    return None


def purge(cursor: Cursor, outstanding: AckDeadlines, ranges: tuple[Range, ...], start: int) -> bool:
    """Apply a purge of these ranges; the stream has nothing for the consumer below `start`. Return
    whether an ack-pending or redelivered message was among them."""
    cursor.removed(ranges)
    if start > cursor.next:
        cursor.jump(start)
    state = outstanding.log.state
    known = outstanding.acked_within(ranges)
    if not state.pending and not state.redelivered:
        outstanding.reset(state.delivered_consumer, cursor.next - 1)
    elif state.floor_stream < start - 1:
        lowest = state.pending.lowest_consumer() or state.delivered_consumer + 1
        outstanding.acked_through(lowest - 1, start - 1)
    return known


def reset_target(seq: int, cfg: ConsumerConfig, floor_stream: int, store: Store) -> int | ApiError:
    """Return the target of a reset, or an error: the deliver policy bounds how far back a client
    may go."""
    if not seq:
        return floor_stream + 1
    if seq > SEQ_MAX:
        return CONSUMER_INVALID_RESET(err=f"sequence is larger than {SEQ_MAX}")
    match cfg.deliver_policy:
        case DeliverPolicy.ALL:
            return seq
        case DeliverPolicy.BY_START_SEQUENCE:
            below = seq < cfg.opt_start_seq
            return CONSUMER_INVALID_RESET(err="below start seq") if below else seq
        case DeliverPolicy.BY_START_TIME:
            below = seq < store.seq_at_time(cfg.opt_start_time or 0)
            return CONSUMER_INVALID_RESET(err="below start time") if below else seq
    return CONSUMER_INVALID_RESET(err="not allowed")
