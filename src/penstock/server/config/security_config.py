"""Users, accounts and permissions: `authorization { }` and `accounts { }`.

This module checks every subject in a permission, so that the broker can trust the values. Duplicate
users may be in two different blocks, so `config_reader` checks for them over the whole file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.base.nkeys import KeyKind, is_public
from penstock.broker.import_resolver import SharingFault
from penstock.broker.permission_values import (
    Permissions,
    ResponsePermission,
    SubjectPermission,
)
from penstock.server.config.callout_config import read_callout
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
    as_timeout,
    duration_text,
    integer,
    not_supported,
    read_map,
    text,
    type_name,
    unsupported,
)
from penstock.server.config.jetstream_config import read_account_jetstream
from penstock.server.config.options import (
    AUTH_TIMEOUT_NS_DEFAULT,
    AccountConnectionLimits,
    AccountOptions,
    Authorization,
    UserOptions,
)
from penstock.server.config.share_config import (
    read_exports,
    read_imports,
    read_mappings,
    sharing_of,
)
from penstock.server.config.trace_config import read_message_trace
from penstock.subjects.tokens import is_valid_subject

if TYPE_CHECKING:
    from penstock.server.config.config_file import Node

GLOBAL_ACCOUNT = "$G"
CONNECTION_TYPES = frozenset(
    ("STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS")
)


def read_authorization(node: Node, problems: Problems) -> Authorization:
    auth = replace(Authorization(), **read_map(as_map(node), _AUTHORIZATION, problems))
    if (auth.user or auth.password) and auth.token:
        raise ConfigFault(node, "Cannot have a user/pass and token")
    return auth


def read_simple_authorization(node: Node, problems: Problems) -> Authorization:
    """Read the block of a listener that has one user or one token."""
    return replace(Authorization(), **read_map(as_map(node), _SIMPLE, problems))


def read_accounts(node: Node, problems: Problems) -> tuple[AccountOptions, ...]:
    """Read a list of names, or a map from name to account."""
    if isinstance(node.value, list):
        return _named_accounts(node.value)
    if not isinstance(node.value, dict):
        raise ConfigFault(node, "Expected map entries for accounts")
    accounts = []
    for name, entry in node.value.items():
        if entry.used_as_variable:
            continue
        try:
            accounts.append(_account(name, entry, problems))
        except ConfigFault as fault:
            problems.errors.append(str(fault))
    if not problems.errors:
        _check_sharing(accounts, node)
    return tuple(accounts)


def _check_sharing(accounts: list[AccountOptions], node: Node) -> None:
    try:
        sharing_of(accounts)
    except SharingFault as fault:
        raise ConfigFault(node, str(fault)) from None


def _named_accounts(items: list[Node]) -> tuple[AccountOptions, ...]:
    names: list[str] = []
    for item in items:
        name = as_text(item)
        _refuse_reserved(name, item)
        if name in names:
            raise ConfigFault(item, f"Duplicate Account Entry: {name}")
        names.append(name)
    return tuple(AccountOptions(name=name) for name in names)


def _account(name: str, node: Node, problems: Problems) -> AccountOptions:
    if not isinstance(node.value, dict):
        raise ConfigFault(node, "Expected map entries for accounts")
    _refuse_reserved(name, node)
    account = replace(AccountOptions(name=name), **read_map(node.value, _ACCOUNT, problems))
    return replace(account, users=tuple(replace(user, account=name) for user in account.users))


def _refuse_reserved(name: str, node: Node) -> None:
    if name == GLOBAL_ACCOUNT:
        raise ConfigFault(node, f'"{name}" is a Reserved Account')


# Users


def _users(section: Section, _key: str, node: Node) -> None:
    if not isinstance(node.value, list):
        shown = node.value if isinstance(node.value, str | int | float) else type_name(node.value)
        raise ConfigFault(node, f"Expected users field to be an array, got {shown}")
    users = []
    for item in node.value:
        try:
            users.append(_user(item, section.problems))
        except ConfigFault as fault:
            section.problems.errors.append(str(fault))
    section.fields["users"] = tuple(users)


def _user(node: Node, problems: Problems) -> UserOptions:
    if not isinstance(node.value, dict):
        shown = node.value if isinstance(node.value, str | int | float) else type_name(node.value)
        raise ConfigFault(node, f"Expected user entry to be a map/struct, got {shown}")
    user = replace(UserOptions(), **read_map(node.value, _USER, problems))
    if not user.nkey and not user.user:
        raise ConfigFault(node, "User entry requires a user")
    if user.nkey and not is_public(user.nkey, KeyKind.USER):
        raise ConfigFault(node, "Not a valid public nkey for a user")
    if user.nkey and (user.user or user.password):
        raise ConfigFault(node, "Nkey users do not take usernames or passwords")
    return user


def _connection_types(section: Section, _key: str, node: Node) -> None:
    kinds = [kind.upper() for kind in as_texts(node, "allowed connection types", section.problems)]
    unknown = [kind for kind in kinds if kind not in CONNECTION_TYPES]
    if unknown:
        listed = " ".join(f'"{kind}"' for kind in unknown)
        raise ConfigFault(node, f"invalid connection types [{listed}]")
    section.fields["allowed_connection_types"] = tuple(kinds)


def _proxy_required(_section: Section, key: str, node: Node) -> None:
    if as_bool(node):
        raise not_supported(node, key)


def _auth_timeout(section: Section, _key: str, node: Node) -> None:
    section.fields["timeout_ns"] = as_timeout(node, "authorization") or AUTH_TIMEOUT_NS_DEFAULT


# Permissions


def _permissions(name: str) -> Reader:
    def read(section: Section, _key: str, node: Node) -> None:
        section.fields[name] = read_permissions(node, section.problems)

    return read


def read_permissions(node: Node, problems: Problems) -> Permissions:
    if not isinstance(node.value, dict):
        shown = node.value if isinstance(node.value, str | int | float) else type_name(node.value)
        raise ConfigFault(node, f"Expected permissions to be a map/struct, got {shown}")
    return replace(Permissions(), **read_map(node.value, _PERMISSIONS, problems, _unknown))


def _unknown(key: str, node: Node) -> str | None:
    return None if node.used_as_variable else f'Unknown field "{key}" parsing permissions'


def _unknown_direction(key: str, node: Node) -> str | None:
    if node.used_as_variable:
        return None
    return (
        f'Unknown field name "{key}" parsing subject permissions, '
        "only 'allow' or 'deny' are permitted"
    )


def _direction(name: str, *, with_queues: bool) -> Reader:
    subjects = _subjects_with_queues if with_queues else _subjects_only
    table: dict[str, Reader] = {"allow": subjects("allow"), "deny": subjects("deny")}

    def read(section: Section, key: str, node: Node) -> None:
        if not isinstance(node.value, dict):
            fields = Section(problems=section.problems)
            table["allow"](fields, key, node)
            section.fields[name] = replace(SubjectPermission(), **fields.fields)
        elif node.value:
            found = read_map(node.value, table, section.problems, _unknown_direction)
            section.fields[name] = replace(SubjectPermission(), **found)

    return read


def _subjects_only(name: str) -> Reader:
    def read(section: Section, _key: str, node: Node) -> None:
        _set_subjects(section, name, [_subject(entry) for entry in _entries(node)])

    return read


def _subjects_with_queues(name: str) -> Reader:
    def read(section: Section, _key: str, node: Node) -> None:
        _set_subjects(section, name, [_subject_and_queue(entry) for entry in _entries(node)])

    return read


def _set_subjects(section: Section, name: str, subjects: list[str]) -> None:
    if subjects:  # an empty list has no effect, as in the reference
        section.fields[name] = tuple(subjects)


def _entries(node: Node) -> list[tuple[Node, str]]:
    if isinstance(node.value, str):
        return [(node, node.value)]
    if not isinstance(node.value, list):
        raise ConfigFault(
            node,
            "Expected subject permissions to be a subject, or array of subjects, "
            f"got {type_name(node.value)}",
        )
    entries = []
    for item in node.value:
        if not isinstance(item.value, str):
            raise ConfigFault(item, "Subject in permissions array cannot be cast to string")
        entries.append((item, item.value))
    return entries


def _subject(entry: tuple[Node, str]) -> str:
    node, subject = entry
    if not is_valid_subject(subject):
        raise ConfigFault(node, f'subject "{subject}" is not a valid subject')
    return subject


def _subject_and_queue(entry: tuple[Node, str]) -> str:
    node, both = entry
    words = both.split()
    if is_valid_subject(both):
        return both
    if len(words) != 2:
        raise ConfigFault(node, f'subject "{both}" is not a valid subject')
    subject, queue = words
    if not is_valid_subject(queue):
        raise ConfigFault(node, f'queue "{queue}" is not a valid queue')
    return f"{_subject((node, subject))} {queue}"


def _responses(section: Section, _key: str, node: Node) -> None:
    if node.value is True:
        section.fields["responses"] = ResponsePermission()
    elif isinstance(node.value, dict):
        found = read_map(node.value, _RESPONSES, section.problems, _unknown)
        section.fields["responses"] = replace(ResponsePermission(), **found)
    elif node.value is not False:
        raise ConfigFault(node, "error parsing response permissions, expected a boolean or a map")


def _max_responses(section: Section, _key: str, node: Node) -> None:
    if as_int(node):  # 0 keeps the default, a negative number removes the limit
        section.fields["max_msgs"] = max(as_int(node), -1)


def _response_expiry(section: Section, _key: str, node: Node) -> None:
    if not isinstance(node.value, str):
        raise ConfigFault(node, "error parsing expires, not a duration string")
    expires_ns = duration_text(node, "expires")
    if expires_ns:
        section.fields["expires_ns"] = max(expires_ns, -1)


# Account limits


def _limits(section: Section, _key: str, node: Node) -> None:
    if not isinstance(node.value, dict):
        shown = node.value if isinstance(node.value, str | int | float) else type_name(node.value)
        raise ConfigFault(node, f"Expected account limits to be a map/struct, got {shown}")
    found = read_map(node.value, _LIMITS, section.problems, _unknown_limit)
    section.fields["limits"] = replace(AccountConnectionLimits(), **found)


def _unknown_limit(key: str, node: Node) -> str | None:
    return None if node.used_as_variable else f'Unknown field "{key}" parsing account limits'


_SIMPLE: dict[str, Reader] = {
    **dict.fromkeys(("user", "username"), text("user")),
    **dict.fromkeys(("pass", "password"), text("password")),
    "token": text("token"),
    "timeout": _auth_timeout,
}
_AUTHORIZATION: dict[str, Reader] = {
    **_SIMPLE,
    "users": _users,
    **dict.fromkeys(
        ("default_permission", "default_permissions", "permissions"),
        _permissions("default_permissions"),
    ),
    "auth_callout": read_callout,
    "proxy_required": _proxy_required,
}
_USER: dict[str, Reader] = {
    **dict.fromkeys(("user", "username"), text("user")),
    **dict.fromkeys(("pass", "password"), text("password")),
    "nkey": text("nkey"),
    **dict.fromkeys(("permission", "permissions", "authorization"), _permissions("permissions")),
    **dict.fromkeys(("allowed_connection_types", "connection_types", "clients"), _connection_types),
    "proxy_required": _proxy_required,
}
_PERMISSIONS: dict[str, Reader] = {
    **dict.fromkeys(("pub", "publish", "import"), _direction("publish", with_queues=False)),
    **dict.fromkeys(("sub", "subscribe", "export"), _direction("subscribe", with_queues=True)),
    **dict.fromkeys(("allow_responses", "publish_allow_responses"), _responses),
}
_RESPONSES: dict[str, Reader] = {
    **dict.fromkeys(("max", "max_msgs", "max_messages", "max_responses"), _max_responses),
    **dict.fromkeys(("expires", "expiration", "ttl"), _response_expiry),
}
_ACCOUNT: dict[str, Reader] = {
    "users": _users,
    "default_permissions": _permissions("default_permissions"),
    "limits": _limits,
    "jetstream": read_account_jetstream,
    "exports": read_exports,
    "imports": read_imports,
    **dict.fromkeys(("mappings", "maps"), read_mappings),
    **dict.fromkeys(("msg_trace", "trace_dest"), read_message_trace),
    "nkey": unsupported,
}
_LIMITS: dict[str, Reader] = {
    **dict.fromkeys(("max_connections", "max_conn"), integer("max_connections")),
    **dict.fromkeys(("max_subscriptions", "max_subs"), integer("max_subscriptions")),
    **dict.fromkeys(("max_payload", "max_pay"), integer("max_payload")),
    **dict.fromkeys(("max_leafnodes", "max_leafs"), integer("max_leafnodes")),
}
