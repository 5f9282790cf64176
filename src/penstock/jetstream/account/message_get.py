"""Selects the one message that a get request names, and builds the reply of STREAM.MSG.GET.

Direct get uses the same selection and only replies differently. Pure functions: if the block of the
message is not in memory they return a `Cold`, and the caller repeats the call once it is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api.refusals import BAD_REQUEST, NO_MESSAGE_FOUND, ApiError
from penstock.api.responses import StoredMessage
from penstock.store.contract import Cold, MessageRecord, Missing

if TYPE_CHECKING:
    from penstock.api.request_bodies import MsgGetRequest
    from penstock.store.contract import Store


def is_contradiction(request: MsgGetRequest) -> bool:
    """Whether a request names its message in two ways; `next_by_subj` may go with a start."""
    ways = (request.seq > 0, bool(request.last_by_subj), request.start_time is not None)
    return sum(ways) > 1 or bool(request.last_by_subj and request.next_by_subj)


def names_a_message(request: MsgGetRequest) -> bool:
    """Whether a request names a message in any way."""
    return bool(
        request.seq
        or request.last_by_subj
        or request.next_by_subj
        or request.start_time is not None
    )


def refuse_get(request: MsgGetRequest) -> ApiError | None:
    """Return why a request does not select exactly one message of any stream; None if it does."""
    is_batch = request.batch > 0 or request.max_bytes > 0
    if is_batch or not names_a_message(request) or is_contradiction(request):
        return BAD_REQUEST
    return None


def start_of(store: Store, request: MsgGetRequest) -> int:
    """Return the sequence at which a request starts; 0 if it names none."""
    return request.seq if request.start_time is None else store.seq_at_time(request.start_time)


def choose(store: Store, request: MsgGetRequest) -> MessageRecord | Cold | None:
    """Return the message a request selects; None if there is none."""
    start = start_of(store, request)
    if request.next_by_subj:
        return store.next_match((request.next_by_subj,), max(start, 1))
    found = store.load(start) if start > 0 else store.load_last(request.last_by_subj)
    return None if isinstance(found, Missing) else found


def get_message(store: Store, request: MsgGetRequest) -> StoredMessage | ApiError | Cold:
    """Return the reply of STREAM.MSG.GET, or the error."""
    refused = refuse_get(request)
    if refused is not None:
        return refused
    found = choose(store, request)
    if found is None:
        return NO_MESSAGE_FOUND
    if isinstance(found, Cold):
        return found
    return StoredMessage(
        subject=found.subject,
        seq=found.seq,
        hdrs=b"" if request.no_hdr else found.header,
        data=found.payload,
        time=found.ts_ns,
    )
