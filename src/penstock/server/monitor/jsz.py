"""/jsz: what JetStream stores, in total and by account, stream and consumer.

The fields are the reference's; a server without JetStream replies that it is disabled. Listings are
paged by account, as in the reference: `offset` and `limit` count accounts. One account may have
very many streams, so the page is built in steps. The caller may serve clients between them, and
streams may be created or deleted meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct, json

from penstock.api.json_codec import encode
from penstock.api.stream_config import Storage
from penstock.base.version import REFERENCE_API_LEVEL
from penstock.server.monitor.page_values import timestamp
from penstock.server.monitor.sliced_pages import JsonRows

if TYPE_CHECKING:
    from collections.abc import Generator

    from penstock.jetstream.account.assets import Assets
    from penstock.jetstream.host.stream_host import StreamHost
    from penstock.server.jetstream.runtime import JetStreamRuntime
    from penstock.server.monitor.query_string import Query
    from penstock.server.net.client_record import Now
    from penstock.server.server_state import ServerState

    Json: TypeAlias = dict[str, Any]
    Steps: TypeAlias = Generator[None, None, Json]

LIMIT_DEFAULT: Final = 1024
SYNC_INTERVAL_NS: Final = 120_000_000_000
"""Shown if no interval is configured: the reference's default, which syncs in the background."""


class JszOptions(Struct, frozen=True, kw_only=True):
    """Parameters of an HTTP or system request."""

    account: str = ""
    accounts: bool = False
    streams: bool = False
    consumer: bool = False
    direct_consumer: bool = False
    config: bool = False
    leader_only: bool = False
    offset: int = 0
    limit: int = 0
    raft: bool = False
    stream_leader_only: bool = False

    @classmethod
    def from_query(cls, query: Query) -> JszOptions:
        return cls(
            account=query.text("acc"),
            accounts=query.flag("accounts"),
            streams=query.flag("streams"),
            consumer=query.flag("consumers"),
            direct_consumer=query.flag("direct-consumers"),
            config=query.flag("config"),
            leader_only=query.flag("leader-only"),
            stream_leader_only=query.flag("stream-leader-only"),
            raft=query.flag("raft"),
            offset=query.integer("offset"),
            limit=query.integer("limit"),
        )


def jsz_steps(service: ServerState, options: JszOptions, now: Now) -> Steps:
    """Build the page in steps of one stream or consumer."""
    runtime = service.jetstream
    head = {"server_id": service.server_id, "now": timestamp(now.wall_ns)}
    if runtime is None:
        disabled = {"disabled": True, "config": {"max_memory": 0, "max_storage": 0}}
        return {**_no_stats(), **head, **disabled, **_no_totals(), "total": 0}
    assets = _enabled(runtime)
    page: Json = {
        **stats(runtime),
        **head,
        "config": config(runtime),
        "limits": limits(runtime),
        **_with_leaders(totals(runtime), options),
    }
    details = []
    for each in _chosen(assets, options):
        account = yield from _account(each, options, now)
        details.append(account)
    if details:
        page["account_details"] = JsonRows(details)
    page["total"] = len(assets)
    return page


def account_jsz_steps(runtime: JetStreamRuntime, name: str, options: JszOptions, now: Now) -> Steps:
    """Build the details of one account in steps."""
    return _account(runtime.accounts[name].assets, options, now)


def _enabled(runtime: JetStreamRuntime) -> list[Assets]:
    """Return the accounts that use JetStream."""
    return [each.assets for each in runtime.accounts.values() if each.assets.is_enabled]


def stats(runtime: JetStreamRuntime) -> Json:
    """Return what the server uses and has reserved."""
    assets = _enabled(runtime)
    return {
        "memory": sum(each.used(Storage.MEMORY) for each in assets),
        "storage": sum(each.used(Storage.FILE) for each in assets),
        "reserved_memory": runtime.room.reserved_memory,
        "reserved_storage": runtime.room.reserved_storage,
        "accounts": len(assets),
        "ha_assets": 0,
        "api": {
            "level": REFERENCE_API_LEVEL,
            "total": sum(each.api_total for each in assets),
            "errors": sum(each.api_errors for each in assets),
        },
    }


def config(runtime: JetStreamRuntime) -> Json:
    """Return the configuration; it contains an interval even if every write is synced."""
    found: Json = {
        "max_memory": runtime.room.max_memory,
        "max_storage": runtime.room.max_storage,
        "store_dir": runtime.store_dir,
    }
    found["sync_interval"] = runtime.options.sync_interval_ns or SYNC_INTERVAL_NS
    if not runtime.options.sync_interval_ns:
        found["sync_always"] = True
    if runtime.options.domain:
        found["domain"] = runtime.options.domain
    if runtime.options.max_memory >= 0 or runtime.options.max_store >= 0:
        found["compress_ok"] = True
    if runtime.options.strict:
        found["strict"] = True
    return found


def limits(runtime: JetStreamRuntime) -> dict[str, int]:
    """Return the limits for all accounts."""
    given = runtime.options.limits
    found = {
        "max_request_batch": given.max_request_batch,
        "max_ack_pending": given.max_ack_pending,
        "default_max_consumers": given.default_max_consumers,
        "duplicate_window": given.duplicate_window_ns,
    }
    return {name: value for name, value in found.items() if value}


def _no_stats() -> Json:
    return {
        "memory": 0,
        "storage": 0,
        "reserved_memory": 0,
        "reserved_storage": 0,
        "accounts": 0,
        "ha_assets": 0,
        "api": {"level": 0, "total": 0, "errors": 0},
    }


def _no_totals() -> dict[str, int]:
    return {"streams": 0, "consumers": 0, "messages": 0, "bytes": 0}


def hosts_of(runtime: JetStreamRuntime) -> list[StreamHost]:
    """Return every stream that is served."""
    return [host for each in _enabled(runtime) for host in each]


def totals(runtime: JetStreamRuntime) -> dict[str, int]:
    """Return the totals over all streams."""
    hosts = hosts_of(runtime)
    states = [host.stream.store.state() for host in hosts]
    return {
        "streams": len(hosts),
        "consumers": sum(host.registry.num_listed for host in hosts),
        "messages": sum(state.msgs for state in states),
        "bytes": sum(state.bytes for state in states),
    }


def _with_leaders(counted: dict[str, int], options: JszOptions) -> dict[str, int]:
    """Return the totals of the page; a single server leads all its streams and consumers."""
    found: dict[str, int] = {}
    for name, count in counted.items():
        found[name] = count
        if options.raft and count and name in ("streams", "consumers"):
            found[f"{name}_leader"] = count
    return found


def _chosen(assets: list[Assets], options: JszOptions) -> list[Assets]:
    """Return the accounts to show."""
    if options.account:
        return [each for each in assets if each.environment.account == options.account]
    if not (options.accounts or options.streams or options.consumer):
        return []
    ordered = sorted(assets, key=lambda each: each.environment.account)
    limit, start = options.limit or LIMIT_DEFAULT, max(options.offset, 0)
    return ordered if limit < 0 else ordered[start : start + limit]  # negative: all


def _account(assets: Assets, options: JszOptions, now: Now) -> Steps:
    name = assets.environment.account
    found: Json = {
        "name": name,
        "id": name,
        "memory": assets.used(Storage.MEMORY),
        "storage": assets.used(Storage.FILE),
        "reserved_memory": 0 if assets.tiers else _unsigned(assets.limits.max_memory),
        "reserved_storage": 0 if assets.tiers else _unsigned(assets.limits.max_storage),
        "accounts": 0,
        "ha_assets": 0,
        "api": {"level": 0, "total": assets.api_total, "errors": assets.api_errors},
    }
    if options.streams or options.consumer:
        details = []
        for host in list(assets):
            if not host.is_closed:
                stream = yield from _stream(assets, host, options, now)
                details.append(stream)
        found["stream_detail"] = JsonRows(details)
    return found


def _unsigned(value: int) -> int:
    """Convert -1 (no limit) to the largest unsigned number, as the reference shows it."""
    return value % 2**64


def _stream(assets: Assets, host: StreamHost, options: JszOptions, now: Now) -> Steps:
    cfg = host.stream.cfg
    found: Json = {
        "name": cfg.name,
        "created": timestamp(host.stream.created_ns),
        "cluster": {"leader": assets.environment.server_name},
    }
    if options.config:
        found["config"] = plain(cfg)
    found["state"] = plain(host.stream.state(consumers=host.registry.num_listed))
    yield
    if options.consumer:
        listed = host.registry.listed
        yield from _consumers(host, listed, options, now, found.setdefault("consumer_detail", []))
        if options.direct_consumer:
            direct = [name for name in host.consumers if name not in set(listed)]
            details = found.setdefault("direct_consumer_detail", [])
            yield from _consumers(host, direct, options, now, details)
    if host.stream_sources is not None:
        mirror = host.stream_sources.mirror_info(now.wall_ns)
        found["mirror"] = None if mirror is None else plain(mirror)
        found["sources"] = [plain(one) for one in host.stream_sources.source_infos(now.wall_ns)]
    return {name: value for name, value in found.items() if value not in (None, [])}


def _consumers(
    host: StreamHost, names: list[str], options: JszOptions, now: Now, details: list[Json]
) -> Generator[None, None, None]:
    for name in names:
        consumer = host.consumers.get(name)
        if consumer is not None:
            detail = plain(consumer.info(now.wall_ns))
            if not options.config:
                detail.pop("config", None)
            details.append(detail)
            yield


def plain(value: Struct) -> Any:
    """Return an API value as plain JSON data for use in a larger reply."""
    return json.decode(encode(value))
