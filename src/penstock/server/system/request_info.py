"""Requester info: what a service learns about a requester in another account.

It always gets the account and the round-trip time, and everything else only if the import shares
it. Field names are those of JetStream advisories, which show clients the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.api.advisories import AdvisoryClient
from penstock.api.json_codec import encode
from penstock.base.json_depth import check_nesting
from penstock.server.net.client_session import ClientSession
from penstock.wire import headers

if TYPE_CHECKING:
    from penstock.broker.import_resolver import ResolvedImports
    from penstock.server.net.client_link import ClientLink
    from penstock.server.server_state import ServerState

REQUEST_INFO: Final = b"Nats-Request-Info"


def introduced(
    header: bytes, service: ServerState, joined: ResolvedImports, source: ClientLink | None
) -> bytes:
    """Return the request's header with the requester's info."""
    info = _info(header, service, joined, source)
    return headers.added(headers.without(header, REQUEST_INFO), REQUEST_INFO, encode(info))


def _info(
    header: bytes, service: ServerState, joined: ResolvedImports, source: ClientLink | None
) -> AdvisoryClient:
    session = None if source is None else source.handler
    if not isinstance(session, ClientSession):
        return AdvisoryClient(acc=joined.importer)
    if session.account.name != joined.importer:
        return _passed_on(header, joined)
    if joined.share:
        return describe(session, service)
    return AdvisoryClient(acc=session.account.name, rtt=session.rtt_ns)


def _passed_on(header: bytes, joined: ResolvedImports) -> AdvisoryClient:
    """Return the limited info of a request that already passed through another account."""
    return _limited(_known(header), joined.importer)


def _known(header: bytes) -> dict[str, object]:
    try:
        raw = headers.get(header, REQUEST_INFO) or b"{}"
        check_nesting(raw)
        return msgspec.json.decode(raw, type=dict[str, object])
    except ValueError:
        return {}


def _limited(known: dict[str, object], svc: str) -> AdvisoryClient:
    acc, rtt = known.get("acc"), known.get("rtt")
    return AdvisoryClient(
        acc=acc if isinstance(acc, str) else "", svc=svc, rtt=rtt if isinstance(rtt, int) else 0
    )


def asked_by(client: object, header: bytes, account: str, service: ServerState) -> AdvisoryClient:
    """Return the requester for an account's JetStream; from elsewhere only what is shared."""
    if not isinstance(client, ClientSession):
        return _own_request(header, account, service)
    if client.account.name == account:
        return describe(client, service)
    known = _known(header)
    if "id" in known:  # the import shares the client's details
        return msgspec.structs.replace(describe(client, service), svc=account)
    shown = _limited(known, account)
    return msgspec.structs.replace(
        shown, acc=shown.acc or client.account.name, server=service.server_name
    )


def _own_request(header: bytes, account: str, service: ServerState) -> AdvisoryClient:
    """Return the requester when it is the server itself, as for a mirror, in any account."""
    acc = _limited(_known(header), account).acc or account
    svc = "" if acc == account else account
    return AdvisoryClient(acc=acc, svc=svc, server=service.server_name, kind="JetStream")


def describe(client: ClientSession, service: ServerState) -> AdvisoryClient:
    """Return a client as advisories show it."""
    options = client.options
    return AdvisoryClient(
        start=client.start_ns,
        host=client.ip,
        id=client.cid,
        acc=client.account.name,
        user=client.user,
        name=options.name,
        lang=options.lang,
        ver=options.version,
        rtt=client.rtt_ns,
        server=service.server_name,
        kind="Client",
        client_type="websocket" if client.kind == "WEBSOCKET" else "nats",
    )
