"""Read a configuration file into options.

`load_config` knows every key of the reference: a key takes effect, or is refused with its position
and the reason; no key is ignored. All faults of a file are reported at once. The result of
`read_config` holds only what the file sets; `command_line` applies the flags, and `config_checks`
fills in defaults that depend on other options.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from penstock.base.durations import format_duration
from penstock.base.units import SECOND_NS
from penstock.server.config.config_checks import check_options, normalise, users_of
from penstock.server.config.config_file import ConfigError, Node, Tree, digest, parse_file
from penstock.server.config.config_values import (
    ConfigFault,
    Problems,
    Reader,
    Section,
    as_int,
    as_map,
    as_text,
    boolean,
    checked,
    duration,
    duration_text,
    integer,
    listen,
    only_off,
    read_map,
    text,
    type_name,
    unsupported,
)
from penstock.server.config.jetstream_config import read_jetstream
from penstock.server.config.listener_config import (
    read_cluster,
    read_gateway,
    read_leafnodes,
    read_websocket,
    write_timeout,
)
from penstock.server.config.operator_config import (
    read_operators,
    read_pinned,
    read_preload,
    read_resolver,
    read_trusted_keys,
)
from penstock.server.config.options import Options
from penstock.server.config.reload_rules import reloadable_changes
from penstock.server.config.security_config import read_accounts, read_authorization
from penstock.server.config.share_config import read_mappings
from penstock.server.config.tls_config import read_tls

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ConfigError",
    "LoadedConfig",
    "check_options",
    "load_config",
    "normalise",
    "read_config",
    "reloadable_changes",
]

INT32_MAX = 2**31 - 1
SUB_TOKENS_MAX = 255
LAME_DUCK_DURATION_NS_MIN = 30 * SECOND_NS


class LoadedConfig(Struct, frozen=True, kw_only=True):
    """Options of a file. The server starts despite warnings, but a test of the file fails."""

    options: Options
    warnings: tuple[str, ...] = ()


def load_config(path: str | os.PathLike[str], environ: Mapping[str, str]) -> Options:
    """Return the options of a file, normalised and checked; raise ConfigError."""
    options = normalise(read_config(path, environ).options)
    check_options(options)
    return options


def read_config(path: str | os.PathLike[str], environ: Mapping[str, str]) -> LoadedConfig:
    """Return the options that the file sets, checked key by key; raise ConfigError with faults."""
    file = os.fspath(path)
    tree = parse_file(file, environ)
    if not tree:
        raise ConfigError(f"{file}: config has no values or is empty")
    problems = Problems()
    fields = read_map(tree, _TOP, problems)
    problems.raise_errors()
    options = replace(Options(config_file=file, config_digest=digest(tree)), **fields)
    _check_users(options, tree, problems)
    problems.raise_errors()
    return LoadedConfig(options=options, warnings=tuple(problems.warnings))


def _check_users(options: Options, tree: Tree, problems: Problems) -> None:
    place = {key.lower(): node for key, node in tree.items()}
    seen: set[str] = set()
    for user in users_of(options):
        name = user.nkey or user.user
        if name in seen:
            node = place["accounts" if user.account else "authorization"]
            kind = "nkey" if user.nkey else "user"
            problems.errors.append(f'{node.where}: Duplicate {kind} "{name}" detected')
        seen.add(name)
    auth = options.authorization
    listed = seen or _has_users_key(place.get("authorization"))
    if listed and auth.user:
        where = place["authorization"].where
        problems.errors.append(f"{where}: Can not have a single user/pass and a users array")
    elif listed and auth.token:
        where = place["authorization"].where
        problems.errors.append(f"{where}: Can not have a token and a users array")


def _has_users_key(node: Node | None) -> bool:
    return node is not None and "users" in {key.lower() for key in as_map(node)}


# Readers of keys with their own rules


def _authorization(section: Section, _key: str, node: Node) -> None:
    section.fields["authorization"] = read_authorization(node, section.problems)


def _accounts(section: Section, _key: str, node: Node) -> None:
    section.fields["accounts"] = read_accounts(node, section.problems)


def _tls(section: Section, _key: str, node: Node) -> None:
    section.fields["tls"] = read_tls(node, section.problems)


def _server_name(section: Section, _key: str, node: Node) -> None:
    name = as_text(node)
    if " " in name:
        raise ConfigFault(node, "server name cannot contain spaces")
    section.fields["server_name"] = name


def _server_tags(section: Section, _key: str, node: Node) -> None:
    """Read a list of tags or a single one; tags become lower case and unique."""
    items = node.value if isinstance(node.value, list) else [node]
    tags: dict[str, None] = {}
    for item in items:
        if not isinstance(item.value, str):
            kind = type_name(item.value)
            raise ConfigFault(node, f"error parsing tags: unsupported type {kind}")
        tags[item.value.strip().lower()] = None
    section.fields["server_tags"] = tuple(tags)


def _server_metadata(section: Section, _key: str, node: Node) -> None:
    if not isinstance(node.value, dict):
        kind = type_name(node.value)
        raise ConfigFault(node, f"error parsing metadata: unsupported type {kind}")
    section.fields["server_metadata"] = {key: as_text(entry) for key, entry in node.value.items()}


def _max_sub_tokens(section: Section, key: str, node: Node) -> None:
    if as_int(node) <= 0:
        raise ConfigFault(node, f"{key} value can not be negative")
    integer("max_sub_tokens", SUB_TOKENS_MAX)(section, key, node)


def _lame_duck_duration(section: Section, key: str, node: Node) -> None:
    nanos = duration_text(node, "lame_duck_duration")
    if nanos < LAME_DUCK_DURATION_NS_MIN:
        shown = format_duration(nanos)
        raise ConfigFault(node, f"invalid lame_duck_duration of {shown}, minimum is 30 seconds")
    section.fields["lame_duck_duration_ns"] = nanos


def _lame_duck_grace_period(section: Section, key: str, node: Node) -> None:
    nanos = duration_text(node, "lame_duck_grace_period")
    if nanos < 0:
        raise ConfigFault(node, "invalid lame_duck_grace_period, needs to be positive")
    section.fields["lame_duck_grace_period_ns"] = nanos


def _system_account(section: Section, _key: str, node: Node) -> None:
    if not isinstance(node.value, str):
        raise ConfigFault(node, "system account name must be a string")
    section.fields["system_account"] = node.value


def _store_dir(section: Section, _key: str, node: Node) -> None:
    if "store_dir" in section.fields:
        raise ConfigFault(node, "Duplicate 'store_dir' configuration")
    section.fields["store_dir"] = as_text(node)


def _trace(name: str) -> Reader:
    """Return a reader for an option that also switches tracing itself."""
    read = boolean(name)

    def read_both(section: Section, key: str, node: Node) -> None:
        read(section, key, node)
        section.fields["trace"] = section.fields[name]

    return read_both


_TOP: dict[str, Reader] = {
    # Client listener and identity
    "listen": listen("host", "port"),
    "port": integer("port"),
    **dict.fromkeys(("host", "net"), text("host")),
    "client_advertise": text("client_advertise"),
    "server_name": _server_name,
    "server_tags": _server_tags,
    "server_metadata": _server_metadata,
    # Monitoring
    "http": listen("http_host", "http_port"),
    "https": listen("http_host", "https_port"),
    **dict.fromkeys(("http_port", "monitor_port"), integer("http_port")),
    "https_port": integer("https_port"),
    "http_base_path": text("http_base_path"),
    # Logging and files
    "debug": boolean("debug"),
    "trace": boolean("trace"),
    "trace_verbose": _trace("trace_verbose"),
    "trace_headers": _trace("trace_headers"),
    "logtime": boolean("logtime"),
    "logtime_utc": boolean("logtime_utc"),
    **dict.fromkeys(("logfile", "log_file"), text("log_file")),
    **dict.fromkeys(("logfile_size_limit", "log_size_limit"), integer("log_size_limit")),
    **dict.fromkeys(("logfile_max_num", "log_max_num"), integer("logfile_max_num")),
    "max_traced_msg_len": integer("max_traced_msg_len"),
    **dict.fromkeys(("pidfile", "pid_file"), text("pid_file")),
    "ports_file_dir": text("ports_file_dir"),
    # Limits and timing
    **dict.fromkeys(("max_connections", "max_conn"), integer("max_connections")),
    **dict.fromkeys(("max_subscriptions", "max_subs"), integer("max_subscriptions")),
    **dict.fromkeys(("max_sub_tokens", "max_subscription_tokens"), _max_sub_tokens),
    "max_control_line": integer("max_control_line", INT32_MAX),
    "max_payload": integer("max_payload", INT32_MAX),
    "max_pending": integer("max_pending"),
    "max_closed_clients": integer("max_closed_clients"),
    "ping_interval": duration("ping_interval_ns", "ping_interval"),
    "ping_max": integer("ping_max"),
    "write_deadline": duration("write_deadline_ns", "write_deadline"),
    "write_timeout": write_timeout,
    "lame_duck_duration": _lame_duck_duration,
    "lame_duck_grace_period": _lame_duck_grace_period,
    "no_fast_producer_stall": boolean("no_fast_producer_stall"),
    **dict.fromkeys(
        ("disable_sublist_cache", "no_sublist_cache"), boolean("disable_sublist_cache")
    ),
    "no_header_support": boolean("no_header_support"),
    # How often to report failed connections to other servers; this server opens none
    **dict.fromkeys(("connect_error_reports", "reconnect_error_reports"), checked(as_int)),
    # Security
    "authorization": _authorization,
    "accounts": _accounts,
    **dict.fromkeys(("mappings", "maps"), read_mappings),
    **dict.fromkeys(
        ("operator", "operators", "root", "roots", "root_operator", "root_operators"),
        read_operators,
    ),
    **dict.fromkeys(("resolver", "account_resolver", "accounts_resolver"), read_resolver),
    "resolver_preload": read_preload,
    "resolver_pinned_accounts": read_pinned,
    **dict.fromkeys(("trusted", "trusted_keys"), read_trusted_keys),
    "default_sentinel": text("default_sentinel"),
    "no_auth_user": text("no_auth_user"),
    **dict.fromkeys(("system_account", "system"), _system_account),
    **dict.fromkeys(("no_system_account", "no_system", "no_sys_acc"), boolean("no_system_account")),
    "tls": _tls,
    "allow_non_tls": boolean("allow_non_tls"),
    # Other listeners and storage
    **dict.fromkeys(("websocket", "ws"), read_websocket),
    "cluster": read_cluster,
    "gateway": read_gateway,
    **dict.fromkeys(("leafnodes", "leaf"), read_leafnodes),
    "jetstream": read_jetstream,
    **dict.fromkeys(("store_dir", "storedir"), _store_dir),
    # Known to the reference, not supported by this server
    **dict.fromkeys(("syslog", "remote_syslog", "proxy_protocol", "ocsp", "ocsp_cache"), only_off),
    **dict.fromkeys(
        (
            "resolver_tls",
            "default_js_domain",
            "proxies",
            "mqtt",
            "prof_port",
            "prof_block_rate",
            "feature_flags",
        ),
        unsupported,
    ),
}
