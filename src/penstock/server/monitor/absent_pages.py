"""Pages about peers that a single server does not have: routes, gateways, leaf nodes.

Dashboards and exporters read all pages of a server, so each page replies like a reference server
without such peers: well-formed and empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.server.monitor.page_answers import PageAnswer, text_answer
from penstock.server.monitor.page_values import timestamp

if TYPE_CHECKING:
    from penstock.server.monitor.query_string import Query
    from penstock.server.net.client_record import Now
    from penstock.server.server_state import ServerState

NO_RAFT: Final[PageAnswer] = text_answer(404, "No Raft nodes registered")


def routez(service: ServerState, now: Now) -> dict[str, Any]:
    return {
        "server_id": service.server_id,
        "server_name": service.server_name,
        "now": timestamp(now.wall_ns),
        "num_routes": 0,
        "routes": [],
    }


def gatewayz(service: ServerState, now: Now) -> dict[str, Any]:
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


def leafz(service: ServerState, now: Now) -> dict[str, Any]:
    return {
        "server_id": service.server_id,
        "now": timestamp(now.wall_ns),
        "leafnodes": 0,
        "leafs": [],
    }


def check_subscriptions_flag(query: Query) -> None:
    """Check the `subs` parameter of /routez: a boolean, or the word detail."""
    if query.text("subs") != "detail":
        query.flag("subs")
