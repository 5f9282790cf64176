"""A traced message that a stream stores, refuses, or would store if it were not only traced.

The stream plans the message to learn its fate, and plans it again to store it: a plan changes
nothing. Messages of batches are the exception; their event says only where they went.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api import refusals
from penstock.server.message_trace import DUPLICATE
from penstock.store.errors import StoreError
from penstock.streams import names
from penstock.streams.entries import Answer, Publish
from penstock.streams.fastbatch import SUFFIX
from penstock.wire import headers
from penstock.wire.trace_headers import DEST, DISABLED

if TYPE_CHECKING:
    from penstock.api.refusals import ApiError
    from penstock.base.message import Inbound
    from penstock.jetstream.host import StreamHost
    from penstock.server.message_trace import MessageTrace

WRONG_LAST_SEQUENCE: Final = 10071
_TEXTS: Final = {
    refusals.STREAM_MESSAGE_EXCEEDS_MAXIMUM.err_code: "maximum payload exceeded",
}
"""What the reference says in a trace where it differs from what it answers."""


def trace_publish(trace: MessageTrace, host: StreamHost, msg: Inbound, now_ns: int) -> None:
    """Add the stream's event, and store the message unless it is only traced."""
    stored = msg._replace(header=headers.replaced(msg.header, DEST, DISABLED))
    planned = None
    if not _is_batched(msg):
        host.hear_lane()
        try:
            planned = host.stream.plan(msg if trace.only else stored, now_ns)
        except StoreError as error:
            trace.jetstream(host.name, error=str(error))
            return
    if isinstance(planned, Publish):
        skipped = planned.special is not None and planned.special.skip
        trace.jetstream(host.name, subject=planned.subject, no_interest=skipped)
    elif isinstance(planned, Answer):
        trace.jetstream(host.name, error=_error(planned, msg, host))
        if trace.only:
            host.commits.promise(planned.effects)
    else:
        trace.jetstream(host.name, subject=msg.subject)
    if not trace.only:
        host.publish(stored, now_ns)


def _is_batched(msg: Inbound) -> bool:
    return msg.reply.endswith(SUFFIX) or headers.get(msg.header, names.BATCH_ID) is not None


def _error(answer: Answer, msg: Inbound, host: StreamHost) -> str:
    if answer.is_duplicate:
        return DUPLICATE
    if answer.refusal is None:
        return ""
    return _text(answer.refusal, msg, host)


def _text(refusal: ApiError, msg: Inbound, host: StreamHost) -> str:
    expected = headers.get(msg.header, names.EXPECTED_LAST_SEQ)
    if expected is not None and refusal.err_code == WRONG_LAST_SEQUENCE:
        last = host.stream.state().last_seq
        return f"last sequence mismatch: {expected.decode(errors='replace')} vs {last}"
    return _TEXTS.get(refusal.err_code, refusal.description)
