"""Operators: `operator`, `trusted_keys`, `resolver` and related keys.

The file contains an operator's JWT or names a file with it; the JWT is read once, here, and kept as
text. Every token must be of the expected kind and signed by the issuer it names. `check_operators`
compares operators with the other options; `config_checks` calls it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.base.durations import parse_duration
from penstock.base.nkeys import KeyKind, is_public
from penstock.base.version import REFERENCE_VERSION
from penstock.server.auth.claims import (
    AccountClaims,
    ClaimsFault,
    OperatorClaims,
    UserClaims,
    decode,
)
from penstock.server.auth.scoped_users import is_unlicensed
from penstock.server.config.config_values import (
    ConfigFault,
    as_bool,
    as_int,
    as_map,
    as_text,
    as_texts,
    not_supported,
    type_name,
)
from penstock.server.config.options import TokenDirectory

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.server.config.config_file import Node
    from penstock.server.config.config_values import Section
    from penstock.server.config.options import Options

TOKEN_START: Final = "eyJ"
"""Every JWT starts with this."""
MEMORY: Final = "MEMORY"
FULL: Final = "FULL"
CACHE: Final = "CACHE"
NO_RESOLVER: Final = (
    'error parsing account resolver, should be MEM or  URL("url") or a map containing '
    "dir and type state=[FULL|CACHE])"
)

_RESOLVER: Final[dict[str, Callable[[Node], object]]] = {
    "type": as_text,
    "dir": as_text,
    "allow_delete": as_bool,
    "hard_delete": as_bool,
    "limit": as_int,
    "ttl": as_text,
    "interval": as_text,
    "timeout": as_text,
}
#: Keys that a resolver of this type does not accept.
_UNWELCOME: Final = {
    FULL: {"ttl": "FULL does not accept ttl"},
    CACHE: {
        "interval": "CACHE does not accept sync",
        "allow_delete": "CACHE does not accept allow_delete",
        "hard_delete": "CACHE does not accept hard_delete",
    },
}

_DECORATED = re.compile(r"-{3,}[^\n]*\n\s*([A-Za-z0-9_\-.]+)\s*\n-{3,}")
_IN_MEMORY = re.compile(r"MEM", re.IGNORECASE)
_BY_URL = re.compile(r"URL", re.IGNORECASE)


def read_operators(section: Section, _key: str, node: Node) -> None:
    tokens, found = [], []
    for entry in as_texts(node, "operators", section.problems):
        try:
            token = _operator_token(entry)
            found.append(decode(token, OperatorClaims))
        except (ClaimsFault, OSError) as fault:
            raise ConfigFault(node, f"error parsing operator JWT: {_why(fault)}") from None
        tokens.append(token)
    section.fields["operators"] = tuple(tokens)
    if len(found) == 1 and found[0].system_account:
        section.fields.setdefault("system_account", found[0].system_account)


def read_trusted_keys(section: Section, _key: str, node: Node) -> None:
    keys = as_texts(node, "trusted", section.problems)
    for key in keys:
        if not is_public(key, KeyKind.OPERATOR):
            raise ConfigFault(
                node, f'trust key "{key}" required to be a valid public operator nkey'
            )
    section.fields["trusted_keys"] = keys


def read_resolver(section: Section, _key: str, node: Node) -> None:
    if isinstance(node.value, dict):
        _read_resolver_map(section, node)
        return
    if not isinstance(node.value, str):
        got = type_name(node.value)
        raise ConfigFault(node, f"error parsing operator resolver, wrong type {got}")
    if _BY_URL.match(node.value):
        raise not_supported(node, "resolver URL")
    if not _IN_MEMORY.search(node.value):
        raise ConfigFault(node, NO_RESOLVER)
    section.fields["resolver"] = MEMORY


def _read_resolver_map(section: Section, node: Node) -> None:
    entries = as_map(node)
    given = {key: read(entries[key]) for key, read in _RESOLVER.items() if key in entries}
    kind = str(given.get("type", "")).upper()
    if kind in ("MEM", MEMORY):
        section.fields["resolver"] = MEMORY
        return
    if kind not in (FULL, CACHE):
        raise ConfigFault(node, NO_RESOLVER)
    for key in ("ttl", "interval", "timeout"):
        _check_duration(node, given.get(key))
    _check_directory(node, given, _UNWELCOME[kind])
    if kind == CACHE:
        raise not_supported(node, "resolver of type CACHE")
    section.fields["resolver"] = FULL
    section.fields["resolver_directory"] = TokenDirectory(
        path=str(given["dir"]),
        allow_delete=bool(given.get("allow_delete")),
        hard_delete=bool(given.get("hard_delete")),
        limit=max(0, int(str(given.get("limit", 0)))),
    )


def _check_duration(node: Node, given: object) -> None:
    """Check that a setting which concerns only other servers is a duration; it has no effect."""
    try:
        parse_duration(str(given)) if given is not None else None
    except ValueError as error:
        raise ConfigFault(node, str(error)) from None


def _check_directory(node: Node, given: dict[str, object], unwelcome: dict[str, str]) -> None:
    directory = given.get("dir")
    if not directory:
        raise ConfigFault(node, "dir has no value and needs to point to a directory")
    if Path(str(directory)).exists() and not os.access(str(directory), os.W_OK | os.X_OK):
        raise ConfigFault(node, "dir needs to point to an accessible directory")
    if Path(str(directory)).is_file():
        raise ConfigFault(node, "dir needs to point to an accessible directory")
    for key, refusal in unwelcome.items():
        if key in given:
            raise ConfigFault(node, refusal)
    if "hard_delete" in given and not given.get("allow_delete"):
        raise ConfigFault(node, "hard_delete has no effect without delete")


def read_preload(section: Section, _key: str, node: Node) -> None:
    if not isinstance(node.value, dict):
        raise ConfigFault(node, "preload should be a map of account_public_key:account_jwt")
    preload: dict[str, str] = {}
    for name, entry in as_map(node).items():
        if not isinstance(entry.value, str):
            raise ConfigFault(entry, "preload map value should be a string JWT")
        try:
            decode(entry.value, AccountClaims)
        except ClaimsFault:
            raise ConfigFault(entry, "invalid account JWT") from None
        preload[name] = entry.value
    section.fields["resolver_preload"] = preload


def read_pinned(section: Section, _key: str, node: Node) -> None:
    section.fields["resolver_pinned_accounts"] = as_texts(
        node, "resolver_pinned_accounts", section.problems
    )


def _operator_token(entry: str) -> str:
    """Return the JWT from the entry or from the file it names, without decoration lines."""
    try:
        text = Path(entry).read_text()
    except (OSError, ValueError):
        if not entry.startswith(TOKEN_START):
            raise
        text = entry
    decorated = _DECORATED.search(text)
    return decorated[1] if decorated is not None else text.strip()


def _why(fault: Exception) -> str:
    if isinstance(fault, OSError):
        return f"open {fault.filename}: {(fault.strerror or str(fault)).lower()}"
    return str(fault)


# Constraints between operators and the other options


def check_operators(options: Options) -> str | None:
    """Return the first fault, in the reference's order and words, or None."""
    if not options.operators:
        return (
            "default sentinel requires operators and accounts" if options.default_sentinel else None
        )
    operators = [decode(token, OperatorClaims) for token in options.operators]
    fault = _sentinel_fault(options.default_sentinel) or _mixture_fault(options)
    if fault is not None:
        return fault
    named = {one.system_account for one in operators if one.system_account}
    if options.system_account and named and options.system_account not in named:
        return "system_account in config and operator JWT must be identical"
    for one in operators:
        fault = _version_fault(one)
        if fault is not None:
            return fault
    for key in options.resolver_pinned_accounts:
        if not is_public(key, KeyKind.ACCOUNT):
            return f'pinned account key "{key}" is not a valid public account nkey'
    return None


def _sentinel_fault(sentinel: str) -> str | None:
    if not sentinel:
        return None
    try:
        user = decode(sentinel, UserClaims)
    except ClaimsFault:
        return "default sentinel JWT not valid"
    is_scoped = bool(user.issuer_account) and is_unlicensed(user)
    if not user.licence.bearer_token and not is_scoped:
        return "default sentinel must be a bearer token"
    return None


def _mixture_fault(options: Options) -> str | None:
    if not options.resolver:
        return "operators require an account resolver to be configured"
    if options.accounts:
        return "operators do not allow Accounts to be configured directly"
    if options.authorization.users:
        return "operators do not allow users to be configured directly"
    if options.trusted_keys:
        return "conflicting options for 'TrustedKeys' and 'TrustedOperators'"
    return None


def _version_fault(operator: OperatorClaims) -> str | None:
    wanted, name = operator.assert_server_version, operator.about.subject
    if not wanted:
        return None
    ours = [int(part) for part in REFERENCE_VERSION.split(".")]
    parts = wanted.split(".")
    if len(parts) != len(ours) or not all(part.isdigit() for part in parts):
        return f"operator {name} expects version {wanted} got error instead: not a version"
    for word, theirs, our in zip(("major", "minor", "update"), parts, ours, strict=True):
        if int(theirs) > our:
            return f"operator {name} expected {word} version {theirs} > server {word} version {our}"
        if int(theirs) < our:
            break
    return None
