"""Claims of operators, accounts and users in signed tokens (JWT).

`decode` parses a token and checks that its issuer signed it and may issue such claims. The result
guarantees only the signature of the named issuer. `trust_chain` decides whether that issuer is
trusted, and `claim_rules` whether the claims are valid now. Tokens of version 1 decode to the same
values. Uses no clock and no file.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct, field

from penstock.base import nkeys
from penstock.base.json_depth import check_nesting

TOKEN_CHARS_MAX: Final = 1024 * 1024
VERSION_MAX: Final = 2
NO_LIMIT: Final = -1
EVERYBODY: Final = "*"
ALGORITHMS: Final = ("ed25519", "ed25519-nkey")


class ClaimsFault(ValueError):
    """The token is not a valid claim of the expected kind. The text never quotes the token."""


class About(
    Struct,
    frozen=True,
    kw_only=True,
    rename={
        "issuer": "iss",
        "subject": "sub",
        "issued_s": "iat",
        "expires_s": "exp",
        "not_before_s": "nbf",
        "audience": "aud",
    },
):
    """Fields of every claim: owner, signer, and validity period (0: unlimited)."""

    issuer: str = ""
    subject: str = ""
    name: str = ""
    audience: str = ""
    issued_s: int = 0
    expires_s: int = 0
    not_before_s: int = 0


class Subjects(Struct, frozen=True, kw_only=True):
    """One direction of permissions."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Responses(Struct, frozen=True, kw_only=True):
    """Permission to reply; 0 means the server's default."""

    max: int = 0
    ttl: int = 0


class Grants(Struct, frozen=True, kw_only=True):
    """Permissions of a user, or the default for users of an account without permissions."""

    pub: Subjects = Subjects()
    sub: Subjects = Subjects()
    resp: Responses | None = None


class Hours(Struct, frozen=True, kw_only=True):
    """A daily time range, as hh:mm:ss."""

    start: str = ""
    end: str = ""


class Licence(Grants, frozen=True, kw_only=True):
    """A user's permissions, limits (-1: none), source networks and connect times."""

    src: tuple[str, ...] = ()
    times: tuple[Hours, ...] = ()
    times_location: str = ""
    subs: int = 0
    data: int = 0
    payload: int = 0
    bearer_token: bool = False
    proxy_required: bool = False
    allowed_connection_types: tuple[str, ...] = ()


class KeyScope(Struct, frozen=True, kw_only=True):
    """A key that may sign users; all of them get the same licence."""

    key: str
    template: Licence


class ClaimedExport(Struct, frozen=True, kw_only=True):
    subject: str = ""
    type: str = ""
    token_req: bool = False
    revocations: dict[str, int] = {}
    response_type: str = ""
    response_threshold: int = 0
    account_token_position: int = 0
    service_latency: dict[str, Any] | None = None
    allow_trace: bool = False


class ClaimedTrace(Struct, frozen=True, kw_only=True):
    """Destination of traces requested by `traceparent`, and the percentage that is traced."""

    dest: str = ""
    sampling: int = 0


class ClaimedImport(Struct, frozen=True, kw_only=True):
    subject: str = ""
    account: str = ""
    token: str = ""
    to: str = ""
    local_subject: str = ""
    type: str = ""
    share: bool = False
    allow_trace: bool = False

    @property
    def their_subject(self) -> str:
        """Return the exporter's subject; a service without a local subject may set it in `to`."""
        if self.type == "service" and not self.local_subject:
            return self.to or self.subject
        return self.subject


class StorageClaim(Struct, frozen=True, kw_only=True):
    """JetStream limits of an account; 0 bytes of both kinds means no JetStream."""

    mem_storage: int = 0
    disk_storage: int = 0
    streams: int = 0
    consumer: int = 0
    max_ack_pending: int = 0
    mem_max_stream_bytes: int = 0
    disk_max_stream_bytes: int = 0
    max_bytes_required: bool = False


class AccountBounds(StorageClaim, frozen=True, kw_only=True):
    subs: int = 0
    data: int = 0
    payload: int = 0
    imports: int = 0
    exports: int = 0
    wildcards: bool = False
    disallow_bearer: bool = False
    conn: int = 0
    leaf: int = 0
    tiered_limits: dict[str, StorageClaim] = {}


class Weighted(Struct, frozen=True, kw_only=True):
    subject: str = ""
    weight: int = 0
    cluster: str = ""


class OperatorClaims(Struct, frozen=True, kw_only=True):
    about: About
    tags: tuple[str, ...] = ()
    signing_keys: tuple[str, ...] = ()
    system_account: str = ""
    account_server_url: str = ""
    assert_server_version: str = ""
    strict_signing_key_usage: bool = False


class AccountClaims(Struct, frozen=True, kw_only=True):
    about: About
    tags: tuple[str, ...] = ()
    imports: tuple[ClaimedImport, ...] = ()
    exports: tuple[ClaimedExport, ...] = ()
    limits: AccountBounds = AccountBounds()
    signing_keys: tuple[str | dict[str, Any], ...] = ()
    revocations: dict[str, int] = {}
    default_permissions: Grants = Grants()
    mappings: dict[str, tuple[Weighted, ...]] = {}
    trace: ClaimedTrace | None = None
    authorization: dict[str, Any] = {}
    scopes: dict[str, KeyScope | None] = field(default_factory=dict)
    """Keys besides the account's own that may sign its users; None: without a scope."""


class UserClaims(Struct, frozen=True, kw_only=True):
    about: About
    licence: Licence
    tags: tuple[str, ...] = ()
    issuer_account: str = ""

    @property
    def account(self) -> str:
        """Return the account of the user; a signing key issues for its account."""
        return self.issuer_account or self.about.issuer


class ActivationClaims(Struct, frozen=True, kw_only=True):
    """An exporting account permits another account to import."""

    about: About
    subject: str = ""
    kind: str = ""
    issuer_account: str = ""


class CalloutAnswer(Struct, frozen=True, kw_only=True):
    """A service's reply about a login: an error, or the claims of a user."""

    about: About
    jwt: str = ""
    error: str = ""
    issuer_account: str = ""


class RequestClaims(Struct, frozen=True, kw_only=True):
    """A request signed by an operator, for example to delete accounts."""

    about: About
    accounts: Any = None


T = TypeVar("T")
C = TypeVar(
    "C",
    OperatorClaims,
    AccountClaims,
    UserClaims,
    ActivationClaims,
    CalloutAnswer,
    RequestClaims,
)

_ISSUERS: Final[dict[str, tuple[nkeys.KeyKind, ...]]] = {
    "operator": (nkeys.KeyKind.OPERATOR,),
    "account": (nkeys.KeyKind.ACCOUNT, nkeys.KeyKind.OPERATOR),
    "user": (nkeys.KeyKind.ACCOUNT,),
    "activation": (nkeys.KeyKind.ACCOUNT, nkeys.KeyKind.OPERATOR),
    "authorization_response": (nkeys.KeyKind.ACCOUNT,),
    "generic": (nkeys.KeyKind.ACCOUNT, nkeys.KeyKind.OPERATOR),
}
_NAMES: Final = {
    OperatorClaims: "operator",
    AccountClaims: "account",
    UserClaims: "user",
    ActivationClaims: "activation",
    CalloutAnswer: "authorization_response",
    RequestClaims: "generic",
}
_UNLIMITED: Final = {"subs": NO_LIMIT, "data": NO_LIMIT, "payload": NO_LIMIT}


def decode(token: str, kind: type[C]) -> C:
    """Decode a signed token of this kind; raise ClaimsFault."""
    if len(token) > TOKEN_CHARS_MAX:
        raise ClaimsFault(f"token size {len(token)} exceeds maximum of {TOKEN_CHARS_MAX} bytes")
    chunks = token.split(".")
    if len(chunks) != 3:
        raise ClaimsFault("expected 3 chunks")
    _check_header(_json(chunks[0]))
    body = _json(chunks[1])
    nats = body.get("nats", {})
    if not isinstance(nats, dict):
        raise ClaimsFault("claims are not a JSON object")
    is_old = bool(body.get("type"))
    version = 1 if is_old else nats.get("version", 0)
    name = body.get("type") if is_old else nats.get("type")
    if not isinstance(version, int) or version > VERSION_MAX:
        raise ClaimsFault("JWT was generated by a newer version ")
    if (name or "generic") != _NAMES[kind]:
        raise ClaimsFault(f"not {_NAMES[kind]} claim")
    about = _convert(body, About)
    signed = chunks[1] if version <= 1 else f"{chunks[0]}.{chunks[1]}"
    if not nkeys.verify(about.issuer, signed.encode(), _bytes(chunks[2])):
        raise ClaimsFault(f"claim failed V{1 if version <= 1 else 2} signature verification")
    if not any(nkeys.is_public(about.issuer, one) for one in _ISSUERS[_NAMES[kind]]):
        raise ClaimsFault("unable to validate expected prefixes")
    if is_old:
        nats = _migrated(body, nats, _NAMES[kind])
    return _assemble(about, nats, kind)


def _assemble(about: About, nats: dict[str, Any], kind: type[C]) -> C:
    if kind is UserClaims:
        licence = _convert(_listed_sources(nats), Licence)
        return _convert({**nats, "about": about, "licence": licence}, kind)
    if kind is AccountClaims:
        limits = nats.get("limits")
        if isinstance(limits, dict) and limits.get("tiered_limits"):
            limits = {
                key: limits[key] for key in limits if key not in StorageClaim.__struct_fields__
            }
            nats = {**nats, "limits": limits}
        scopes = _scopes(nats.get("signing_keys", []))
        return _convert({**nats, "about": about, "scopes": scopes}, kind)
    return _convert({**nats, "about": about}, kind)


def _migrated(body: dict[str, Any], nats: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the claims of a version 1 token in the layout of version 2."""
    moved: dict[str, Any] = {key: body[key] for key in ("tags", "issuer_account") if key in body}
    if name == "user":
        return {**_UNLIMITED, **nats, **moved}
    if name == "activation":
        return {**nats, "kind": nats.get("type", ""), **moved}
    if name == "account":
        kept: dict[str, Any] = {
            key: nats[key] for key in ("imports", "exports", "revocations") if key in nats
        }
        limits = nats.get("limits", {})
        if isinstance(limits, dict):
            storage = StorageClaim.__struct_fields__
            limits = {key: limits[key] for key in limits if key not in storage}
        return {**kept, "limits": limits, "signing_keys": nats.get("signing_keys", []), **moved}
    return {**nats, **moved}


def _scopes(keys: object) -> dict[str, KeyScope | None]:
    scopes: dict[str, KeyScope | None] = {}
    for entry in keys if isinstance(keys, list) else ():
        if isinstance(entry, str):
            scopes[entry] = None
        elif isinstance(entry, dict):
            if entry.get("kind") != "user_scope":
                raise ClaimsFault("unknown signing key scope")
            template = entry.get("template", {})
            if not isinstance(template, dict):
                raise ClaimsFault("a scope's template is not a JSON object")
            licence = _convert(_listed_sources({**_UNLIMITED, **template}), Licence)
            key = entry.get("key")
            scopes[str(key)] = KeyScope(key=str(key), template=licence)
    return scopes


def _listed_sources(licence: dict[str, Any]) -> dict[str, Any]:
    """Convert source networks to a list; they may also be one text with commas."""
    sources = licence.get("src")
    if not isinstance(sources, str):
        return licence
    listed = [one.strip().lower() for one in sources.split(",")]
    return {**licence, "src": [one for one in listed if one]}


def _check_header(header: dict[str, Any]) -> None:
    if str(header.get("typ", "")).upper() != "JWT":
        raise ClaimsFault("not supported type")
    if str(header.get("alg", "")).lower() not in ALGORITHMS:
        raise ClaimsFault("unexpected algorithm")


def _json(chunk: str) -> dict[str, Any]:
    try:
        raw = _bytes(chunk)
        check_nesting(raw)
        value = _without_nulls(msgspec.json.decode(raw))
    except ValueError:
        raise ClaimsFault("not JSON") from None
    if not isinstance(value, dict):
        raise ClaimsFault("not a JSON object")
    return value


def _without_nulls(value: Any) -> Any:
    """Remove nulls, which count as absent, as in the reference."""
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    return value


def _bytes(chunk: str) -> bytes:
    try:
        if not chunk.isascii() or "=" in chunk or "+" in chunk or "/" in chunk:
            raise ValueError
        return base64.urlsafe_b64decode(chunk + "=" * (-len(chunk) % 4))
    except (binascii.Error, ValueError):
        raise ClaimsFault("not base64") from None


def _convert(value: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ClaimsFault(str(error)) from None
