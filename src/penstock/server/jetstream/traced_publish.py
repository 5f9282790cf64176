"""Publishes a traced message to a stream, which stores it, refuses it, or only reports its fate.

The stream plans a message outside a batch to learn its fate, and plans it again to store it: a plan
changes nothing. A message of a batch is planned once, because that changes the batch. As in the
reference, these messages have no trace event: one that only joins an atomic batch, and a control
message of a fast batch (a ping, an end, a gap). A trace-only message counts in its batch: an atomic
batch stores it if a message that is not trace-only commits, and stores nothing if a trace-only
message commits. The stream driver calls `trace_publish`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jetstream.streams import publish_headers
from penstock.jetstream.streams.batches.fast_batch import SUFFIX
from penstock.jetstream.streams.entries import Answer, BatchEntry, Publish
from penstock.server.jetstream.trace_errors import trace_error
from penstock.store.errors import StoreError
from penstock.wire import headers
from penstock.wire.trace_headers import DEST, DISABLED

if TYPE_CHECKING:
    from penstock.base.message import Inbound
    from penstock.jetstream.host.stream_host import StreamHost
    from penstock.jetstream.streams.entries import Planned
    from penstock.server.system.message_trace import MessageTrace


def trace_publish(
    trace: MessageTrace, host: StreamHost, account: str, msg: Inbound, now_ns: int
) -> None:
    """Add the stream's event, and store the message unless it is trace-only."""
    stored = (
        msg if trace.only else msg._replace(header=headers.replaced(msg.header, DEST, DISABLED))
    )
    batch_account = account if _is_batched(msg) else ""
    if batch_account and not trace.only:
        _publish_batched(trace, host, batch_account, stored, now_ns)
        return
    host.collect_lane_results()
    try:
        planned = host.stream.plan(stored, now_ns)
    except StoreError as error:
        trace.jetstream(host.name, error=str(error))
        return
    is_answered = _add_event(trace, planned, host, msg, batch_account)
    if not trace.only:
        host.publish(stored, now_ns)
    elif is_answered:
        _answer_only(host, planned)


def _publish_batched(
    trace: MessageTrace, host: StreamHost, account: str, stored: Inbound, now_ns: int
) -> None:
    """Publish a message of a batch; one that waits in the queue has an event without outcome."""
    plans: list[Planned] = []
    host.publish(stored, now_ns, plans.append)
    if plans:
        _add_event(trace, plans[0], host, stored, account)
    else:
        trace.jetstream(host.name, subject=stored.subject)


def _is_batched(msg: Inbound) -> bool:
    return (
        msg.reply.endswith(SUFFIX) or headers.get(msg.header, publish_headers.BATCH_ID) is not None
    )


def _add_event(
    trace: MessageTrace, planned: Planned, host: StreamHost, msg: Inbound, account: str
) -> bool:
    """Add the event; return whether the publisher gets a reply. Batches pass their `account`.

    A single trace-only message does not reach the store, so errors of the store are left out.
    """
    last = planned.items[-1] if isinstance(planned, BatchEntry) else planned
    if isinstance(last, Publish):
        skipped = last.special is not None and last.special.skip
        trace.jetstream(host.name, subject=last.subject, no_interest=skipped)
    elif not isinstance(last, Answer):
        trace.jetstream(host.name, subject=msg.subject)
    elif last.refusal is not None or last.is_duplicate:
        batched_in = f"{account} > {host.name}" if account else ""
        error, is_of_store = trace_error(last, msg.header, batched_in)
        is_unasked = is_of_store and trace.only
        subject = host.stream.stored_subject(msg.subject) if is_of_store else ""
        trace.jetstream(host.name, subject=subject, error="" if is_unasked else error)
        return not is_unasked
    else:
        trace.drop()
    return True


def _answer_only(host: StreamHost, planned: Planned) -> None:
    if isinstance(planned, Answer):
        host.promise(planned.effects)
    elif isinstance(planned, Publish):
        host.promise(host.stream.drop_planned(planned))
