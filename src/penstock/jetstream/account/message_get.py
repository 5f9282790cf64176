"""Reading one message: which one a request chooses, and the answer of STREAM.MSG.GET.

The choice is shared with direct get, which only answers differently. Pure: a message whose block
is not in memory is a `Cold`, and the same question is asked again when it is.
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
    """Whether a request names its message in two ways. A subject to look for goes with a start."""
    ways = (request.seq > 0, bool(request.last_by_subj), request.start_time is not None)
    return sum(ways) > 1 or bool(request.last_by_subj and request.next_by_subj)


def names_a_message(request: MsgGetRequest) -> bool:
    """Whether a request names one message in some way."""
    return bool(
        request.seq
        or request.last_by_subj
        or request.next_by_subj
        or request.start_time is not None
    )


def refuse_get(request: MsgGetRequest) -> ApiError | None:
    """Why a request does not choose one message, whatever stream it is for."""
    is_batch = request.batch > 0 or request.max_bytes > 0
    if is_batch or not names_a_message(request) or is_contradiction(request):
        return BAD_REQUEST
    return None


def start_of(store: Store, request: MsgGetRequest) -> int:
    """The sequence a request begins at; 0 if it does not say."""
    return request.seq if request.start_time is None else store.seq_at_time(request.start_time)


def choose(store: Store, request: MsgGetRequest) -> MessageRecord | Cold | None:
    """The one message a request asks for; None if there is none."""
    start = start_of(store, request)
    if request.next_by_subj:
        return store.next_match((request.next_by_subj,), max(start, 1))
    found = store.load(start) if start > 0 else store.load_last(request.last_by_subj)
    return None if isinstance(found, Missing) else found


def get_message(store: Store, request: MsgGetRequest) -> StoredMessage | ApiError | Cold:
    """The answer of STREAM.MSG.GET, or why there is none."""
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
