"""Events that the server publishes in the system account, and the server's identity in them.

Fields are in the reference's order; fields that it omits when empty have a default here. Plain
values, built from the server state, a session or a record. `system_account` publishes them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping  # noqa: TC003 - msgspec reads annotations
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from penstock.base.version import REFERENCE_VERSION
from penstock.server.auth.login_values import Claimed
from penstock.server.monitor.accountz import Flow, FlowByKind, account_stat
from penstock.server.monitor.connection_totals import (
    subscriptions_of,
    totals_of,
    traffic_by_account,
)
from penstock.server.monitor.page_values import clean, number, round_trip_ns, timestamp
from penstock.server.monitor.process_usage import processors, resident_bytes, usable_processors
from penstock.server.monitor.varz import FEATURE_FLAGS, persistence_of
from penstock.server.server_state import Traffic

if TYPE_CHECKING:
    from penstock.server.monitor.process_usage import ProcessorShare
    from penstock.server.net.client_record import ClientRecord
    from penstock.server.server_state import ServerState
    from penstock.server.system.server_accounts import Account

EVENT_ID_BYTES: Final = 11
ADVISORY: Final = "io.nats.server.advisory.v1."
#: JetStream, the current archive format, consensus within accounts: what other servers may expect.
CAPABILITIES: Final = 0b111
CLIENT_TYPES: Final = {"WEBSOCKET": "websocket"}


class ServerIdentity(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    host: str
    id: str
    cluster: str = ""
    domain: str = ""
    ver: str
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, str] = {}
    feature_flags: Mapping[str, bool]
    jetstream: bool
    flags: int
    seq: int
    time: str


class ClientInfo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    start: str
    host: str
    id: int
    acc: str
    user: str = ""
    name: str = ""
    lang: str = ""
    ver: str = ""
    rtt: int = 0
    stop: str = ""
    jwt: str = ""
    issuer_key: str = ""
    name_tag: str
    tags: tuple[str, ...] = ()
    kind: str
    client_type: str


class ConnectEvent(Struct, frozen=True, kw_only=True):
    type: str = ADVISORY + "client_connect"
    id: str
    timestamp: str
    server: ServerIdentity
    client: ClientInfo


class DisconnectEvent(Struct, frozen=True, kw_only=True):
    """`sent` and `received` are from the client's point of view."""

    type: str = ADVISORY + "client_disconnect"
    id: str
    timestamp: str
    server: ServerIdentity
    client: ClientInfo
    sent: Flow
    received: Flow
    reason: str


class ConnectionsEvent(Struct, frozen=True, kw_only=True):
    type: str = ADVISORY + "account_connections"
    id: str
    timestamp: str
    server: ServerIdentity
    acc: str
    name: str
    conns: int
    leafnodes: int
    total_conns: int
    num_subscriptions: int
    sent: FlowByKind
    received: FlowByKind
    slow_consumers: int


def identity(service: ServerState, seq: int, now_ns: int) -> ServerIdentity:
    options = service.options
    runtime = service.jetstream
    return ServerIdentity(
        name=service.server_name,
        host=service.client_address[0],
        id=service.server_id,
        cluster=options.cluster.name if options.cluster is not None else "",
        ver=REFERENCE_VERSION,
        tags=options.server_tags,
        metadata=options.server_metadata,
        feature_flags=FEATURE_FLAGS,
        domain="" if runtime is None else runtime.options.domain,
        jetstream=runtime is not None,
        flags=0 if runtime is None else CAPABILITIES,
        seq=seq,
        time=timestamp(now_ns),
    )


def client_info(record: ClientRecord, *, with_rtt: bool = True) -> ClientInfo:
    claimed = record.claimed or Claimed()
    return ClientInfo(
        start=timestamp(record.start_ns),
        host=record.ip,
        id=record.cid,
        acc=record.account,
        user=clean(record.user),
        name=clean(record.name),
        lang=clean(record.lang),
        ver=clean(record.version),
        rtt=round_trip_ns(record.rtt_ns) if with_rtt else 0,
        stop=timestamp(record.stop_ns) if record.stop_ns else "",
        jwt=claimed.token,
        issuer_key=claimed.issuer,
        name_tag=record.name_tag,
        tags=claimed.tags,
        kind="Client",
        client_type=CLIENT_TYPES.get(record.kind, "nats"),
    )


def connect_event(record: ClientRecord, server: ServerIdentity) -> ConnectEvent:
    return ConnectEvent(
        id=event_id(),
        timestamp=server.time,
        server=server,
        client=client_info(record, with_rtt=False),
    )


def disconnect_event(record: ClientRecord, server: ServerIdentity) -> DisconnectEvent:
    return DisconnectEvent(
        id=event_id(),
        timestamp=server.time,
        server=server,
        client=client_info(record),
        sent=Flow(record.in_msgs, record.in_bytes),
        received=Flow(record.out_msgs, record.out_bytes),
        reason=record.reason,
    )


def connections_event(
    service: ServerState, account: Account, server: ServerIdentity
) -> ConnectionsEvent:
    stat = account_stat(account, traffic_by_account(service).get(account.name, Traffic()))
    return ConnectionsEvent(
        id=event_id(),
        timestamp=server.time,
        server=server,
        acc=stat.acc,
        name=stat.name,
        conns=stat.conns,
        leafnodes=stat.leafnodes,
        total_conns=stat.total_conns,
        num_subscriptions=stat.num_subscriptions,
        sent=stat.sent,
        received=stat.received,
        slow_consumers=stat.slow_consumers,
    )


def statsz(service: ServerState, share: ProcessorShare) -> dict[str, Any]:
    totals = totals_of(service)
    sent, received = (
        Flow(totals.out_msgs, totals.out_bytes),
        Flow(totals.in_msgs, totals.in_bytes),
    )
    stats: dict[str, Any] = {
        "start": timestamp(service.start_ns),
        "mem": resident_bytes(),
        "cores": processors(),
        "cpu": number(share.percent()),
        "connections": len(service.sessions),
        "total_connections": service.total_connections,
        "active_accounts": sum(account.connections > 0 for account in service.accounts),
        "subscriptions": subscriptions_of(service),
        "sent": sent,
        "sent_to_clients": sent,
        "received": received,
        "received_from_clients": received,
        "slow_consumers": service.io_loop.slow_consumers,
        "active_servers": 1,
    }
    if service.jetstream is not None:
        persistence = persistence_of(service)
        persistence["config"].pop("store_dir")  # file locations are not sent to remote clients
        stats["jetstream"] = persistence
    return stats | {"gomaxprocs": usable_processors()}


def event_id() -> str:
    return secrets.token_hex(EVENT_ID_BYTES)
