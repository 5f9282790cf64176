"""First steps of most handlers: decode the request body, look up the named stream or consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from penstock.api import refusals
from penstock.api.json_codec import decode, decode_one
from penstock.api.refusals import ApiError
from penstock.api.request_bodies import is_empty_body, is_json_body
from penstock.api.rules.stream_rules import SOURCES_MAX, TRANSFORMS_MAX
from penstock.jetstream.host.asset_files import file_name

if TYPE_CHECKING:
    from penstock.jetstream.account.endpoints import ApiCall
    from penstock.jetstream.consumers.consumer import Consumer
    from penstock.jetstream.host.stream_host import StreamHost

T = TypeVar("T", bound=Struct)


def read_body(call: ApiCall, kind: type[T]) -> T | ApiError:
    """Return the body, which must be valid."""
    try:
        return decode(
            kind,
            call.request.body,
            strict=call.assets.policy.strict,
            objects_max=max(SOURCES_MAX, TRANSFORMS_MAX),
        )
    except ApiError as error:
        return error


def read_needed(call: ApiCall, kind: type[T]) -> T | ApiError:
    """Return the body, which must not be empty."""
    if is_empty_body(call.request.body):
        return refusals.BAD_REQUEST
    return read_body(call, kind)


def read_one(call: ApiCall, kind: type[T]) -> T | ApiError:
    """Return the body, decoded leniently: in the reference the consumer itself decodes these."""
    try:
        return decode_one(kind, call.request.body)
    except ApiError as error:
        return error


def read_optional(call: ApiCall, kind: type[T]) -> T | ApiError:
    """Return the body if it is JSON, else a request with all defaults."""
    if is_json_body(call.request.body):
        return read_body(call, kind)
    return kind()


def stream_of(call: ApiCall) -> StreamHost | ApiError:
    """Return the stream that the subject names."""
    return call.assets.hosts.get(call.names[0]) or call.assets.missing(call.names[0])


def consumer_of(call: ApiCall) -> tuple[StreamHost, Consumer] | ApiError:
    """Return the consumer that the subject names."""
    host = stream_of(call)
    if isinstance(host, ApiError):
        return host
    consumer = host.consumers.get(call.names[1])
    return missing_consumer(host, call.names[1]) if consumer is None else (host, consumer)


def missing_consumer(host: StreamHost, name: str) -> ApiError:
    """Return why no consumer of this name is served: it is missing, or its files are unusable."""
    why = None if host.files is None else host.files.unserved.get(file_name(name))
    if why is None:
        return refusals.CONSUMER_NOT_FOUND
    return refusals.CONSUMER_OFFLINE_REASON(err=why)
