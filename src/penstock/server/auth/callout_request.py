"""Auth callout: build the request about a login, and interpret the service's reply.

The request is a token signed by the server; it identifies the server and contains what the client
sent. The reply is a token of the configured issuer, addressed to this server and this request, with
an error or a user's claims. The claims name the client's account and permissions. Pure functions:
time, keys and randomness are arguments.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.base import nkeys
from penstock.server.auth.claim_rules import open_for_s, user_faults
from penstock.server.auth.claims import CalloutAnswer, ClaimsFault, UserClaims, decode
from penstock.server.auth.login_values import Accepted, Claimed, LoginRefused
from penstock.server.auth.trust_chain import CONNECTION_TYPES, permissions_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from penstock.server.auth.login_values import Login
    from penstock.server.config.options import CalloutOptions

SUBJECT: Final = "$SYS.REQ.USER.AUTH"
AUDIENCE: Final = "nats-authorization-request"


def question(
    nats: dict[str, Any], *, issuer_seed: str, about: str, now_s: int, timeout_s: int
) -> bytes:
    """Return the signed request; `nats` describes the server, the client and its credentials."""
    claims: dict[str, Any] = {
        "aud": AUDIENCE,
        "exp": now_s + timeout_s,
        "iat": now_s,
        "iss": nkeys.public_from_seed(issuer_seed),
        "sub": about,
        "nats": {**nats, "type": "authorization_request", "version": 2},
    }
    digest = hashlib.sha512(msgspec.json.encode(claims)).digest()[:32]
    claims["jti"] = base64.b32encode(digest).rstrip(b"=").decode()
    text = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part(claims)}"
    signature = _url_safe(nkeys.sign(issuer_seed, text.encode()))
    return f"{text}.{signature}".encode()


def verdict(
    answer: bytes,
    *,
    callout: CalloutOptions,
    user_key: str,
    server_id: str,
    accounts: Collection[str],
    login: Login,
) -> Accepted | LoginRefused:
    """Return the decision in a service's reply to the request about `user_key`."""
    if not answer:
        return LoginRefused("auth callout violation: no reason supplied")
    try:
        response = decode(answer.decode("utf-8", "replace"), CalloutAnswer)
        if response.about.issuer != callout.issuer:
            return LoginRefused("wrong issuer for auth callout response")
        fault = _answer_fault(response, user_key, server_id)
        if fault is not None:
            return LoginRefused(fault)
        return _user_verdict(decode(response.jwt, UserClaims), callout, user_key, accounts, login)
    except ClaimsFault as fault:
        return LoginRefused(f"auth callout response not valid: {fault}")


def _answer_fault(response: CalloutAnswer, user_key: str, server_id: str) -> str | None:
    if response.about.subject != user_key:
        return "auth callout violation: auth callout response is not for expected user"
    if response.about.audience != server_id:
        return "auth callout violation: auth callout response is not for server"
    if response.error:
        return f"auth callout service returned an error: {response.error}"
    return None


def _user_verdict(
    user: UserClaims,
    callout: CalloutOptions,
    user_key: str,
    accounts: Collection[str],
    login: Login,
) -> Accepted | LoginRefused:
    faults = user_faults(user, login.now_s)
    if faults:
        return LoginRefused(f"error validating user JWT: {faults[0]}")
    if user.about.subject != user_key:
        return LoginRefused("authorized user is not the one that was asked about")
    if user.about.issuer != callout.issuer or user.issuer_account:
        return LoginRefused("wrong issuer for the user of an auth callout response")
    account = user.about.audience
    if account not in accounts:
        return LoginRefused(f'no valid account "{account}" for auth callout response')
    open_s = open_for_s(user.licence, login.now_s)
    if open_s is None:
        return LoginRefused("outside connect times")
    kinds = {kind.upper() for kind in user.licence.allowed_connection_types}
    if kinds and login.connection_type not in kinds & CONNECTION_TYPES:
        return LoginRefused("connection type not allowed")
    ends = [float(user.about.expires_s)] if user.about.expires_s else []
    ends += [login.now_s + open_s] if open_s else []
    return Accepted(
        user.about.name or login.user or login.nkey or "",
        account,
        permissions_of(user.licence),
        Claimed(
            issuer=account,
            max_subscriptions=user.licence.subs,
            max_payload=user.licence.payload,
            expires_s=min(ends, default=0.0),
        ),
    )


def _part(value: object) -> str:
    return _url_safe(msgspec.json.encode(value))


def _url_safe(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
