"""Operators, accounts and users that vouch for each other with signed tokens.

Keys come from small numbers, so that every run has the same. A `Realm` is one operator with
accounts, as the configuration of a server; users are made on the way.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.base.nkeys import KeyKind, encode_seed, public_from_seed, sign
from support.nkeys import url_safe
from support.wire import Wire

if TYPE_CHECKING:
    from support.jetstream import Client
    from support.servers import ServerUnderTest

REFUSED = "-ERR 'Authorization Violation'"
ISSUED_S = 1_700_000_000
UNLIMITED_USER: dict[str, Any] = {"subs": -1, "data": -1, "payload": -1}
UNLIMITED: dict[str, Any] = {
    **UNLIMITED_USER,
    "conn": -1,
    "leaf": -1,
    "imports": -1,
    "exports": -1,
    "wildcards": True,
}


class Issuer:
    """A key that vouches for others."""

    def __init__(self, kind: KeyKind, number: int) -> None:
        self.kind = kind
        self.seed = encode_seed(kind, number.to_bytes(32, "big"))
        self.public = public_from_seed(self.seed)

    def claim(
        self, subject: Issuer, type_: str, /, *, about: dict[str, Any] | None = None, **nats: object
    ) -> str:
        """A token that says what the subject is."""
        claims = {
            "jti": "ID",
            "iat": ISSUED_S,
            "iss": self.public,
            "sub": subject.public,
            "name": type_,
            **(about or {}),
            "nats": {"type": type_, "version": 2, **nats},
        }
        text = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part(claims)}"
        return f"{text}.{url_safe(sign(self.seed, text.encode()))}"

    def old_claim(self, subject: Issuer, type_: str, /, **nats: object) -> str:
        """The same in the first version, which signs less."""
        claims = {
            "jti": "ID",
            "iat": ISSUED_S,
            "iss": self.public,
            "sub": subject.public,
            "name": type_,
            "type": type_,
            "nats": nats,
        }
        body = _part(claims)
        signature = url_safe(sign(self.seed, body.encode()))
        return f"{_part({'typ': 'jwt', 'alg': 'ed25519'})}.{body}.{signature}"


def _part(value: object) -> str:
    return url_safe(json.dumps(value).encode())


OPERATOR = Issuer(KeyKind.OPERATOR, 1)
SYSTEM = Issuer(KeyKind.ACCOUNT, 2)
SHOP = Issuer(KeyKind.ACCOUNT, 3)
GUEST = Issuer(KeyKind.ACCOUNT, 4)
SIGNING_KEY = Issuer(KeyKind.ACCOUNT, 5)
AMY = Issuer(KeyKind.USER, 6)
BOB = Issuer(KeyKind.USER, 7)


@dataclass
class Realm:
    """One operator and its accounts, each with what its claims say."""

    accounts: dict[Issuer, str] = field(default_factory=dict)
    operator: str = ""

    def add(self, account: Issuer, *, about: dict[str, Any] | None = None, **nats: object) -> Realm:
        nats = {"limits": UNLIMITED, **nats}
        self.accounts[account] = OPERATOR.claim(account, "account", about=about, **nats)
        return self

    def config(self, extra: str = "") -> str:
        operator = self.operator or OPERATOR.claim(OPERATOR, "operator")
        preload = "\n".join(f"{one.public}: {token}" for one, token in self.accounts.items())
        return (
            f"operator: {operator}\nresolver: MEMORY\nresolver_preload {{\n{preload}\n}}\n{extra}"
        )


def user_token(
    account: Issuer, user: Issuer = AMY, *, about: dict[str, Any] | None = None, **nats: object
) -> str:
    return account.claim(user, "user", about=about, **{**UNLIMITED_USER, **nats})


def credentials(wire: Wire | Client, token: str, user: Issuer = AMY) -> dict[str, str]:
    """What a client that holds the user's key sends with its token."""
    return {"jwt": token, "sig": url_safe(sign(user.seed, wire.info["nonce"].encode()))}


def login(server: ServerUnderTest, token: str, user: Issuer = AMY, **connect: object) -> Wire:
    wire = Wire(server.address)
    wire.connect(**credentials(wire, token, user), **connect)
    return wire


def creds_file(token: str, user: Issuer = AMY) -> str:
    return (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )


def refused(server: ServerUnderTest, **connect: object) -> None:
    with Wire(server.address) as wire:
        wire.send(f"CONNECT {json.dumps(connect)}\r\n")
        wire.expect(REFUSED)
        wire.expect_closed()


def refused_token(server: ServerUnderTest, token: str, user: Issuer = AMY) -> None:
    with Wire(server.address) as wire:
        wire.send(f"CONNECT {json.dumps(credentials(wire, token, user))}\r\n")
        wire.expect(REFUSED)
        wire.expect_closed()
