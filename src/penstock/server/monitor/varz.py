"""/varz: the server as a whole, its options and its counters.

Fields are in the reference's order; a field that it omits when empty has a default here. Fields
that are safe to show are listed one by one, so that a new option cannot expose a secret.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec reads annotations
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from penstock.base.units import SECOND_NS
from penstock.base.version import PROTOCOL, REFERENCE_VERSION, VERSION
from penstock.server.config.options import TLS_TIMEOUT_NS_DEFAULT
from penstock.server.monitor.connection_totals import subscriptions_of, totals_of
from penstock.server.monitor.page_values import number, timestamp, uptime
from penstock.server.monitor.process_usage import processors, resident_bytes, usable_processors
from penstock.server.net.connect_info import FIXED_INFO
from penstock.server.system.loop_watch import MILLISECOND_NS

if TYPE_CHECKING:
    from penstock.server.config.options import ListenOnly, TlsOptions, WebsocketOptions
    from penstock.server.monitor.process_usage import ProcessorShare
    from penstock.server.net.client_record import Now
    from penstock.server.server_state import ServerState

#: Feature flags of the reference; none applies to a single server without JetStream.
FEATURE_FLAGS: Final[Mapping[str, bool]] = {
    "js_ack_fc_v2": False,
    "js_api_reply_v2": False,
    "js_raft_delete_range": True,
    "js_snapshot_sources": False,
}
ROUTE_POOL_SIZE: Final = 3
PEER_TIMEOUT_S: Final = 2


class KindCounts(Struct, frozen=True):
    """One counter by type of connection; a single server has only clients."""

    clients: int = 0
    routes: int = 0
    gateways: int = 0
    leafs: int = 0


class DiskWaits(Struct, frozen=True):
    waiters: int = 0
    waits: int = 0
    wait_time: int = 0
    max_wait_time: int = 0


class LoopFacts(Struct, frozen=True):
    """Turns of the event loop: how many there were, and how many took long."""

    turns: int
    over_10ms: int
    over_50ms: int
    over_250ms: int
    worst_ms: float
    worst_operation: str


class WebsocketFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    host: str = ""
    port: int = 0
    advertise: str = ""
    no_auth_user: str = ""
    jwt_cookie: str = ""
    handshake_timeout: int = 0
    auth_timeout: float = 0
    no_tls: bool = False
    tls_timeout: float = 0
    same_origin: bool = False
    allowed_origins: tuple[str, ...] = ()
    compression: bool = False
    tls_cert_not_after: str = ""


class Varz(Struct, frozen=True, kw_only=True, omit_defaults=True):
    server_id: str
    server_name: str
    version: str
    proto: int
    penstock: str
    go: str
    host: str
    port: int
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    ip: str = ""
    max_connections: int
    max_subscriptions: int = 0
    ping_interval: int
    ping_max: int
    http_host: str
    http_port: int
    http_base_path: str
    https_port: int
    auth_timeout: float
    max_control_line: int
    max_payload: int
    max_pending: int
    cluster: dict[str, Any]
    gateway: dict[str, Any]
    leaf: dict[str, Any]
    mqtt: dict[str, Any]
    websocket: WebsocketFacts
    jetstream: dict[str, Any]
    tls_timeout: float
    write_deadline: int
    start: str
    now: str
    uptime: str
    mem: int
    cores: int
    gomaxprocs: int
    cpu: float
    connections: int
    total_connections: int
    routes: int
    remotes: int
    leafnodes: int
    in_msgs: int
    in_bytes: int
    in_client_msgs: int
    in_client_bytes: int
    out_msgs: int
    out_bytes: int
    out_client_msgs: int
    out_client_bytes: int
    slow_consumers: int
    stale_connections: int
    stalled_clients: int
    subscriptions: int
    http_req_stats: dict[str, int]
    config_load_time: str
    config_digest: str
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, str] = {}
    feature_flags: Mapping[str, bool]
    system_account: str = ""
    slow_consumer_stats: KindCounts
    stale_connection_stats: KindCounts
    disk_io_wait_stats: DiskWaits
    penstock_loop: LoopFacts
    tls_cert_not_after: str = ""


def varz(
    service: ServerState, share: ProcessorShare, requests: Mapping[str, int], now: Now
) -> Varz:
    return Varz(
        version=REFERENCE_VERSION,
        proto=PROTOCOL,
        penstock=VERSION,
        go=FIXED_INFO["go"],
        **_identity(service),
        **_limits(service),
        **_other_listeners(service),
        **_life(service, share, now),
        **_counters(service),
        http_req_stats=dict(sorted(requests.items())),
        feature_flags=FEATURE_FLAGS,
        disk_io_wait_stats=DiskWaits(),
        penstock_loop=_loop(service),
    )


def _loop(service: ServerState) -> LoopFacts:
    watch = service.watch
    counts = dict(watch.histogram())
    total = counts[None]
    return LoopFacts(
        turns=total,
        over_10ms=total - counts[10],
        over_50ms=total - counts[50],
        over_250ms=total - counts[250],
        worst_ms=number(watch.worst_ns / MILLISECOND_NS),
        worst_operation=watch.worst_operation,
    )


def _identity(service: ServerState) -> dict[str, Any]:
    options = service.options
    host, port = service.announced_address
    tls = options.tls
    return {
        "server_id": service.server_id,
        "server_name": service.server_name,
        "host": host,
        "port": port,
        "auth_required": service.authenticator("STANDARD").guarded,
        "tls_required": tls is not None and not options.allow_non_tls,
        "tls_verify": tls is not None and tls.verify,
        "tags": options.server_tags,
        "metadata": options.server_metadata,
        "system_account": "" if options.no_system_account else service.system_account,
        "tls_cert_not_after": cert_not_after(tls),
    }


def _limits(service: ServerState) -> dict[str, Any]:
    options = service.options
    tls_timeout_ns = options.tls.timeout_ns if options.tls else TLS_TIMEOUT_NS_DEFAULT
    return {
        "max_connections": options.max_connections,
        "max_subscriptions": options.max_subscriptions,
        "ping_interval": options.ping_interval_ns,
        "ping_max": options.ping_max,
        "http_host": options.http_host or options.host,
        "http_port": options.http_port,
        "http_base_path": options.http_base_path,
        "https_port": options.https_port,
        "auth_timeout": _seconds(options.authorization.timeout_ns),
        "max_control_line": options.max_control_line,
        "max_payload": options.max_payload,
        "max_pending": options.max_pending,
        "tls_timeout": _seconds(tls_timeout_ns),
        "write_deadline": options.write_deadline_ns,
        "config_digest": options.config_digest,
    }


def _other_listeners(service: ServerState) -> dict[str, Any]:
    options, ports = service.options, service.bound_ports
    return {
        "cluster": _cluster(options.cluster, ports.get("cluster", 0)),
        "gateway": _gateway(options.gateway, ports.get("gateway", 0)),
        "leaf": _leaf(options.leafnodes, ports.get("leafnodes", 0)),
        "mqtt": {},
        "websocket": _websocket(options.websocket, ports.get("websocket", 0)),
        "jetstream": persistence_of(service),
        "routes": 0,
        "remotes": 0,
        "leafnodes": 0,
    }


def persistence_of(service: ServerState) -> dict[str, Any]:
    """Return JetStream's configuration and usage; {} without JetStream."""
    runtime = service.jetstream
    if runtime is None:
        return {}
    from penstock.server.monitor import jsz

    return {
        "config": jsz.config(runtime),
        "stats": jsz.stats(runtime),
        "limits": jsz.limits(runtime),
    }


def _life(service: ServerState, share: ProcessorShare, now: Now) -> dict[str, Any]:
    return {
        "start": timestamp(service.start_ns),
        "now": timestamp(now.wall_ns),
        "uptime": uptime(now.wall_ns - service.start_ns),
        "mem": resident_bytes(),
        "cores": processors(),
        "gomaxprocs": usable_processors(),
        "cpu": number(share.percent()),
        "config_load_time": timestamp(service.config_load_ns),
    }


def _counters(service: ServerState) -> dict[str, Any]:
    totals, slow = totals_of(service), service.io_loop.slow_consumers
    return {
        "connections": len(service.sessions),
        "total_connections": service.total_connections,
        "in_msgs": totals.in_msgs,
        "in_bytes": totals.in_bytes,
        "in_client_msgs": totals.in_msgs,
        "in_client_bytes": totals.in_bytes,
        "out_msgs": totals.out_msgs,
        "out_bytes": totals.out_bytes,
        "out_client_msgs": totals.out_msgs,
        "out_client_bytes": totals.out_bytes,
        "slow_consumers": slow,
        "stale_connections": service.stale_connections,
        "stalled_clients": service.io_loop.stalled_clients,
        "subscriptions": subscriptions_of(service),
        "slow_consumer_stats": KindCounts(clients=slow),
        "stale_connection_stats": KindCounts(clients=service.stale_connections),
    }


def _cluster(cluster: ListenOnly | None, port: int) -> dict[str, Any]:
    if cluster is None:
        return {}
    facts = {"name": cluster.name, "addr": cluster.host, "cluster_port": port}
    return {
        **{name: value for name, value in facts.items() if value},
        "auth_timeout": PEER_TIMEOUT_S,
        "tls_timeout": PEER_TIMEOUT_S,
        "pool_size": ROUTE_POOL_SIZE,
    }


def _gateway(gateway: ListenOnly | None, port: int) -> dict[str, Any]:
    if gateway is None:
        return {}
    facts = {"name": gateway.name, "host": gateway.host, "port": port}
    return {
        **{name: value for name, value in facts.items() if value},
        "auth_timeout": PEER_TIMEOUT_S,
        "tls_timeout": PEER_TIMEOUT_S,
    }


def _leaf(leafnodes: ListenOnly | None, port: int) -> dict[str, Any]:
    if leafnodes is None:
        return {}
    return {
        "host": leafnodes.host,
        "port": port,
        "auth_timeout": PEER_TIMEOUT_S,
        "tls_timeout": PEER_TIMEOUT_S,
    }


def _websocket(options: WebsocketOptions | None, port: int) -> WebsocketFacts:
    if options is None:
        return WebsocketFacts()
    return WebsocketFacts(
        host=options.host,
        port=port,
        advertise=options.advertise,
        no_auth_user=options.no_auth_user,
        jwt_cookie=options.jwt_cookie,
        handshake_timeout=options.handshake_timeout_ns,
        auth_timeout=_seconds(options.auth_timeout_ns),
        no_tls=options.no_tls,
        same_origin=options.same_origin,
        allowed_origins=options.allowed_origins,
        compression=options.compression,
        tls_cert_not_after=cert_not_after(options.tls),
    )


def cert_not_after(tls: TlsOptions | None) -> str:
    """Return the expiry of the server's certificate; empty if there is none to read."""
    if tls is None or not tls.cert_file:
        return ""
    from pathlib import Path

    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(Path(tls.cert_file).read_bytes())
    except (OSError, ValueError):
        return ""
    return timestamp(int(certificate.not_valid_after_utc.timestamp()) * SECOND_NS)


def _seconds(ns: int) -> float:
    return number(ns / SECOND_NS)
