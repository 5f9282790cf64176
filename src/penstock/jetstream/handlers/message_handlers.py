"""API handlers for single messages: get and delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api import refusals
from penstock.api.refusals import ApiError
from penstock.api.request_bodies import MsgDeleteRequest, MsgGetRequest
from penstock.api.responses import MsgDeleteResponse, MsgGetResponse
from penstock.jetstream.account.endpoints import Endpoint, HeldRequest, Wait
from penstock.jetstream.account.message_get import get_message, refuse_get
from penstock.jetstream.handlers.handler_input import read_needed, stream_of
from penstock.jetstream.streams.entries import NotApplied, NotLoaded
from penstock.store.contract import Cold
from penstock.store.errors import StoreError

if TYPE_CHECKING:
    from penstock.jetstream.account.endpoints import ApiCall, Outcome, Steps
    from penstock.jetstream.host.stream_host import StreamHost


def get(call: ApiCall) -> Outcome | Steps:
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
    return _get(host, request)


def _get(host: StreamHost, request: MsgGetRequest) -> Steps:
    found = get_message(host.stream.store, request)
    while isinstance(found, Cold):
        yield Wait(host, found)
        found = get_message(host.stream.store, request)
    return found if isinstance(found, ApiError) else MsgGetResponse(message=found)


def delete(call: ApiCall) -> Outcome | Steps:
    """STREAM.MSG.DELETE; erases the bytes unless the request sets `no_erase`"""
    request = read_needed(call, MsgDeleteRequest)
    if isinstance(request, ApiError):
        return request
    host = stream_of(call)
    if isinstance(host, ApiError):
        return host
    return _delete(call, host, request)


def _delete(call: ApiCall, host: StreamHost, request: MsgDeleteRequest) -> Steps:
    erase = not request.no_erase
    entry = host.stream.plan_remove(request.seq, call.now_ns, erase=erase)
    while isinstance(entry, NotLoaded | NotApplied):
        if isinstance(entry, NotLoaded):
            yield Wait(host, entry.cold)
        else:
            yield from host.proposals.wait()
        entry = host.stream.plan_remove(request.seq, call.now_ns, erase=erase)
    if isinstance(entry, ApiError):
        return entry
    try:
        applied = yield from host.proposals.change(entry)
    except StoreError as error:
        return refusals.STREAM_MSG_DELETE_FAILED(err=str(error))
    if applied is None:
        return None  # this server no longer leads
    return HeldRequest(MsgDeleteResponse(success=True), host)


ENDPOINTS: Final = {
    "STREAM.MSG.GET": Endpoint(MsgGetResponse, get, 1, 1, is_audited=False),
    "STREAM.MSG.DELETE": Endpoint(MsgDeleteResponse, delete, 1, 1),
}
