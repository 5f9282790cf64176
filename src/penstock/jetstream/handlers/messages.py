"""Requests about single messages: read, read directly, deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api import refusals
from penstock.api.refusals import ApiError
from penstock.api.requests import MsgDeleteRequest, MsgGetRequest
from penstock.api.responses import MsgDeleteResponse, MsgGetResponse
from penstock.jetstream.endpoints import Endpoint, Held
from penstock.jetstream.handlers.bodies import read_needed, stream_of
from penstock.jetstream.msgget import get_message, refuse_get
from penstock.store.contract import Cold
from penstock.store.errors import StoreError
from penstock.streams.entries import NotLoaded

if TYPE_CHECKING:
    from penstock.jetstream.endpoints import Call, Outcome


def get(call: Call) -> Outcome:
    """STREAM.MSG.GET"""
    request = read_needed(call, MsgGetRequest)
    if isinstance(request, ApiError):
        return request
    refused = refuse_get(request)
    if refused is not None:
        return refused
    host = stream_of(call)
    if isinstance(host, ApiError):
        return host
    found = get_message(host.stream.store, request)
    if isinstance(found, ApiError):
        return found
    if isinstance(found, Cold):
        call.port.fetch(host, found, call.again)
        return None
    return MsgGetResponse(message=found)


def delete(call: Call) -> Outcome:
    """STREAM.MSG.DELETE; erased unless told otherwise"""
    request = read_needed(call, MsgDeleteRequest)
    if isinstance(request, ApiError):
        return request
    host = stream_of(call)
    if isinstance(host, ApiError):
        return host
    entry = host.stream.plan_remove(request.seq, call.now_ns, erase=not request.no_erase)
    if isinstance(entry, ApiError):
        return entry
    if isinstance(entry, NotLoaded):
        call.port.fetch(host, entry.cold, call.again)
        return None
    try:
        host.propose(entry)
    except StoreError as error:
        return refusals.STREAM_MSG_DELETE_FAILED(err=str(error))
    return Held(MsgDeleteResponse(success=True), host)


ENDPOINTS: Final = {
    "STREAM.MSG.GET": Endpoint(MsgGetResponse, get, 1, 1, is_audited=False),
    "STREAM.MSG.DELETE": Endpoint(MsgDeleteResponse, delete, 1, 1),
}
