"""API handlers for consumers: create, update, list, pause, reset, unpin and delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from penstock.api import api_subjects, refusals
from penstock.api.advisories import ConsumerActionAdvisory as ConsumerEvent
from penstock.api.consumer_config import CreateConsumerRequest, pause_remaining
from penstock.api.json_codec import encode
from penstock.api.refusals import ApiError
from penstock.api.request_bodies import (
    ConsumersRequest,
    PauseRequest,
    ResetRequest,
    UnpinRequest,
    is_empty_body,
)
from penstock.api.responses import (
    ConsumerCreateResponse,
    ConsumerDeleteResponse,
    ConsumerInfoResponse,
    ConsumerListResponse,
    ConsumerNamesResponse,
    ConsumerPauseResponse,
    ConsumerResetResponse,
    ConsumerUnpinResponse,
)
from penstock.api.rules.consumer_requests import (
    RequestContext,
    addressed,
    decide_sliced,
    for_source,
    is_internal,
    with_level,
)
from penstock.api.rules.consumer_rules import check_group
from penstock.api.stream_config import Retention
from penstock.base.effects import Advise
from penstock.base.short_hash import short_hash
from penstock.jetstream.account.asset_factory import make_consumer, withdraw_consumer
from penstock.jetstream.account.asset_info import show_consumer
from penstock.jetstream.account.assets import ListPage, page_start
from penstock.jetstream.account.config_views import ConsumerConfigs
from penstock.jetstream.account.endpoints import Endpoint, HeldRequest
from penstock.jetstream.account.policy import consumer_caps
from penstock.jetstream.consumers.pull_delivery import Closing
from penstock.jetstream.handlers.handler_input import (
    consumer_of,
    missing_consumer,
    read_body,
    read_one,
    read_optional,
    stream_of,
)
from penstock.jetstream.handlers.long_list import LongList
from penstock.jetstream.host.asset_files import ConsumerMeta
from penstock.jetstream.streams.publish_headers import STREAM_IDENTITY
from penstock.jetstream.streams.source_progress import identity_of
from penstock.store.errors import StoreError
from penstock.wire import headers

if TYPE_CHECKING:
    from penstock.api.consumer_config import ConsumerConfig
    from penstock.jetstream.account.assets import Assets
    from penstock.jetstream.account.endpoints import ApiCall, Outcome, Port, Steps
    from penstock.jetstream.consumers.consumer import Consumer
    from penstock.jetstream.host.disk_work import FileSteps
    from penstock.jetstream.host.stream_host import StreamHost

NAMES_LIMIT: Final = 1024
LIST_LIMIT: Final = 256
LIST_STEP: Final = 64
"""Consumers of a page that one step builds."""
EPHEMERAL_NAME_LENGTH: Final = 8


def create(call: ApiCall) -> Steps:
    """CONSUMER.CREATE in its forms: creates a consumer, or updates an existing one."""
    request = read_body(call, CreateConsumerRequest)
    if isinstance(request, ApiError):
        return request
    whom = addressed(call.request.subject.split("."), request)
    if isinstance(whom, ApiError):
        return whom
    host = call.assets.hosts.get(whom.stream)
    if host is None:
        return call.assets.missing(whom.stream)
    whom = for_source(whom, host.stream.cfg, short_hash(call.assets.environment.nuid()))
    if _is_for_another(call, host, whom.config):
        return refusals.CONSUMER_STREAM_IDENTITY_MISMATCH(msg=identity_of(host.stream.created_ns))
    around = _surroundings(call.assets, host)
    cfg = yield from decide_sliced(whom.config, request.action, around, pedantic=request.pedantic)
    if isinstance(cfg, ApiError):
        return cfg
    existing = host.consumers.get(cfg.name) if cfg.name else None
    refused = missing_consumer(host, cfg.name) if cfg.name and existing is None else None
    if refused is not None and refused != refusals.CONSUMER_NOT_FOUND:
        return refused
    try:
        if existing is None:
            is_named = bool(whom.name or cfg.durable_name)
            return (yield from _create(call, host, cfg, named=is_named))
        return (yield from _update(call, host, existing, cfg))
    except StoreError as error:
        return refusals.CONSUMER_STORE_FAILED(err=str(error))


def _is_for_another(call: ApiCall, host: StreamHost, cfg: ConsumerConfig) -> bool:
    """Whether a mirror or source expects an older stream, which had this name before."""
    wanted = headers.get(call.request.header, STREAM_IDENTITY)
    if not wanted or not is_internal(cfg):
        return False
    return wanted.decode(errors="replace") != identity_of(host.stream.created_ns)


def _identified(host: StreamHost, cfg: ConsumerConfig) -> bytes:
    """Return the header that identifies the stream to a mirror or source."""
    if not is_internal(cfg):
        return b""
    return headers.added(b"", STREAM_IDENTITY, identity_of(host.stream.created_ns).encode())


def _surroundings(assets: Assets, host: StreamHost) -> RequestContext:
    return RequestContext(
        stream=host.stream.cfg,
        caps=consumer_caps(assets.policy, assets.limits),
        consumers=ConsumerConfigs(host.consumers),
        has_interest=lambda subject: assets.environment.has_interest(subject, None),
    )


def _create(call: ApiCall, host: StreamHost, cfg: ConsumerConfig, *, named: bool) -> Steps:
    name = cfg.name or call.assets.environment.nuid()[-EPHEMERAL_NAME_LENGTH:]
    consumer = make_consumer(call.assets, host, name, cfg, call.now_ns)
    try:
        call.port.watch(host, consumer)
        info = show_consumer(consumer, call.now_ns)
        yield from _save(host, consumer, cfg)
    except Exception:
        call.port.unwatch(consumer)
        withdraw_consumer(host, name, call.now_ns)
        call.port.mark(host)
        raise
    call.port.mark(host)
    created = consumer_advisory(api_subjects.CONSUMER_CREATED, host, name, "create")
    call.port.perform([created, *consumer.creation_advisories(call.now_ns)])
    if not named:
        config = structs.replace(info.config, name="") if info.config else None
        info = structs.replace(info, config=config)
    return HeldRequest(ConsumerCreateResponse(info=info), host, _identified(host, cfg))


def _save(host: StreamHost, consumer: Consumer, cfg: ConsumerConfig) -> FileSteps:
    """Write a configuration, if the consumer has files. Raises StoreError."""
    files = host.registry.files.get(consumer.name)
    if files is not None:
        config = msgspec.Raw(encode(cfg))
        meta = ConsumerMeta(name=consumer.name, config=config, created_ns=consumer.created_ns)
        yield from files.save(meta)


def _update(call: ApiCall, host: StreamHost, consumer: Consumer, cfg: ConsumerConfig) -> Steps:
    if cfg != consumer.cfg:
        yield from _change(call, host, consumer, cfg)
    if cfg.sourcing:
        _start_over(host, consumer, call.now_ns)
    call.port.mark(host)
    info = show_consumer(consumer, call.now_ns)
    return HeldRequest(ConsumerCreateResponse(info=info), host, _identified(host, cfg))


def _change(call: ApiCall, host: StreamHost, consumer: Consumer, cfg: ConsumerConfig) -> FileSteps:
    """Apply a configuration, then write it; if either fails, the old one stays.

    Raises StoreError if it cannot be written.
    """
    old = consumer.cfg
    is_saved = False
    try:
        effects = consumer.update(cfg, call.now_ns)
        call.port.unwatch(consumer)
        call.port.watch(host, consumer)
        show_consumer(consumer, call.now_ns)
        yield from _save(host, consumer, cfg)
        is_saved = True
        if host.stream.cfg.retention is Retention.INTEREST:
            host.chores.sweep(call.now_ns)  # removes messages, so it comes last
    except Exception:
        _undo_update(call, host, consumer, old)
        if is_saved:
            yield from _save(host, consumer, old)
        raise
    host.touched(consumer, effects)


def _undo_update(call: ApiCall, host: StreamHost, consumer: Consumer, old: ConsumerConfig) -> None:
    """Undo a failed change: try every step even if others fail, and log each exception."""
    for step in (
        lambda: consumer.update(old, call.now_ns),
        lambda: call.port.unwatch(consumer),
        lambda: call.port.watch(host, consumer),
        lambda: call.port.mark(host),
    ):
        try:
            step()
        except Exception as error:
            call.port.failed(call.request, error)


def _start_over(host: StreamHost, consumer: Consumer, now_ns: int) -> None:
    """Make the consumer of a reconnected mirror or source deliver unacked messages again."""
    done = consumer.reset(0, now_ns)
    if not isinstance(done, ApiError):
        host.touched(consumer, done.effects)
        host.await_state(consumer)


def consumer_advisory(subject: str, host: StreamHost, name: str, action: str) -> Advise:
    """Return the advisory of a created or deleted consumer."""
    return Advise(
        f"{subject}{host.name}.{name}",
        ConsumerEvent(stream=host.name, consumer=name, action=action),
    )


def info(call: ApiCall) -> Outcome:
    """CONSUMER.INFO"""
    if not is_empty_body(call.request.body):
        return refusals.NOT_EMPTY_REQUEST
    found = consumer_of(call)
    if isinstance(found, ApiError):
        return found
    return ConsumerInfoResponse(info=show_consumer(found[1], call.now_ns))


def names(call: ApiCall) -> Outcome:
    """CONSUMER.NAMES"""
    request = read_optional(call, ConsumersRequest)
    host = stream_of(call)
    if isinstance(request, ApiError):
        return request
    if isinstance(host, ApiError):
        return host
    found = host.registry.listed
    start = page_start(request.offset, len(found))
    return ConsumerNamesResponse(
        total=len(found),
        offset=start,
        limit=NAMES_LIMIT,
        consumers=tuple(found[start : start + NAMES_LIMIT]),
    )


def list_all(call: ApiCall) -> Outcome | Steps:
    """CONSUMER.LIST"""
    request = read_optional(call, ConsumersRequest)
    host = stream_of(call)
    if isinstance(request, ApiError):
        return request
    if isinstance(host, ApiError):
        return host
    found = host.registry.listed
    start = page_start(request.offset, len(found))
    return _list(call, host, ListPage(len(found), start, found[start : start + LIST_LIMIT]))


def _list(call: ApiCall, host: StreamHost, page: ListPage) -> Steps:
    shown = LongList()
    for at, name in enumerate(page.names if call.has_reader else ()):
        consumer = host.consumers.get(name)  # a consumer may be deleted between two steps
        if consumer is not None:
            shown.append(show_consumer(consumer, call.now_ns, in_list=True))
        if shown.is_piece_long or (at + 1) % LIST_STEP == 0:
            yield None
    response = ConsumerListResponse(total=page.total, offset=page.start, limit=LIST_LIMIT)
    return structs.replace(response, **{"consumers": shown.encoded()})


def delete(call: ApiCall) -> Outcome | Steps:
    """CONSUMER.DELETE"""
    if not is_empty_body(call.request.body):
        return refusals.NOT_EMPTY_REQUEST
    found = consumer_of(call)
    if isinstance(found, ApiError):
        return found
    return _delete(call, *found)


def _delete(call: ApiCall, host: StreamHost, consumer: Consumer) -> Steps:
    try:
        yield from delete_consumer(call.port, host, consumer, call.now_ns)
    except StoreError as error:
        return refusals.CONSUMER_STORE_FAILED(err=str(error))
    yield from host.chores.finish(call.now_ns)  # removes messages that only this consumer needed
    return HeldRequest(ConsumerDeleteResponse(success=True), host)


def delete_consumer(port: Port, host: StreamHost, consumer: Consumer, now_ns: int) -> FileSteps:
    """Delete a consumer, its files first; reply to its waiting requests. Raises StoreError."""
    files = host.registry.files.get(consumer.name)
    if files is not None:
        yield from files.delete()
        host.registry.forget_files(consumer.name)
    port.unwatch(consumer)
    host.drop_consumer(consumer.name, consumer.closing(Closing.DELETED), now_ns)
    port.mark(host)
    port.perform([consumer_advisory(api_subjects.CONSUMER_DELETED, host, consumer.name, "delete")])
    if files is not None:
        yield from files.remove_rest()


def pause(call: ApiCall) -> Steps:
    """CONSUMER.PAUSE; without a time, or with a past one, the consumer resumes."""
    request = read_optional(call, PauseRequest)
    if isinstance(request, ApiError):
        return request
    found = consumer_of(call)
    if isinstance(found, ApiError):
        return found
    host, consumer = found
    until_ns = request.pause_until or None
    cfg = with_level(structs.replace(consumer.cfg, pause_until=until_ns))
    try:
        yield from _change(call, host, consumer, cfg)
    except StoreError as error:
        return refusals.CONSUMER_STORE_FAILED(err=str(error))
    call.port.mark(host)
    remaining_ns = pause_remaining(until_ns, call.now_ns)
    return HeldRequest(
        ConsumerPauseResponse(
            paused=remaining_ns > 0,
            pause_until=until_ns or 0,
            pause_remaining=remaining_ns,
        ),
        host,
    )


def reset(call: ApiCall) -> Outcome:
    """CONSUMER.RESET; the server does not reply if the consumer does not exist"""
    found = consumer_of(call)
    if isinstance(found, ApiError):
        return None
    request = read_one(call, ResetRequest) if call.request.body else ResetRequest()
    if isinstance(request, ApiError):
        return request
    host, consumer = found
    done = consumer.reset(request.seq, call.now_ns)
    if isinstance(done, ApiError):
        return done
    if host.stream.cfg.retention is Retention.WORKQUEUE:
        consumer.take_acked()  # skipped messages were not processed, so the work queue keeps them
    host.touched(consumer, done.effects)
    host.await_state(consumer)
    call.port.mark(host)
    is_copy = headers.get(call.request.header, STREAM_IDENTITY) is not None
    identity = identity_of(host.stream.created_ns).encode()
    return HeldRequest(
        ConsumerResetResponse(info=show_consumer(consumer, call.now_ns), reset_seq=done.seq),
        host,
        headers.added(b"", STREAM_IDENTITY, identity) if is_copy else b"",
    )


def unpin(call: ApiCall) -> Outcome:
    """CONSUMER.UNPIN"""
    request = read_one(call, UnpinRequest)
    if isinstance(request, ApiError):
        return request
    refused = check_group(request.group)
    if refused is not None:
        return refused
    found = consumer_of(call)
    if isinstance(found, ApiError):
        return found
    host, consumer = found
    if request.group not in consumer.cfg.priority_groups:
        return refusals.CONSUMER_INVALID_PRIORITY_GROUP
    host.touched(consumer, consumer.unpin(request.group, call.now_ns))
    call.port.mark(host)
    return ConsumerUnpinResponse()


ENDPOINTS: Final = {
    "CONSUMER.CREATE": Endpoint(ConsumerCreateResponse, create, 1, 1_000_000, is_brief=True),
    "CONSUMER.DURABLE.CREATE": Endpoint(ConsumerCreateResponse, create, 2, 2, is_brief=True),
    "CONSUMER.INFO": Endpoint(ConsumerInfoResponse, info, 2, 2),
    "CONSUMER.NAMES": Endpoint(ConsumerNamesResponse, names, 1, 1),
    "CONSUMER.LIST": Endpoint(ConsumerListResponse, list_all, 1, 1),
    "CONSUMER.DELETE": Endpoint(ConsumerDeleteResponse, delete, 2, 2),
    "CONSUMER.PAUSE": Endpoint(ConsumerPauseResponse, pause, 2, 2, is_brief=True),
    "CONSUMER.RESET": Endpoint(ConsumerResetResponse, reset, 2, 2),
    "CONSUMER.UNPIN": Endpoint(ConsumerUnpinResponse, unpin, 2, 2),
}
