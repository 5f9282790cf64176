"""The credentials of a login, and the possible decisions.

Plain frozen values between the connection and the authenticator. No `repr` shows a password, token,
signature or JWT, so all of these may appear in a log line or a traceback.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.permissions import CompiledPermissions

GLOBAL_ACCOUNT: Final = "$G"
REDACTED_TOKEN: Final = "[REDACTED]"

ConnectionType = Literal["STANDARD", "WEBSOCKET", "IN_PROCESS"]

Attribute = tuple[str, str]
"""Type (upper-case short name, or dotted number) and value of one part of a name."""

DistinguishedName = tuple[frozenset[Attribute], ...]
"""The parts of an X.509 name in order; one part may hold several attributes."""


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """The names in a verified client certificate, in its order.

    `subject` is the usual one-line text, which omits attributes such as DC; `name` has all.
    """

    emails: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    subject: str = ""
    name: DistinguishedName = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The credentials of one CONNECT, and what the server knows about the connection.

    An empty string means the same as a missing field, as in CONNECT.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    nkey: str | None = None
    sig: str | None = field(default=None, repr=False)
    jwt: str | None = field(default=None, repr=False)
    account: str | None = None
    new_account: bool = False
    nonce: bytes = field(default=b"", repr=False)
    tls_peer: PeerCertificate | None = None
    connection_type: ConnectionType = "STANDARD"
    ip: str = ""
    now_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """Further content of a user's claims. Limits: -1 means unlimited, 0 means none allowed."""

    token: str = field(default="", repr=False)
    """Empty for a bearer token, because any reader of it could use it."""
    issuer: str = ""
    name: str = ""
    tags: tuple[str, ...] = ()
    max_subscriptions: int = -1
    max_payload: int = -1
    expires_s: float = 0.0
    """When the server closes the connection; 0: never."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The login is accepted. Monitoring shows `user`; `permissions=None` means no restriction."""

    user: str = ""
    account: str = GLOBAL_ACCOUNT
    permissions: CompiledPermissions | None = None
    claimed: Claimed | None = None


@dataclass(frozen=True, slots=True)
class LoginRefused:
    """The login is refused. The reason is only for the log; the client learns only the refusal."""

    reason: str
    revoked: bool = False
    without_error: bool = False
    """Whether a client that is already connected is closed without an error message."""


@dataclass(frozen=True, slots=True)
class NeedsCallout:
    """The callout service must decide this login."""

    login: Login


@dataclass(frozen=True, slots=True)
class NeedsBcrypt:
    """The decision costs 50-300 ms of CPU: run `check` on a thread, within `bcrypt_limits`."""

    check: Callable[[], Accepted | LoginRefused] = field(repr=False)
    hashed: str = field(repr=False)
    """The hash to compare with; a client that has proved the password need not prove it again."""
    hoped: Accepted | LoginRefused = field(repr=False)
    """The decision if the password is correct."""
