"""Server addresses, credentials, and the CONNECT line built from them.

`Credentials` holds the secrets; no `repr` and no error text shows them. A URL with secrets is split
into an address without secrets and the credentials. The only cryptography here is the signature of
the server's nonce.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import unquote, urlsplit

from penstock.base import nkeys
from penstock.base.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_URL: Final = "nats://127.0.0.1:4222"
DEFAULT_PORT: Final = 4222
TLS_SCHEME: Final = "tls"
SCHEMES: Final = ("nats", TLS_SCHEME)

_SECTION: Final = re.compile(
    r"-+BEGIN (NATS USER JWT|USER NKEY SEED)-+\s+(\S+)\s+-+END \1-+", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Address:
    """Host, port and scheme of a server."""

    host: str
    port: int = DEFAULT_PORT
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{TLS_SCHEME if self.tls else SCHEMES[0]}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Secrets that authenticate the client; empty for a server without authentication."""

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    jwt: str = field(default="", repr=False)
    seed: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        return bool(self.user or self.token or self.jwt or self.seed)

    @classmethod
    def from_file_text(cls, text: str) -> Self:
        """Return the JWT and the seed of a credentials file."""
        found = {name.upper(): value for name, value in _SECTION.findall(text)}
        try:
            return cls(jwt=found["NATS USER JWT"], seed=found["USER NKEY SEED"])
        except KeyError:
            raise ValueError("a credentials file has a user JWT and an nkey seed") from None

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        return cls.from_file_text(Path(path).read_text())

    def answer(self, nonce: str) -> dict[str, str]:
        """Return the CONNECT fields that authenticate the client."""
        fields = {"user": self.user, "pass": self.password, "auth_token": self.token}
        if self.jwt:
            fields["jwt"] = self.jwt
        elif self.seed:
            fields["nkey"] = nkeys.public_from_seed(self.seed)
        if self.seed:
            fields["sig"] = self.sign(nonce)
        return {name: value for name, value in fields.items() if value}

    def sign(self, nonce: str) -> str:
        """Return the signature of a nonce as CONNECT carries it."""
        signature = nkeys.sign(self.seed, nonce.encode())
        return base64.urlsafe_b64encode(signature).decode().rstrip("=")


def split_url(url: str) -> tuple[Address, Credentials]:
    """Return the server address of a URL, and the credentials in it."""
    parts = urlsplit(url if "://" in url else f"{SCHEMES[0]}://{url}")
    if parts.scheme not in SCHEMES:
        raise ValueError(f"a server is named nats:// or tls://, not {parts.scheme}://")
    if not parts.hostname:
        raise ValueError("the URL names no host")
    address = Address(parts.hostname, parts.port or DEFAULT_PORT, parts.scheme == TLS_SCHEME)
    if parts.username is None:
        return address, Credentials()
    if parts.password is None:
        return address, Credentials(token=unquote(parts.username))
    return address, Credentials(user=unquote(parts.username), password=unquote(parts.password))


def split_urls(urls: str | Sequence[str]) -> tuple[tuple[Address, ...], Credentials]:
    """Return several servers, tried in order, and the first credentials among their URLs."""
    named = urls.split(",") if isinstance(urls, str) else urls
    pairs = [split_url(url.strip()) for url in named]
    if not pairs:
        raise ValueError("no server is named")
    found = next((credentials for _, credentials in pairs if credentials), Credentials())
    return tuple(address for address, _ in pairs), found


def connect_line(credentials: Credentials, nonce: str, name: str) -> bytes:
    options: dict[str, object] = {
        "verbose": False,
        "pedantic": False,
        "lang": "penstock-bulk",
        "version": VERSION,
        "protocol": 1,
        "headers": True,
        "no_responders": True,
        "name": name,
        **credentials.answer(nonce),
    }
    return b"CONNECT %b\r\n" % json.dumps(options).encode()
