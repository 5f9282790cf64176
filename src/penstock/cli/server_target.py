"""Connect to a server: choose it and the login, fail fast at first, reconnect later.

Values that the command line omits come from the named context, from the environment, or from the
selected context, in this order. Credentials come from one source only, and a server that is not
from a context gets no credentials of a context. `ServerTarget` holds the secrets and never shows
them.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit, urlunsplit

from penstock.cli.cli_errors import LIBRARY_MISSING, Failure, Misuse, describe_error

if TYPE_CHECKING:
    import ssl
    from argparse import Namespace
    from collections.abc import Callable, Mapping

    from nats.aio.client import Client

DEFAULT_URL: Final = "nats://127.0.0.1:4222"
CONNECT_SECONDS: Final = 5
RETRY_SECONDS: Final = 1
CREDENTIALS: Final = ("creds", "nkey", "user", "password", "token")
#: Fields of a target that are never printed.
SECRETS: Final = frozenset({"password", "token"})
VARIABLES: Final = {
    "NATS_URL": "server",
    "NATS_CREDS": "creds",
    "NATS_NKEY": "nkey",
    "NATS_USER": "user",
    "NATS_PASSWORD": "password",
    "NATS_TOKEN": "token",
    "NATS_CA": "tlsca",
    "NATS_CERT": "tlscert",
    "NATS_KEY": "tlskey",
}
HIDDEN: Final = "(hidden)"


@dataclass(frozen=True, slots=True)
class ServerTarget:
    """The server to connect to, and the login; files are named, not read."""

    server: str = ""
    creds: str = ""
    nkey: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    tlsca: str = ""
    tlscert: str = ""
    tlskey: str = ""
    tlsfirst: str = ""
    domain: str = ""
    inbox_prefix: str = ""
    description: str = ""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(one.name for one in fields(cls))

    @property
    def has_credentials(self) -> bool:
        return any(getattr(self, name) for name in CREDENTIALS)

    def over(self, below: Self) -> Self:
        """Return this target completed by `below`; credentials come from one of the two only."""
        kept = {name: getattr(self, name) or getattr(below, name) for name in self.names()}
        if self.has_credentials:
            kept |= {name: getattr(self, name) for name in CREDENTIALS}
        return replace(self, **kept)

    def shown(self) -> dict[str, str]:
        """Return all values that are set, with secrets hidden."""
        values = {name: getattr(self, name) for name in self.names()}
        values["server"] = without_secrets(self.server)
        return {
            name: HIDDEN if name in SECRETS else value for name, value in values.items() if value
        }

    @property
    def wants_tls(self) -> bool:
        return any((self.tlsca, self.tlscert, self.tlskey, self.tlsfirst)) or any(
            url.startswith(("tls://", "wss://")) for url in self.urls
        )

    @property
    def urls(self) -> list[str]:
        return [_with_scheme(url.strip()) for url in (self.server or DEFAULT_URL).split(",")]


def _with_scheme(url: str) -> str:
    return url if "://" in url else f"nats://{url}"


def without_secrets(servers: str) -> str:
    """Return the addresses without the user and password they may contain."""
    return ",".join(_bare(url) for url in servers.split(","))


def _bare(url: str) -> str:
    parts = urlsplit(_with_scheme(url.strip()))
    if "@" not in parts.netloc:
        return url.strip()
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{HIDDEN}@{host}"))


def given(options: Namespace) -> ServerTarget:
    """Return the values of the command line."""
    return ServerTarget(**{name: getattr(options, name, "") or "" for name in ServerTarget.names()})


def from_environment(environment: Mapping[str, str]) -> ServerTarget:
    """Return the values of the environment variables."""
    return ServerTarget(**{name: environment.get(word, "") for word, name in VARIABLES.items()})


def resolve(options: Namespace, environment: Mapping[str, str] = os.environ) -> ServerTarget:
    """Return the target of the command."""
    from penstock.cli.commands.context_command import load, selected

    line, outside = given(options), from_environment(environment)
    if options.context:
        return line.over(load(options.context))
    if line.server:
        # A server named on the command line may get a login from variables, but not from a context.
        return line.over(replace(outside, server=""))
    if outside.server:
        return line.over(outside)
    chosen = selected()
    base = load(chosen) if chosen else ServerTarget()
    return line.over(outside.over(base))


# -- the connection


class ConnectionWatch:
    """Records errors and connection events of the client library."""

    def __init__(self, remark: Callable[[str], None]) -> None:
        self.last: Exception | None = None
        self.closing = False
        self._remark = remark
        self._lagged = False

    async def error(self, error: Exception) -> None:
        self.last = error
        if type(error).__name__ == "SlowConsumerError" and not self._lagged:
            self._lagged = True
            self._remark("Messages come faster than they can be shown: some are left out")

    async def lost(self) -> None:
        if not self.closing:
            self._remark("The connection is lost; trying again")

    async def back(self) -> None:
        self._remark("Connected again")

    def raise_if_failed(self) -> None:
        """Raise the last error; a server reports a refused publish later, without a reply."""
        if self.last is not None:
            raise Failure(describe_error(self.last) or repr(self.last))


async def open_client(target: ServerTarget, watch: ConnectionWatch, *, lasting: bool) -> Client:
    """Return a connected client; with `lasting` it reconnects when it loses its server."""
    client = _guarded_client(target)
    options = _login(target, client) | _tls(target)
    if target.inbox_prefix:
        options["inbox_prefix"] = target.inbox_prefix
    if lasting:
        options |= {"disconnected_cb": watch.lost, "reconnected_cb": watch.back}
    try:
        await client.connect(
            target.urls,
            name="penstock",
            error_cb=watch.error,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=CONNECT_SECONDS,
            **options,
        )
    except Exception as error:
        reason = describe_error(watch.last or error)
        if reason is None:
            raise
        where = without_secrets(",".join(target.urls))
        raise Failure(f"cannot connect to {where}: {reason}") from None
    watch.last = None
    if lasting:
        client.options.update(
            allow_reconnect=True, max_reconnect_attempts=-1, reconnect_time_wait=RETRY_SECONDS
        )
    return client


def _guarded_client(target: ServerTarget) -> Client:
    """Return a client that sends nothing unencrypted if TLS is required.

    The library encrypts only if the server requests it. A server that does not, or an attacker that
    removes the request, would otherwise receive the password in plain text.
    """
    try:
        from nats.aio.client import Client
        from nats.errors import Error
    except ModuleNotFoundError:
        raise Failure(LIBRARY_MISSING) from None

    class Guarded(Client):
        async def _process_info(
            self, info: dict[str, Any], initial_connection: bool = False
        ) -> None:
            if initial_connection and target.wants_tls and not self._is_encrypted():
                if not (info.get("tls_required") or info.get("tls_available")):
                    raise Error("the server does not offer TLS")
                info["tls_required"] = True
            await super()._process_info(info, initial_connection)

        def _is_encrypted(self) -> bool:
            server = self._current_server
            return bool(target.tlsfirst or (server and server.uri.scheme == "wss"))

    return Guarded()


async def flush_twice(client: Client) -> None:
    """Wait until the server has processed everything sent, and we have read its responses.

    The library's flush overtakes data that it still buffers; the second flush comes after all of
    it.
    """
    await client.flush()
    await client.flush()


async def close_client(client: Client, watch: ConnectionWatch) -> None:
    """Close the connection after everything sent has arrived, unless the server is unreachable."""
    from nats.errors import Error

    watch.closing = True
    try:
        if client.is_connected:
            await flush_twice(client)
    except (TimeoutError, Error, OSError):
        pass  # the command has already reported its result
    await client.close()


def _login(target: ServerTarget, client: Client) -> dict[str, Any]:
    if target.creds:
        return _with_creds(target.creds)
    if target.nkey:
        return _with_nkey(target.nkey, client)
    if target.token:
        return {"token": target.token}
    if target.user:
        return {"user": target.user, "password": target.password}
    return {}


def _with_creds(path: str) -> dict[str, Any]:
    text = _read(path)
    jwt, seed = _between(text, "NATS USER JWT"), _between(text, "USER NKEY SEED")
    if not jwt or not seed:
        raise Failure(f"{path}: not a file of user credentials")
    _checked_seed(path, seed)
    return {"user_jwt_cb": jwt.encode, "signature_cb": lambda nonce: _signed(seed, nonce)}


def _with_nkey(path: str, client: Client) -> dict[str, Any]:
    from penstock.base.nkeys import public_from_seed

    seed = read_seed(path)
    # The library needs an extra package for this; `base.nkeys` does the same.
    client._public_nkey = public_from_seed(seed)
    return {"signature_cb": lambda nonce: _signed(seed, nonce)}


def read_seed(path: str) -> str:
    """Read the seed of a user nkey from its file."""
    seed = next(
        (line.strip() for line in _read(path).splitlines() if line.strip().startswith("S")), ""
    )
    _checked_seed(path, seed)
    return seed


def _checked_seed(path: str, seed: str) -> None:
    from penstock.base.nkeys import NkeyError, decode_seed

    try:
        decode_seed(seed)
    except NkeyError as error:
        raise Failure(f"{path}: {error}") from None


def _signed(seed: str, nonce: str) -> bytes:
    from penstock.base.nkeys import sign

    return base64.b64encode(sign(seed, nonce.encode()))


def _between(text: str, title: str) -> str:
    """Return the line below `-----BEGIN title-----`."""
    _, found, rest = text.partition(f"BEGIN {title}")
    lines = rest.splitlines()
    return lines[1].strip() if found and len(lines) > 1 else ""


def _tls(target: ServerTarget) -> dict[str, Any]:
    if not target.wants_tls:
        return {}
    if bool(target.tlscert) != bool(target.tlskey):
        raise Misuse("--tlscert and --tlskey belong together")
    return {"tls": tls_context(target), "tls_handshake_first": bool(target.tlsfirst)}


def tls_context(target: ServerTarget) -> ssl.SSLContext:
    """Return a TLS context with the trusted authorities and the client certificate."""
    import ssl

    try:
        context = ssl.create_default_context(cafile=target.tlsca or None)
        if target.tlscert:
            context.load_cert_chain(target.tlscert, target.tlskey)
    except (ssl.SSLError, OSError) as error:
        names = ", ".join(name for name in (target.tlsca, target.tlscert, target.tlskey) if name)
        raise Failure(f"{names}: {error.strerror or error}") from None
    return context


def _read(path: str) -> str:
    try:
        return Path(path).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise Failure(f"{path}: {reason}") from None
