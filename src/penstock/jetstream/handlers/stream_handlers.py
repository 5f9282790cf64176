"""API handlers for streams: create, update, info, list, purge and delete."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from penstock.api import api_subjects, refusals
from penstock.api.advisories import StreamAction
from penstock.api.json_codec import encode
from penstock.api.refusals import ApiError
from penstock.api.request_bodies import (
    PurgeRequest,
    StreamConfigRequest,
    StreamInfoRequest,
    StreamListRequest,
    StreamNamesRequest,
    is_empty_body,
)
from penstock.api.responses import (
    StreamCreateResponse,
    StreamDeleteResponse,
    StreamInfoResponse,
    StreamListResponse,
    StreamNamesResponse,
    StreamPurgeResponse,
    StreamUpdateResponse,
)
from penstock.api.rules.stream_defaults import StreamContext
from penstock.api.rules.stream_requests import plan_create_sliced, plan_update_sliced
from penstock.api.stream_config import ConsumerLimits, Storage
from penstock.base.effects import Advise
from penstock.base.sequences import SEQ_MAX
from penstock.jetstream.account.asset_factory import host_made, make_files
from penstock.jetstream.account.asset_info import show_stream
from penstock.jetstream.account.endpoints import Endpoint, HeldRequest
from penstock.jetstream.consumers.pull_delivery import Closing
from penstock.jetstream.handlers.consumer_handlers import consumer_advisory
from penstock.jetstream.handlers.handler_input import (
    read_body,
    read_optional,
    stream_of,
)
from penstock.jetstream.handlers.long_list import LongList
from penstock.jetstream.handlers.stream_info_handler import info_in_steps
from penstock.jetstream.host.asset_files import StreamMeta, file_name
from penstock.jetstream.host.disk_work import DiskWork, Vacancy
from penstock.jetstream.streams.entries import Update
from penstock.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Generator

    from penstock.api.stream_config import StreamConfig
    from penstock.jetstream.account.asset_factory import CreatedAsset
    from penstock.jetstream.account.assets import Assets
    from penstock.jetstream.account.endpoints import ApiCall, Outcome, Port, Steps
    from penstock.jetstream.host.disk_work import FileSteps
    from penstock.jetstream.host.stream_host import StreamHost
    from penstock.jetstream.streams.entries import Purge

NAMES_LIMIT: Final = 1024
LIST_LIMIT: Final = 256
LIST_STEP: Final = 64
"""Streams of a page that one step builds."""
LONG_CONFIG: Final = 500
"""A stream with more subjects and sources is created in several steps."""
STORAGE_KEY: Final = re.compile(rb'"storage"\s*:', re.IGNORECASE)


def create(call: ApiCall) -> Steps:
    """STREAM.CREATE; succeeds if a stream with the same configuration exists."""
    request = read_body(call, StreamConfigRequest)
    if isinstance(request, ApiError):
        return request
    cfg = yield from plan_create_sliced(call.names[0], request.config, _context(call, request))
    if isinstance(cfg, ApiError):
        return cfg
    existing = call.assets.hosts.get(cfg.name)
    if existing is not None:
        return _created(call, existing)
    if file_name(cfg.name) in call.assets.unserved:
        return call.assets.missing(cfg.name)
    try:
        host = yield from _make(call, cfg)
    except StoreError as error:
        return refusals.STREAM_CREATE(err=str(error))
    is_long = len(cfg.subjects) + len(cfg.sources) > LONG_CONFIG
    if is_long:
        yield None
        yield from call.port.prepare_sources(host, cfg)
    try:
        call.port.serve(host)
        created = _created(call, host)
    except BaseException:
        _undo_create(call, host)
        raise
    call.port.perform([_stream_advisory(api_subjects.STREAM_CREATED, host.name, "create")])
    if is_long:
        yield None
    return created


def _undo_create(call: ApiCall, host: StreamHost) -> None:
    """Remove a new stream that cannot be served."""
    if host.files is not None:
        host.files.mark_deleted()
    call.port.retire(host)
    call.assets.drop(host)
    call.port.sweep()


def _make(call: ApiCall, cfg: StreamConfig) -> Generator[DiskWork[CreatedAsset], None, StreamHost]:
    """Create a stream, its files on a disk thread. It takes messages once they are durable."""
    assets, now_ns = call.assets, call.now_ns
    work = DiskWork(lambda: make_files(assets, cfg, now_ns))
    if cfg.storage is Storage.MEMORY or assets.files is None:
        work.run()
    else:
        assets.is_making = True
        try:
            yield work
        finally:
            assets.is_making = False
    return host_made(assets, cfg, work.result(), now_ns)


def _context(call: ApiCall, request: StreamConfigRequest) -> StreamContext:
    return stream_context(call.assets, request.name)._replace(
        pedantic=request.pedantic,
        storage_given=STORAGE_KEY.search(call.request.body) is not None,
    )


def stream_context(assets: Assets, name: str) -> StreamContext:
    """Return the context that checks the configuration of a stream."""
    host = assets.hosts.get(name)
    return StreamContext(
        streams=assets.configs,
        streams_on=assets.streams_on,
        reserved=assets.promised,
        limits=assets.limits,
        tiers=assets.tiers,
        duplicate_window_max=assets.policy.duplicate_window_ns,
        free_memory=assets.room.unpromised(Storage.MEMORY),
        free_storage=assets.room.unpromised(Storage.FILE),
        consumers={} if host is None else _used_of_limits(host),
    )


def _created(call: ApiCall, host: StreamHost) -> Outcome:
    info = show_stream(call.assets, host, call.now_ns, with_cluster=False)
    return HeldRequest(StreamCreateResponse(info=info, did_create=True), host)


def _used_of_limits(host: StreamHost) -> dict[str, ConsumerLimits]:
    """Return each consumer's values that stream limits may restrict."""
    return {
        name: ConsumerLimits(
            inactive_threshold=each.cfg.inactive_threshold,
            max_ack_pending=each.cfg.max_ack_pending,
        )
        for name, each in host.consumers.items()
    }


def _stream_advisory(subject: str, name: str, action: str) -> Advise:
    return Advise(f"{subject}{name}", StreamAction(stream=name, action=action))


def update(call: ApiCall) -> Steps:
    """STREAM.UPDATE"""
    request = read_body(call, StreamConfigRequest)
    if isinstance(request, ApiError):
        return request
    cfg = yield from plan_update_sliced(call.names[0], request.config, _context(call, request))
    if isinstance(cfg, ApiError):
        return cfg
    host = call.assets.hosts[cfg.name]
    old = host.stream.cfg
    entry = host.stream.plan_update(cfg, call.now_ns)  # raises if it cannot be applied
    try:
        yield from _save(call.assets, host, cfg)
    except StoreError as error:
        return refusals.STREAM_UPDATE(err=str(error))
    if len(cfg.sources) > LONG_CONFIG:
        yield from call.port.prepare_sources(host, cfg)
    if host.is_closed:
        return refusals.STREAM_NOT_FOUND
    try:
        if not (yield from _apply_update(call, host, entry)):
            yield from _save_again(call, host, old)
            return None  # this server no longer leads
        show_stream(call.assets, host, call.now_ns, with_cluster=False)  # raises if it cannot
    except Exception as error:
        yield from _undo_update(call, host, old)
        yield from _save_again(call, host, old)
        if isinstance(error, StoreError):
            return refusals.STREAM_UPDATE(err=str(error))
        raise
    call.port.mark(host)
    yield from host.chores.finish(call.now_ns)  # lower limits may remove many messages
    call.port.perform([_stream_advisory(api_subjects.STREAM_UPDATED, host.name, "modify")])
    info = show_stream(call.assets, host, call.now_ns, with_cluster=False)
    return HeldRequest(StreamUpdateResponse(info=info), host)


def _save(assets: Assets, host: StreamHost, cfg: StreamConfig) -> FileSteps:
    """Write a configuration durably, on a disk thread. Raises StoreError.

    `is_making` keeps restored streams out meanwhile: they could conflict with the configuration.
    """
    files = host.files
    if files is None:
        return
    meta = _meta(host, encode(cfg))
    work = DiskWork(lambda: files.save(meta))
    assets.is_making = True
    try:
        yield work
    finally:
        assets.is_making = False
    work.result()


def _save_again(call: ApiCall, host: StreamHost, old: StreamConfig) -> FileSteps:
    """Write the old configuration again; log a failure."""
    try:
        yield from _save(call.assets, host, old)
    except Exception as error:
        call.port.failed(call.request, error)


def _apply_update(call: ApiCall, host: StreamHost, entry: Update) -> Generator[Vacancy, None, bool]:
    """Apply a new configuration to the stream, the account and the routing; return False if it was
    dropped."""
    old, cfg = host.stream.cfg, entry.cfg
    applied = yield from host.proposals.change(entry)
    if applied is None:
        return False
    call.assets.changed(host, old)
    host.config_changed(call.now_ns)
    if (old.subjects, old.mirror, old.sources) != (cfg.subjects, cfg.mirror, cfg.sources):
        call.port.serve(host)
    return True


def _undo_update(
    call: ApiCall, host: StreamHost, old: StreamConfig
) -> Generator[Vacancy, None, None]:
    """Restore the configuration in memory after an update failed half way.

    Try every step even if others fail, and log each exception.
    """

    new = host.stream.cfg
    if new is not old:
        yield from _restore(call, host, old)

    def publish_advisory() -> None:
        host.config_changed(call.now_ns)

    def serve() -> None:
        call.port.serve(host)

    for step in (publish_advisory, serve):
        try:
            step()
        except Exception as error:
            call.port.failed(call.request, error)


def _restore(call: ApiCall, host: StreamHost, old: StreamConfig) -> Generator[Vacancy, None, None]:
    new = host.stream.cfg
    try:
        applied = yield from host.proposals.change(Update(call.now_ns, old))
        if applied is not None:
            call.assets.changed(host, new)
    except Exception as error:
        call.port.failed(call.request, error)


def _meta(host: StreamHost, config: bytes) -> StreamMeta:
    assert host.files is not None
    return StreamMeta(
        config=msgspec.Raw(config),
        created_ns=host.stream.created_ns,
        incarnation=host.files.incarnation,
        first_seq=min(host.stream.store.state().last_seq + 1, SEQ_MAX),
    )


def info(call: ApiCall) -> Outcome | Steps:
    """STREAM.INFO, with subjects and deleted sequences if requested"""
    request = read_optional(call, StreamInfoRequest)
    if isinstance(request, ApiError):
        return request
    host = stream_of(call)
    if isinstance(host, ApiError):
        return host
    return info_in_steps(call, host, request)


def names(call: ApiCall) -> Steps:
    """STREAM.NAMES"""
    request = read_optional(call, StreamNamesRequest)
    if isinstance(request, ApiError):
        return request
    page = yield from call.assets.page(request.subject, request.offset, NAMES_LIMIT)
    return StreamNamesResponse(
        total=page.total,
        offset=page.start,
        limit=NAMES_LIMIT,
        streams=tuple(page.names) or None,
    )


def list_all(call: ApiCall) -> Steps:
    """STREAM.LIST"""
    request = read_optional(call, StreamListRequest)
    if isinstance(request, ApiError):
        return request
    page = yield from call.assets.page(request.subject, request.offset, LIST_LIMIT)
    shown = LongList()
    for at, name in enumerate(page.names if call.has_reader else ()):
        host = call.assets.hosts.get(name)  # a stream may be deleted between two steps
        if host is not None:
            shown.append(show_stream(call.assets, host, call.now_ns, in_list=True))
        if shown.is_piece_long or (at + 1) % LIST_STEP == 0:
            yield None
    response = StreamListResponse(total=page.total, offset=page.start, limit=LIST_LIMIT)
    return structs.replace(response, **{"streams": shown.encoded()})


def delete(call: ApiCall) -> Outcome | Steps:
    """STREAM.DELETE"""
    if not is_empty_body(call.request.body):
        return refusals.NOT_EMPTY_REQUEST
    host = stream_of(call)
    if isinstance(host, ApiError):
        return host
    return _delete(call, host)


def _delete(call: ApiCall, host: StreamHost) -> Steps:
    files = host.files
    if files is not None:
        work = DiskWork(files.mark_deleted)
        call.port.freeze(host, frozen=True)
        yield work
        try:
            work.result()
        except StoreError as error:
            call.port.freeze(host, frozen=False)
            return refusals.STREAM_DELETE(err=str(error))
    remove_stream(call.assets, call.port, host)
    return StreamDeleteResponse(success=True)


def remove_stream(assets: Assets, port: Port, host: StreamHost) -> None:
    """Remove a stream and its consumers from the account; their files are deleted already."""
    for consumer in host.consumers.values():
        deleted = consumer_advisory(api_subjects.CONSUMER_DELETED, host, consumer.name, "delete")
        host.send((*consumer.closing(Closing.DELETED), deleted))
    port.retire(host)
    assets.drop(host)
    if host.files is not None:
        port.sweep()
    port.perform([_stream_advisory(api_subjects.STREAM_DELETED, host.name, "delete")])


def purge(call: ApiCall) -> Outcome | Steps:
    """STREAM.PURGE: everything, or by subject, up to a sequence, or all but the newest"""
    request = read_optional(call, PurgeRequest)
    if isinstance(request, ApiError):
        return request
    host = stream_of(call)
    if isinstance(host, ApiError):
        return host
    entry = host.stream.plan_purge(request, call.now_ns)
    if isinstance(entry, ApiError):
        return entry
    return _purge(call, host, entry)


def _purge(call: ApiCall, host: StreamHost, entry: Purge) -> Steps:
    slices = host.chores.purge(entry, call.now_ns)
    try:
        while True:
            pause = next(slices)
            call.port.mark(host)  # commits the removals while the purge continues
            yield pause
    except StopIteration as end:
        purged = end.value
    except StoreError as error:
        return refusals.STREAM_PURGE_FAILED(err=str(error))
    if purged is None:
        return None  # this server no longer leads
    return HeldRequest(StreamPurgeResponse(success=True, purged=purged), host)


ENDPOINTS: Final = {
    "STREAM.CREATE": Endpoint(StreamCreateResponse, create, 1, 1, is_serial=True),
    "STREAM.UPDATE": Endpoint(StreamUpdateResponse, update, 1, 1, is_serial=True),
    "STREAM.INFO": Endpoint(StreamInfoResponse, info, 1, 1),
    "STREAM.NAMES": Endpoint(StreamNamesResponse, names),
    "STREAM.LIST": Endpoint(StreamListResponse, list_all),
    "STREAM.DELETE": Endpoint(StreamDeleteResponse, delete, 1, 1, is_serial=True),
    "STREAM.PURGE": Endpoint(StreamPurgeResponse, purge, 1, 1),
}
