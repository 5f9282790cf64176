"""Listeners other than the client port: websocket, cluster, gateway, leafnodes.

A listener for other servers is accepted as long as it only listens. Keys that would make this
server dial, trust or serve another server are refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.base.durations import parse_duration
from penstock.base.units import SECOND_NS
from penstock.server.config.config_values import (
    ConfigFault,
    Problems,
    Reader,
    Section,
    as_bool,
    as_int,
    as_map,
    as_text,
    as_texts,
    boolean,
    checked,
    checked_duration,
    duration,
    integer,
    listen,
    not_supported,
    only_off,
    read_map,
    text,
    type_name,
    unsupported,
)
from penstock.server.config.options import ListenOnly, WebsocketOptions
from penstock.server.config.security_config import read_simple_authorization
from penstock.server.config.tls_config import read_tls

if TYPE_CHECKING:
    from penstock.server.config.config_file import Node

LEAFNODE_VERSION_MIN = (2, 8, 0)
WRITE_TIMEOUT_POLICIES = ("default", "close", "retry")
_NUMBER = r"(0|[1-9][0-9]{0,9})"
_SEMVER = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")


def read_websocket(section: Section, _key: str, node: Node) -> None:
    tree = _block(node, "websocket to be a map")
    fields = read_map(tree, _WEBSOCKET, section.problems)
    section.fields["websocket"] = replace(WebsocketOptions(), **fields)


def read_cluster(section: Section, _key: str, node: Node) -> None:
    section.fields["cluster"] = _listener(node, "map to define cluster", _CLUSTER, section.problems)


def read_gateway(section: Section, _key: str, node: Node) -> None:
    section.fields["gateway"] = _listener(node, "gateway to be a map", _GATEWAY, section.problems)


def read_leafnodes(section: Section, _key: str, node: Node) -> None:
    section.fields["leafnodes"] = _listener(
        node, "map to define a leafnode", _LEAFNODES, section.problems
    )


def write_timeout(_section: Section, key: str, node: Node) -> None:
    """Accept the policy that closes clients which do not read in time; it is the default."""
    policy = as_text(node)
    if policy not in WRITE_TIMEOUT_POLICIES:
        raise ConfigFault(node, f"{key} must be 'default', 'close' or 'retry'")
    if policy == "retry":
        raise not_supported(node, f"{key} = retry")


def _block(node: Node, wanted: str) -> dict[str, Node]:
    if not isinstance(node.value, dict):
        raise ConfigFault(node, f"Expected {wanted}, got {type_name(node.value)}")
    return node.value


def _listener(node: Node, wanted: str, table: dict[str, Reader], problems: Problems) -> ListenOnly:
    fields = read_map(_block(node, wanted), table, problems)
    options = replace(ListenOnly(), **fields)
    return options if options.host else replace(options, host=ListenOnly().host)


def _name(what: str) -> Reader:
    def read(section: Section, _key: str, node: Node) -> None:
        name = as_text(node)
        if " " in name:
            raise ConfigFault(node, f"{what} name cannot contain spaces")
        section.fields["name"] = name

    return read


def _leafnode_version(_section: Section, _key: str, node: Node) -> None:
    """Check the minimum version of leaf nodes as the reference does; it has no effect."""
    version = _SEMVER.fullmatch(as_text(node))
    if version is None:
        raise ConfigFault(node, "invalid leafnode's minimum version: invalid semver")
    if tuple(int(part) for part in version.groups()) < LEAFNODE_VERSION_MIN:
        shown = ".".join(str(part) for part in LEAFNODE_VERSION_MIN)
        raise ConfigFault(node, f"the minimum version should be at least {shown}")


def _compression(_section: Section, key: str, node: Node) -> None:
    if not isinstance(node.value, bool | str | dict):
        kind = type_name(node.value)
        raise ConfigFault(node, f'field "{key}" should be a boolean or a structure, got {kind}')


# Websocket


def _websocket_tls(section: Section, _key: str, node: Node) -> None:
    section.fields["tls"] = read_tls(node, section.problems)


def _origins(section: Section, _key: str, node: Node) -> None:
    section.fields["allowed_origins"] = as_texts(node, "allowed origins", section.problems)


def _handshake_timeout(section: Section, _key: str, node: Node) -> None:
    value = node.value
    if isinstance(value, str):
        try:
            section.fields["handshake_timeout_ns"] = parse_duration(value)
        except ValueError as error:
            raise ConfigFault(node, str(error)) from None
        return
    if isinstance(value, bool) or not isinstance(value, int):
        kind = type_name(value)
        raise ConfigFault(node, f"error parsing handshake timeout: unsupported type {kind}")
    section.fields["handshake_timeout_ns"] = value * SECOND_NS


def _websocket_authorization(section: Section, _key: str, node: Node) -> None:
    auth = read_simple_authorization(node, section.problems)
    section.fields.update(user=auth.user, password=auth.password, token=auth.token)
    if "timeout" in {key.lower() for key in as_map(node)}:
        section.fields["auth_timeout_ns"] = auth.timeout_ns


def _headers(section: Section, _key: str, node: Node) -> None:
    if not isinstance(node.value, dict):
        raise ConfigFault(node, f"error parsing headers: unsupported type {type_name(node.value)}")
    headers = {}
    for name, entry in node.value.items():
        if not isinstance(entry.value, str):
            kind = type_name(entry.value)
            raise ConfigFault(entry, f"error parsing header key {name}: unsupported type {kind}")
        headers[name] = entry.value
    section.fields["headers"] = headers


_WEBSOCKET: dict[str, Reader] = {
    "listen": listen("host", "port"),
    "port": integer("port"),
    **dict.fromkeys(("host", "net"), text("host")),
    "advertise": text("advertise"),
    "no_tls": boolean("no_tls"),
    "tls": _websocket_tls,
    "same_origin": boolean("same_origin"),
    **dict.fromkeys(
        (
            "allowed_origins",
            "allowed_origin",
            "allow_origins",
            "allow_origin",
            "origins",
            "origin",
        ),
        _origins,
    ),
    **dict.fromkeys(("compress", "compression"), boolean("compression")),
    "handshake_timeout": _handshake_timeout,
    **dict.fromkeys(("authorization", "authentication"), _websocket_authorization),
    "no_auth_user": text("no_auth_user"),
    "jwt_cookie": text("jwt_cookie"),
    "user_cookie": text("user_cookie"),
    "pass_cookie": text("pass_cookie"),
    "token_cookie": text("token_cookie"),
    "headers": _headers,
    "ping_interval": duration("ping_interval_ns", "ping_interval"),
}
_LISTENER: dict[str, Reader] = {
    "listen": listen("host", "port"),
    "port": integer("port"),
    **dict.fromkeys(("host", "net"), text("host")),
    "advertise": text("advertise"),
    "write_deadline": checked_duration("write_deadline"),
    "write_timeout": checked(as_text),
    **dict.fromkeys(("authorization", "tls"), unsupported),
}
_DIALLING: dict[str, Reader] = {
    "connect_retries": checked(as_int),
    "connect_backoff": checked(as_bool),
}
_CLUSTER: dict[str, Reader] = {
    **_LISTENER,
    **_DIALLING,
    "name": _name("cluster"),
    "cluster_advertise": text("advertise"),
    "no_advertise": boolean("no_advertise"),
    "routes": only_off,
    "pool_size": checked(as_int),
    "compression": _compression,
    "ping_interval": checked_duration("ping_interval"),
    "ping_max": checked(as_int),
    **dict.fromkeys(("permissions", "accounts"), unsupported),
}
_GATEWAY: dict[str, Reader] = {
    **_LISTENER,
    **_DIALLING,
    "name": _name("gateway"),
    "gateways": only_off,
    **dict.fromkeys(("reject_unknown", "reject_unknown_cluster"), checked(as_bool)),
}
_LEAFNODES: dict[str, Reader] = {
    **_LISTENER,
    "no_advertise": boolean("no_advertise"),
    "remotes": only_off,
    **dict.fromkeys(
        ("reconnect", "reconnect_delay", "reconnect_interval"), checked_duration("reconnect")
    ),
    "min_version": _leafnode_version,
    "compression": _compression,
    **dict.fromkeys(("isolate", "isolate_leafnode_interest"), checked(as_bool)),
}
