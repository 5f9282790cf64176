"""Pages about what a single server has none of: routes, gateways, leaf nodes, JetStream.

Dashboards and exporters read all pages of a server, so each answers as a reference server does
that has no such peers: well-formed, and empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.server.monitor.answers import Answer, text_answer
from penstock.server.monitor.values import timestamp

if TYPE_CHECKING:
    from penstock.server.clients import Now
    from penstock.server.monitor.query import Query
    from penstock.server.service import Service

NO_RAFT: Final[Answer] = text_answer(404, "No Raft nodes registered")
JSZ_FLAGS: Final = (
    "accounts",
    "streams",
    "consumers",
    "direct-consumers",
    "config",
    "leader-only",
    "stream-leader-only",
    "raft",
)


def routez(service: Service, now: Now) -> dict[str, Any]:
    return {
        "server_id": service.server_id,
        "server_name": service.server_name,
        "now": timestamp(now.wall_ns),
        "num_routes": 0,
        "routes": [],
    }


def gatewayz(service: Service, now: Now) -> dict[str, Any]:
    gateway = service.options.gateway
    configured = {}
    if gateway is not None:
        port = service.bound_ports.get("gateway", 0)
        configured = {"name": gateway.name, "host": gateway.host, "port": port}
    return {
        "server_id": service.server_id,
        "now": timestamp(now.wall_ns),
        **{name: value for name, value in configured.items() if value},
        "outbound_gateways": {},
        "inbound_gateways": {},
    }


def leafz(service: Service, now: Now) -> dict[str, Any]:
    return {
        "server_id": service.server_id,
        "now": timestamp(now.wall_ns),
        "leafnodes": 0,
        "leafs": [],
    }


def jsz(service: Service, now: Now) -> dict[str, Any]:
    return {
        "memory": 0,
        "storage": 0,
        "reserved_memory": 0,
        "reserved_storage": 0,
        "accounts": 0,
        "ha_assets": 0,
        "api": {"level": 0, "total": 0, "errors": 0},
        "server_id": service.server_id,
        "now": timestamp(now.wall_ns),
        "disabled": True,
        "config": {"max_memory": 0, "max_storage": 0},
        "streams": 0,
        "consumers": 0,
        "messages": 0,
        "bytes": 0,
        "total": 0,
    }


def check_jsz(query: Query) -> None:
    """Raises BadQuery; a question is judged even where the answer is empty."""
    for name in JSZ_FLAGS:
        query.flag(name)
    for name in ("offset", "limit"):
        query.integer(name)


def check_subscriptions_flag(query: Query) -> None:
    """As of /routez and /leafz: `subs` is a boolean, or the word detail."""
    if query.text("subs") != "detail":
        query.flag("subs")
