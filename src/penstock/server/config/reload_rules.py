"""Rules for reloading the configuration of a running server.

`reloadable_changes` compares two normalised options. It refuses a change of an option that is fixed
once the server listens, and otherwise returns the log lines for the changes, in the reference's
words. It has no side effects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.base.durations import format_duration
from penstock.server.config.config_file import ConfigError
from penstock.server.config.options import ListenOnly, Options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Fixed options, and the reference's names for them.
FIXED = {
    "host": "Host",
    "port": "Port",
    "server_name": "ServerName",
    "http_host": "HTTPHost",
    "http_port": "HTTPPort",
    "https_port": "HTTPSPort",
    "http_base_path": "HTTPBasePath",
    "max_subscriptions": "MaxSubs",
    "max_sub_tokens": "MaxSubTokens",
    "max_pending": "MaxPending",
    "max_closed_clients": "MaxClosedClients",
    "no_auth_user": "NoAuthUser",
    "system_account": "SystemAccount",
    "no_system_account": "NoSystemAccount",
    "allow_non_tls": "AllowNonTLS",
    "log_size_limit": "LogSizeLimit",
    "logfile_max_num": "LogMaxFiles",
    "lame_duck_duration_ns": "LameDuckDuration",
    "lame_duck_grace_period_ns": "LameDuckGracePeriod",
    "disable_sublist_cache": "NoSublistCache",
    "no_header_support": "NoHeaderSupport",
    "dont_listen": "DontListen",
    "jetstream": "JetStream",
    "gateway": "Gateway",
    "operators": "TrustedOperators",
    "trusted_keys": "TrustedKeys",
}

#: Options logged with their new value, before and after the line about users and accounts.
_LISTED_FIRST = (
    "debug",
    "trace",
    "trace_verbose",
    "trace_headers",
    "logtime",
    "logtime_utc",
    "max_connections",
    "client_advertise",
)
_LISTED_LATER = {
    "log_file": "log_file",
    "pid_file": "pid_file",
    "ports_file_dir": "ports_file_dir",
    "max_traced_msg_len": "max_traced_msg_len",
    "ping_interval_ns": "ping_interval",
    "ping_max": "ping_max",
    "write_deadline_ns": "write_deadline",
    "max_control_line": "max_control_line",
    "max_payload": "max_payload",
}


def reloadable_changes(old: Options, new: Options) -> list[str]:
    """Return the lines to log; raise ConfigError if a fixed option changed."""
    for refusal in _refusals(old, new):
        raise ConfigError(refusal)
    changes = [
        f"{name} = {_shown(name, new)}" for name in _LISTED_FIRST if _differs(name, old, new)
    ]
    # The reference logs these two on every reload, because they are always rebuilt.
    changes += ["authorization users", "accounts"]
    changes += [
        f"{word} = {_shown(name, new)}"
        for name, word in _LISTED_LATER.items()
        if _differs(name, old, new)
    ]
    changes += [text for rule in _RULES if (text := rule(old, new)) is not None]
    return [_line(text) for text in changes]


def _line(text: str) -> str:
    # The reference words this one line differently.
    verb = "Reload" if text.startswith("client_advertise") else "Reloaded"
    return f"{verb}: {text}"


def _refusals(old: Options, new: Options) -> Iterator[str]:
    for name, word in FIXED.items():
        if _differs(name, old, new):
            yield _refusal(word, _shown(name, old), _shown(name, new))
    if old.authorization.callout != new.authorization.callout:
        callouts = (old.authorization.callout, new.authorization.callout)
        yield _refusal("AuthCallout", *(str(one) for one in callouts))
    if old.resolver != new.resolver:
        yield "config reload does not support moving to or from an account resolver"
    if _without_tls(old) != _without_tls(new):
        yield _refusal("Websocket", repr(old.websocket), repr(new.websocket))
    for word, before, after in (
        ("cluster", old.cluster or _CLOSED, new.cluster or _CLOSED),
        ("LeafNode", old.leafnodes or _CLOSED, new.leafnodes or _CLOSED),
    ):
        if before.host != after.host:
            yield _refusal(f"{word} host", before.host, after.host)
        if before.port != after.port:
            yield _refusal(f"{word} port", str(before.port), str(after.port))


_CLOSED = ListenOnly(host="", port=0)


def _refusal(word: str, old: str, new: str) -> str:
    return f"config reload not supported for {word}: old={old}, new={new}"


def _without_tls(options: Options) -> object:
    websocket = options.websocket
    return None if websocket is None else replace(websocket, tls=None)


def _differs(name: str, old: Options, new: Options) -> bool:
    return bool(getattr(old, name) != getattr(new, name))


def _shown(name: str, options: Options) -> str:
    value = getattr(options, name)
    if isinstance(value, bool):
        return str(value).lower()
    return format_duration(value) if name.endswith("_ns") else str(value)


# Options logged in their own words


def _username(old: Options, new: Options) -> str | None:
    changed = old.authorization.user != new.authorization.user
    return "authorization username" if changed else None


def _password(old: Options, new: Options) -> str | None:
    changed = old.authorization.password != new.authorization.password
    return "authorization password" if changed else None


def _token(old: Options, new: Options) -> str | None:
    changed = old.authorization.token != new.authorization.token
    return "authorization token" if changed else None


def _auth_timeout(old: Options, new: Options) -> str | None:
    timeout_ns = new.authorization.timeout_ns
    if old.authorization.timeout_ns == timeout_ns:
        return None
    return f"authorization timeout = {timeout_ns / 1e9:g}"


def _tls(old: Options, new: Options) -> str | None:
    """Report TLS whenever it is on: the files may have changed although their names did not."""
    if new.tls is not None:
        return "tls = enabled"
    return "tls = disabled" if old.tls is not None else None


def _websocket_tls(_old: Options, new: Options) -> str | None:
    websocket = new.websocket
    return "websocket tls" if websocket is not None and websocket.tls is not None else None


def _tags(old: Options, new: Options) -> str | None:
    return "tags" if old.server_tags != new.server_tags else None


def _metadata(old: Options, new: Options) -> str | None:
    return "metadata" if old.server_metadata != new.server_metadata else None


def _stall(old: Options, new: Options) -> str | None:
    if old.no_fast_producer_stall == new.no_fast_producer_stall:
        return None
    return f"fast producers will {'not ' if new.no_fast_producer_stall else ''}be stalled"


def _cluster(old: Options, new: Options) -> str | None:
    return "cluster" if old.cluster != new.cluster else None


_RULES: tuple[Callable[[Options, Options], str | None], ...] = (
    _username,
    _password,
    _token,
    _auth_timeout,
    _tls,
    _websocket_tls,
    _tags,
    _metadata,
    _stall,
    _cluster,
)
