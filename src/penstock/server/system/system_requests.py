"""Requests to the system account: monitoring pages and commands over NATS.

The body of a request is JSON: the page's options, and a filter that selects servers. Replies carry
the server's identity and either data or an error. Error texts are our own where the reference's
contain Go types.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from penstock.base.json_depth import check_nesting
from penstock.base.units import SECOND_NS
from penstock.server.config.config_scanner import ConfigError
from penstock.server.monitor import absent_pages
from penstock.server.monitor.accountz import AccountzOptions, accountz, accstatz_steps
from penstock.server.monitor.connz import ConnzOptions, connz_steps
from penstock.server.monitor.healthz import HealthOptions, healthz
from penstock.server.monitor.page_values import clean
from penstock.server.monitor.query_string import BadQuery
from penstock.server.monitor.subsz import SubszOptions, subsz_steps
from penstock.server.monitor.varz import varz
from penstock.server.net import close_reasons
from penstock.server.net.client_record import Now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.broker.permissions import CompiledPermissions, QueueEntry
    from penstock.server.monitor.process_usage import ProcessorShare
    from penstock.server.net.client_session import ClientSession
    from penstock.server.server_state import ServerState

BAD_REQUEST: Final = 400
FAILED: Final = 500
FIRST_LDM_PROTOCOL: Final = 1

Asked = TypeVar("Asked")


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """The servers that a request addresses; empty: all of them."""

    server_name: str = ""
    cluster: str = ""
    host: str = ""
    tags: tuple[str, ...] = ()
    domain: str = ""
    exact_match: bool = False


class StatzOptions(msgspec.Struct, frozen=True, kw_only=True):
    accounts: tuple[str, ...] = ()
    include_unused: bool = False


class ClientCommand(msgspec.Struct, frozen=True, kw_only=True):
    cid: int = 0


class MalformedRequest(Exception):
    """The request body is malformed."""


class CommandFailed(Exception):
    """A valid command could not be executed."""


def read_body(payload: bytes, kind: type[Asked]) -> Asked:
    """Decode a request body. Raises MalformedRequest."""
    try:
        check_nesting(payload)
        return msgspec.json.decode(payload or b"{}", type=kind)
    except ValueError as error:
        raise MalformedRequest(str(error)) from error


def is_meant(service: ServerState, wanted: Filter) -> bool:
    options = service.options
    cluster = options.cluster.name if options.cluster is not None else ""
    pairs = (
        (wanted.server_name, service.server_name),
        (wanted.cluster, cluster),
        (wanted.host, service.client_address[0]),
        (wanted.domain, "" if service.jetstream is None else service.jetstream.options.domain),
    )
    for asked, ours in pairs:
        if asked and (asked != ours if wanted.exact_match else asked not in ours):
            return False
    return set(wanted.tags) <= set(options.server_tags)


def page(service: ServerState, share: ProcessorShare, name: str, payload: bytes) -> object:
    """Return a page's data, or steps that build it. Raises MalformedRequest or BadQuery."""
    now = Now.read()
    if name == "VARZ":
        return varz(service, share, service.http_requests, now)
    if name in ABSENT:
        return ABSENT[name](service, now)
    return PAGES[name](service, now, payload)


def account_page(service: ServerState, account: str, name: str, payload: bytes) -> object:
    """As `page`, for a page about one account. Raises MalformedRequest or BadQuery."""
    return ACCOUNT_PAGES[name](service, Now.read(), payload, account)


def _connz(service: ServerState, now: Now, payload: bytes, account: str = "") -> object:
    options = read_body(payload, ConnzOptions)
    if account:
        options = msgspec.structs.replace(options, acc=account)
    return connz_steps(service, options, now)


def _subsz(service: ServerState, now: Now, payload: bytes) -> object:
    return subsz_steps(service, read_body(payload, SubszOptions), now)


def _account_subsz(service: ServerState, now: Now, payload: bytes, account: str) -> object:
    options = read_body(payload, SubszOptions)
    options = msgspec.structs.replace(options, account=account, subscriptions=True)
    return subsz_steps(service, options, now)


def _healthz(service: ServerState, now: Now, payload: bytes) -> object:
    status, health = healthz(service, read_body(payload, HealthOptions))
    return msgspec.structs.replace(health, status_code=status)


def _accountz(service: ServerState, now: Now, payload: bytes) -> object:
    return accountz(service, read_body(payload, AccountzOptions), now)


def _account_info(service: ServerState, now: Now, payload: bytes, account: str) -> object:
    return accountz(service, AccountzOptions(account=account), now).account_detail


def statz(service: ServerState, now: Now, payload: bytes, account: str = "") -> object:
    options = read_body(payload, StatzOptions)
    names = (account,) if account else options.accounts
    unused = options.include_unused or bool(account)
    return accstatz_steps(service, now, unused=unused, names=names)


def _account_leafz(service: ServerState, now: Now, payload: bytes, account: str) -> object:
    return absent_pages.leafz(service, now)


def _jsz(service: ServerState, now: Now, payload: bytes) -> object:
    from penstock.server.monitor.jsz import JszOptions, jsz_steps

    return jsz_steps(service, read_body(payload, JszOptions), now)


def _account_jsz(service: ServerState, now: Now, payload: bytes, account: str) -> object:
    from penstock.server.monitor.jsz import JszOptions, account_jsz_steps

    runtime = service.jetstream
    if runtime is None:
        raise BadQuery("jetstream not enabled")
    if account not in runtime.accounts or not runtime.accounts[account].assets.is_enabled:
        raise BadQuery(f'account "{account}" not jetstream enabled')
    return account_jsz_steps(runtime, account, read_body(payload, JszOptions), now)


PAGES: Final[dict[str, Callable[[Any, Now, bytes], object]]] = {
    "CONNZ": _connz,
    "SUBSZ": _subsz,
    "HEALTHZ": _healthz,
    "ACCOUNTZ": _accountz,
    "JSZ": _jsz,
}
ABSENT: Final[dict[str, Callable[[Any, Now], object]]] = {
    "ROUTEZ": absent_pages.routez,
    "GATEWAYZ": absent_pages.gatewayz,
    "LEAFZ": absent_pages.leafz,
    "RAFTZ": lambda service, now: {},
    "IPQUEUESZ": lambda service, now: {},
}
ACCOUNT_PAGES: Final[dict[str, Callable[[Any, Now, bytes, str], object]]] = {
    "CONNZ": _connz,
    "SUBSZ": _account_subsz,
    "LEAFZ": _account_leafz,
    "JSZ": _account_jsz,
    "INFO": _account_info,
    "STATZ": statz,
}


# -- commands


def _named_client(service: ServerState, payload: bytes) -> ClientSession | None:
    """Return the client that a command names, or None. Raises MalformedRequest without a body."""
    if not payload:
        raise MalformedRequest("no body")
    return service.sessions.get(read_body(payload, ClientCommand).cid)


def kick(service: ServerState, payload: bytes) -> None:
    """Close one client. Raises MalformedRequest or CommandFailed."""
    session = _named_client(service, payload)
    if session is None:
        raise CommandFailed("no such client or leafnode id")
    session.link.close(close_reasons.KICKED)


def send_lame_duck(service: ServerState, payload: bytes) -> None:
    """Request one client to move elsewhere. Raises MalformedRequest or CommandFailed."""
    session = _named_client(service, payload)
    if session is None:
        raise CommandFailed("no such client id")
    if session.options.protocol < FIRST_LDM_PROTOCOL or not session.connected:
        raise CommandFailed(
            "client does not support Lame Duck Mode or is not ready to receive the notification"
        )
    info = msgspec.structs.replace(service.info_for(session), ldm=True)
    session.link.send(info.line())


def reload_configuration(service: ServerState, payload: bytes) -> None:
    """Reload the configuration. Raises CommandFailed."""
    if service.reload is None:
        raise CommandFailed("this server cannot reload")
    try:
        service.reload()
    except ConfigError as error:
        raise CommandFailed(str(error)) from error


COMMANDS: Final = {"KICK": kick, "LDM": send_lame_duck, "RELOAD": reload_configuration}


# -- user info


def user_info(session: ClientSession) -> dict[str, Any]:
    """Return what a client may know about itself: its user, its account, its permissions."""
    data: dict[str, Any] = {
        "user": clean(session.user),
        "account": session.account.name,
        "account_name": session.account.name_tag,
    }
    claimed = session.claimed
    if claimed is not None and claimed.name:
        data["user_name"] = claimed.name
    if session.guards is not None:
        data["permissions"] = _permissions(session.guards.permissions)
    if claimed is not None and claimed.expires_s:
        data["expires"] = max(0, int(claimed.expires_s - time.time())) * SECOND_NS
    return data


def _permissions(permissions: CompiledPermissions) -> dict[str, Any]:
    document: dict[str, Any] = {
        "publish": _direction(permissions.pub_allow or (), permissions.pub_deny),
        "subscribe": _direction(
            [*(permissions.sub_allow or ()), *_queue_entries(permissions.sub_allow_queues)],
            [*permissions.sub_deny, *_queue_entries(permissions.sub_deny_queues)],
        ),
    }
    if permissions.responses is not None:
        document["responses"] = {
            "max": permissions.responses.max_msgs,
            "ttl": permissions.responses.expires_ns,
        }
    return {name: value for name, value in document.items() if value}


def _direction(allow: Iterable[str], deny: Iterable[str]) -> dict[str, list[str]]:
    document = {"allow": list(allow), "deny": list(deny)}
    return {name: entries for name, entries in document.items() if entries}


def _queue_entries(entries: Iterable[QueueEntry]) -> list[str]:
    return [f"{entry.subject} {entry.queue}" for entry in entries]
