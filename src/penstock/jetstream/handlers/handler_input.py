"""Reading request bodies, and finding what they speak of: the first steps of most handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from penstock.api import refusals
from penstock.api.json_codec import decode, decode_one
from penstock.api.refusals import ApiError
from penstock.api.request_bodies import is_empty_body, is_json_body
from penstock.jetstream.host.asset_files import file_name

if TYPE_CHECKING:
    from penstock.jetstream.account.endpoints import ApiCall
    from penstock.jetstream.consumers.consumer import Consumer
    from penstock.jetstream.host.stream_host import StreamHost

T = TypeVar("T", bound=Struct)


def read_body(call: ApiCall, kind: type[T]) -> T | ApiError:
    """The body, which must say something valid."""
    try:
        return decode(kind, call.request.body, strict=call.assets.policy.strict)
    except ApiError as error:
        return error


def read_needed(call: ApiCall, kind: type[T]) -> T | ApiError:
    """The body, which must not be empty."""
    if is_empty_body(call.request.body):
        return refusals.BAD_REQUEST
    return read_body(call, kind)


def read_one(call: ApiCall, kind: type[T]) -> T | ApiError:
    """The body of a request that consumers themselves answer in the reference: read leniently."""
    try:
        return decode_one(kind, call.request.body)
    except ApiError as error:
        return error


def read_optional(call: ApiCall, kind: type[T]) -> T | ApiError:
    """The body if it is JSON; anything else asks for nothing special."""
    if is_json_body(call.request.body):
        return read_body(call, kind)
    return kind()


def stream_of(call: ApiCall) -> StreamHost | ApiError:
    """The stream the subject names."""
    return call.assets.hosts.get(call.names[0]) or call.assets.missing(call.names[0])


def consumer_of(call: ApiCall) -> tuple[StreamHost, Consumer] | ApiError:
    """The consumer the subject names."""
    host = stream_of(call)
    if isinstance(host, ApiError):
        return host
    consumer = host.consumers.get(call.names[1])
    return missing_consumer(host, call.names[1]) if consumer is None else (host, consumer)


def missing_consumer(host: StreamHost, name: str) -> ApiError:
    """Why no consumer of this name is served: there is none, or its files cannot be used."""
    why = None if host.files is None else host.files.unserved.get(file_name(name))
    if why is None:
        return refusals.CONSUMER_NOT_FOUND
    return refusals.CONSUMER_OFFLINE_REASON(err=why)
