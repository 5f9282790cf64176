"""`auth_callout { }`: an external service decides logins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.base.nkeys import KeyKind, is_public
from penstock.server.config.config_values import (
    ConfigFault,
    Reader,
    Section,
    as_text,
    as_texts,
    not_supported,
    read_map,
    type_name,
)
from penstock.server.config.options import CalloutOptions

if TYPE_CHECKING:
    from penstock.server.config.config_file import Node


def read_callout(section: Section, _key: str, node: Node) -> None:
    if not isinstance(node.value, dict):
        shown = node.value if isinstance(node.value, int | str) else type_name(node.value)
        raise ConfigFault(node, f"Expected authorization callout to be a map/struct, got {shown}")
    callout = replace(
        CalloutOptions(), **read_map(node.value, _CALLOUT, section.problems, _unknown)
    )
    inside = next(iter(node.value.values()), node)
    if not callout.issuer:
        raise ConfigFault(inside, "Authorization callouts require an issuer to be specified")
    if not callout.auth_users:
        raise ConfigFault(inside, "Authorization callouts require authorized users to be specified")
    section.fields["callout"] = callout


def _issuer(section: Section, _key: str, node: Node) -> None:
    issuer = as_text(node)
    if not is_public(issuer, KeyKind.ACCOUNT):
        raise ConfigFault(
            node, f'Expected callout user to be a valid public account nkey, got "{issuer}"'
        )
    section.fields["issuer"] = issuer


def _account(section: Section, _key: str, node: Node) -> None:
    section.fields["account"] = as_text(node)


def _names(field: str, label: str) -> Reader:
    def read(section: Section, _key: str, node: Node) -> None:
        if not isinstance(node.value, list):
            raise ConfigFault(node, f"Expected {label} field to be an array, got *conf.token")
        section.fields[field] = as_texts(node, field, section.problems)

    return read


def _xkey(section: Section, key: str, node: Node) -> None:
    xkey = as_text(node)
    if not is_public(xkey, KeyKind.CURVE):
        raise ConfigFault(node, f'Expected callout xkey to be a valid public xkey, got "{xkey}"')
    raise not_supported(node, key)


def _unknown(key: str, node: Node) -> str | None:
    if node.used_as_variable:
        return None
    return f'Unknown field "{key}" parsing authorization callout'


_CALLOUT: dict[str, Reader] = {
    "issuer": _issuer,
    **dict.fromkeys(("account", "acc"), _account),
    **dict.fromkeys(("auth_users", "users"), _names("auth_users", "auth_users")),
    **dict.fromkeys(("xkey", "key"), _xkey),
    "allowed_accounts": _names("allowed_accounts", "allowed accounts"),
}
