"""Defaults that depend on other options, and contradictions between options.

`normalise` fills in defaults. `check_options` refuses options that contradict each other, in the
reference's order and words; the first refusal wins. Both are pure and run on the final options,
after the command line is applied. A configuration test (`-t`) runs neither.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec.structs import replace

from penstock.base.durations import format_duration
from penstock.base.units import SECOND_NS
from penstock.broker.import_resolver import SharingFault
from penstock.server.auth.secret_compare import is_bcrypt
from penstock.server.config.config_file import ConfigError
from penstock.server.config.operator_config import check_operators
from penstock.server.config.options import (
    AUTH_TIMEOUT_NS_DEFAULT,
    CLIENT_PORT_DEFAULT,
    HOST_DEFAULT,
    ListenOnly,
    Options,
)
from penstock.server.config.share_config import sharing_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.server.config.options import UserOptions

PORT_MAX = 65535
ANY_PORT = -1
SYSTEM_ACCOUNT_DEFAULT = "$SYS"

_DEFAULTS = Options()
#: For these options 0 means the default.
_ZERO_IS_DEFAULT = (
    "max_control_line",
    "max_payload",
    "max_pending",
    "max_closed_clients",
    "ping_interval_ns",
    "ping_max",
    "write_deadline_ns",
    "lame_duck_duration_ns",
    "lame_duck_grace_period_ns",
)


def normalise(options: Options) -> Options:
    """Return the options with every default filled in; normalising twice changes nothing."""
    changes: dict[str, object] = {
        name: getattr(_DEFAULTS, name) for name in _ZERO_IS_DEFAULT if not getattr(options, name)
    }
    changes["host"] = options.host or HOST_DEFAULT
    changes["port"] = options.port or CLIENT_PORT_DEFAULT
    changes["http_host"] = options.http_host or changes["host"]
    changes["http_base_path"] = _base_path(options.http_base_path)
    changes["trace"] = options.trace or options.trace_verbose or options.trace_headers
    auth = options.authorization
    if options.tls is not None and auth.timeout_ns == AUTH_TIMEOUT_NS_DEFAULT:
        # A TLS client authenticates after its handshake, so the handshake timeout is added.
        timeout_ns = options.tls.timeout_ns + SECOND_NS
        changes["authorization"] = replace(auth, timeout_ns=timeout_ns)
    if options.websocket is not None and not options.websocket.host:
        changes["websocket"] = replace(options.websocket, host=HOST_DEFAULT)
    for name in ("websocket", "cluster", "leafnodes"):
        if _is_off(getattr(options, name)):
            changes[name] = None
    return replace(options, **changes)


def _is_off(listener: ListenOnly | None) -> bool:
    return listener is not None and listener.port == 0


def _base_path(path: str) -> str:
    cleaned = posixpath.normpath(f"/{path.lstrip('/')}")
    return "" if cleaned == "/" else cleaned


def check_options(options: Options) -> None:
    """Raise ConfigError for the first contradiction."""
    for rule in RULES:
        fault = rule(options)
        if fault is not None:
            raise ConfigError(fault)


def users_of(options: Options) -> Iterator[UserOptions]:
    """Yield every configured user, those of the global account first."""
    yield from options.authorization.users
    for account in options.accounts:
        yield from account.users


def has_plain_passwords(options: Options) -> bool:
    """Return whether the configuration contains a password in plain text.

    As in the reference, a user without a password counts as well, unless certificates identify
    users.
    """
    single = options.authorization
    if single.user and single.password and not is_bcrypt(single.password):
        return True
    if options.tls is not None and options.tls.verify_and_map:
        return False
    return any(not user.nkey and not is_bcrypt(user.password) for user in users_of(options))


def _lame_duck(options: Options) -> str | None:
    grace, duration = options.lame_duck_grace_period_ns, options.lame_duck_duration_ns
    if duration > 0 and grace >= duration:
        return (
            f"lame duck grace period ({format_duration(grace)}) should be strictly lower "
            f"than lame duck duration ({format_duration(duration)})"
        )
    return None


def _callout_accounts(options: Options) -> str | None:
    callout = options.authorization.callout
    known = {account.name for account in options.accounts}
    for name in () if callout is None else callout.allowed_accounts:
        if name not in known:
            return f'auth_callout allowed account "{name}" not found in configured accounts'
    return None


def _payload_fits_pending(options: Options) -> str | None:
    if options.max_payload > options.max_pending:
        return (
            f"max_payload ({options.max_payload}) cannot be higher than "
            f"max_pending ({options.max_pending})"
        )
    return None


def _server_name(options: Options) -> str | None:
    return "server name cannot contain spaces" if " " in options.server_name else None


def _sharing(options: Options) -> str | None:
    try:
        sharing_of(options.accounts)
    except SharingFault as fault:
        return str(fault)
    return None


def _no_auth_user(options: Options) -> str | None:
    return _named_user_exists(options, options.no_auth_user)


def _named_user_exists(options: Options, name: str) -> str | None:
    if not name:
        return None
    if options.operators:
        return "no_auth_user not compatible with Trusted Operator"
    users = list(users_of(options))
    if not users:
        return f'no_auth_user: "{name}" present, but users/nkeys are not defined'
    if name not in (user.nkey or user.user for user in users):
        return (
            f'no_auth_user: "{name}" not present as user or nkey in authorization block '
            "or account configuration"
        )
    return None


def _gateway(options: Options) -> str | None:
    gateway = options.gateway
    if gateway is None:
        return None
    if not gateway.name:
        return "gateway has no name"
    if gateway.port == 0:
        return f'gateway "{gateway.name}" has no port specified (select -1 for random port)'
    cluster = options.cluster
    if cluster is not None and cluster.name and cluster.name != gateway.name:
        return "cluster name conflicts between cluster and gateway definitions"
    return None


def _websocket(options: Options) -> str | None:
    websocket = options.websocket
    if websocket is None:
        return None
    if websocket.tls is None and not websocket.no_tls:
        return "websocket requires TLS configuration"
    if websocket.tls is not None and not websocket.tls.cert_file:
        return "websocket requires TLS configuration"
    for origin in websocket.allowed_origins:
        if not _is_origin(origin):
            return f'unable to parse allowed origin: "{origin}"'
    fault = _named_user_exists(options, websocket.no_auth_user)
    if fault is not None:
        return fault
    if any(users_of(options)):
        if websocket.user:
            return "websocket authentication username not compatible with presence of users/nkeys"
        if websocket.token:
            return "websocket authentication token not compatible with presence of users/nkeys"
    if websocket.jwt_cookie and not (options.operators or options.trusted_keys):
        return (
            "trusted operators or trusted keys configuration is required for JWT "
            f'authentication via cookie "{websocket.jwt_cookie}"'
        )
    return None


def _is_origin(origin: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return bool(parts.scheme) or origin.startswith("/")


def _system_account(options: Options) -> str | None:
    name = options.system_account
    if not name or (name == SYSTEM_ACCOUNT_DEFAULT and not options.no_system_account):
        return None
    known = {account.name for account in options.accounts} | set(options.resolver_preload)
    # A directory may hold more accounts than the file. Opening it checks for this one.
    if name not in known and options.resolver_directory is None:
        return "error resolving system account: account missing"
    return None


def _monitoring(options: Options) -> str | None:
    if options.http_port and options.https_port:
        return (
            f"Can't start monitoring: can't specify both HTTP ({options.http_port}) "
            f"and HTTPs ({options.https_port}) ports"
        )
    if options.https_port and options.tls is None:
        return "Can't start monitoring: TLS cert and key required for HTTPS"
    return None


def _certificate(options: Options) -> str | None:
    if options.tls is not None and not options.tls.cert_file:
        return "tls requires 'cert_file' and 'key_file'"
    return None


def _closed_clients(options: Options) -> str | None:
    return "max_closed_clients cannot be negative" if options.max_closed_clients < 0 else None


def _ports(options: Options) -> str | None:
    listeners = [(options.host, options.port), (options.http_host, options.http_port)]
    listeners.append((options.http_host, options.https_port))
    others = (options.websocket, options.cluster, options.gateway, options.leafnodes)
    listeners += [(other.host, other.port) for other in others if other is not None]
    for host, port in listeners:
        if not ANY_PORT <= port <= PORT_MAX:
            reason = f"listen tcp: address {port}: invalid port"
            return f'Error listening on port: {host}:{port}, "{reason}"'
    return None


RULES: tuple[Callable[[Options], str | None], ...] = (
    _callout_accounts,
    _lame_duck,
    _payload_fits_pending,
    _server_name,
    check_operators,
    _no_auth_user,
    _gateway,
    _websocket,
    _system_account,
    _sharing,
    _certificate,
    _monitoring,
    _closed_clients,
    _ports,
)
