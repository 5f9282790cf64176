"""Clients as JetStream's events show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api.advisories import ClientInfo
from penstock.server.session import Session

if TYPE_CHECKING:
    from penstock.server.service import Service


def describe(client: object, service: Service) -> ClientInfo:
    """Who asked; nobody if it was this server."""
    if not isinstance(client, Session):
        return ClientInfo(server=service.server_name)
    options = client.options
    return ClientInfo(
        start=client.start_ns,
        host=client.ip,
        id=client.cid,
        acc=client.account.name,
        user=client.user,
        name=options.name,
        lang=options.lang,
        ver=options.version,
        server=service.server_name,
        kind="Client",
        client_type="websocket" if client.kind == "WEBSOCKET" else "nats",
    )
