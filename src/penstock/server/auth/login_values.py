"""What a peer presents to log in, and what the decision can be.

Plain frozen values between the connection and the authenticator. A `repr` never shows a
password, token, signature or JWT, so any of these may end in a log line or a traceback.
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
"""Type (upper case short name, or dotted number) and value of one part of a name."""

DistinguishedName = tuple[frozenset[Attribute], ...]
"""The parts of an X.509 name in order; one part may hold several attributes."""


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """The names in a verified client certificate, in the order it lists them.

    `subject` is the usual one-line text, which leaves out attributes such as DC; `name` has all.
    """

    emails: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    subject: str = ""
    name: DistinguishedName = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The credentials of one CONNECT, with what the server knows about the connection.

    An empty string means the same as a missing field, as it does in CONNECT.
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
    """What a user's signed claims say beyond who it is. Limits: -1 is none, 0 is nothing at all."""

    token: str = field(default="", repr=False)
    """Empty for a bearer: who reads it could use it."""
    issuer: str = ""
    name: str = ""
    tags: tuple[str, ...] = ()
    max_subscriptions: int = -1
    max_payload: int = -1
    expires_s: float = 0.0
    """When the client has to go; 0: never."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The peer is in. `user` is what monitoring shows; `permissions=None` restricts nothing."""

    user: str = ""
    account: str = GLOBAL_ACCOUNT
    permissions: CompiledPermissions | None = None
    claimed: Claimed | None = None


@dataclass(frozen=True, slots=True)
class LoginRefused:
    """The peer is not let in. The reason is for the log; the peer hears no more than a refusal."""

    reason: str
    revoked: bool = False
    untold: bool = False
    """Who is in already has to go without a word."""


@dataclass(frozen=True, slots=True)
class NeedsCallout:
    """A service decides, who is asked about the login."""

    login: Login


@dataclass(frozen=True, slots=True)
class NeedsBcrypt:
    """The decision costs 50-300 ms of CPU: run `check` on a thread, within `bcrypt_limits`."""

    check: Callable[[], Accepted | LoginRefused] = field(repr=False)
    hashed: str = field(repr=False)
    """What the password is compared with: who has proved to know it need not do so again."""
    hoped: Accepted | LoginRefused = field(repr=False)
    """What the decision is if the password is right."""
