"""The trust chain from operator keys to accounts to users.

An account exists if its claims are valid and a trusted operator signed them. A user is accepted if
an existing account signed its claims, it proves to hold the key they name (or has a bearer token),
and nothing has expired or was revoked. The chain is built once from the options and rebuilt when a
part of it expires. Pure: the time comes with the login.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.base import nkeys
from penstock.broker.permission_values import (
    RESPONSE_EXPIRES_NS_DEFAULT,
    RESPONSE_MSGS_DEFAULT,
    Permissions,
    ResponsePermission,
    SubjectPermission,
)
from penstock.broker.permissions import compile_permissions
from penstock.server.auth.claim_rules import (
    account_faults,
    is_revoked,
    open_for_s,
    source_allowed,
    user_faults,
)
from penstock.server.auth.claims import (
    AccountClaims,
    ClaimsFault,
    OperatorClaims,
    UserClaims,
    decode,
)
from penstock.server.auth.login_values import Accepted, Claimed, LoginRefused
from penstock.server.auth.scoped_users import licence_of
from penstock.server.auth.secret_compare import decode_signature
from penstock.subjects.tokens import is_valid_subject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.broker.permissions import CompiledPermissions
    from penstock.server.auth.claims import About, Grants, Licence, Subjects
    from penstock.server.auth.login_values import Login
    from penstock.server.config.options import Options

COMPILED_MAX: Final = 1024
"""Maximum number of cached compiled permissions."""
ACCOUNTS_DECODED_MAX: Final = 4096
"""Maximum number of cached account claims; all are checked whenever one of them changes."""
CONNECTION_TYPES: Final = frozenset(
    ("STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS")
)


class Known(NamedTuple):
    """A trusted account."""

    claims: AccountClaims
    token: str
    signs_users: bool
    """Whether its own key may sign users; otherwise only its signing keys may."""


class TrustChain:
    """The trusted keys and accounts of a server's options."""

    def __init__(self, options: Options, now_s: float) -> None:
        self.accounts: dict[str, Known] = {}
        self.warnings: list[str] = []
        self._keys: set[str] = set()
        self._strict: set[str] = set()
        """Operators and their keys that require accounts to be signed by a signing key."""
        self._pinned = frozenset(options.resolver_pinned_accounts)
        self._sentinel = options.default_sentinel
        strict = self._strict
        keys = self._keys
        keys |= set(options.trusted_keys)
        for token in options.operators:
            operator = decode(token, OperatorClaims)
            subordinate = set(operator.signing_keys)
            if operator.strict_signing_key_usage:
                strict |= {operator.about.subject, *subordinate}
            else:
                keys.add(operator.about.subject)
            keys |= subordinate
        for name, token in options.resolver_preload.items():
            self._add(name, token, now_s)
        if self._pinned and options.system_account:
            self._pinned |= {options.system_account}

    def issuer_fault(self, issuer: str) -> str | None:
        """Return why an issuer may not sign accounts; None if it may."""
        if issuer in self._keys:
            return None
        if issuer in self._strict:
            return "operator requires issuer to be a signing key"
        return "issuer is not trusted"

    def is_operator(self, key: str) -> bool:
        return key in self._keys or key in self._strict

    def _add(self, name: str, token: str, now_s: float) -> None:
        claims = account_claims(token)
        faults = account_faults(claims, now_s)
        if faults:
            self.warnings.append(f"Account [{name}] has validation issues:")
            self.warnings += [f"  - {fault}" for fault in faults]
        elif _is_over(claims.about, now_s) or claims.about.subject != name:
            return
        elif claims.about.issuer in self._keys:
            self.accounts[name] = Known(claims, token, claims.about.issuer not in self._strict)

    # -- users

    def decide(self, login: Login) -> Accepted | LoginRefused:
        """Decide a login by the claims of its user."""
        try:
            return self._decide(login)
        except ClaimsFault as fault:
            return LoginRefused(f"user JWT not valid: {fault}")

    def _decide(self, login: Login) -> Accepted | LoginRefused:
        token, user = self._presented(login)
        faults = user_faults(user, login.now_s)
        if faults:
            return LoginRefused(f"user JWT no longer valid: {faults[0]}")
        known = self.accounts.get(user.account)
        if known is None or (self._pinned and user.account not in self._pinned):
            return LoginRefused(f"account {user.account} is not known or not trusted")
        if not _vouches(known, user.about.issuer):
            return LoginRefused("issuer is not known", without_error=True)
        licence = licence_of(user, known.claims, known.claims.scopes.get(user.about.issuer))
        refusal = _may_not_connect(licence, known.claims, login) or _unproven(user, licence, login)
        if refusal is not None:
            return refusal
        if is_revoked(known.claims.revocations, user.about.subject, user.about.issued_s):
            return LoginRefused("user authentication revoked", revoked=True)
        return _accepted(user, licence, known, token, login)

    def _presented(self, login: Login) -> tuple[str, UserClaims]:
        """Return the user's token and claims; without readable claims, those of the sentinel."""
        try:
            return login.jwt or "", decode(login.jwt or "", UserClaims)
        except ClaimsFault:
            if not self._sentinel:
                raise
        return self._sentinel, decode(self._sentinel, UserClaims)


def _vouches(known: Known, issuer: str) -> bool:
    """Return whether this key may sign users of the account."""
    is_own = known.signs_users and issuer == known.claims.about.subject
    return is_own or issuer in known.claims.scopes


@lru_cache(ACCOUNTS_DECODED_MAX)
def account_claims(token: str) -> AccountClaims:
    """Decode an account's token; raise ClaimsFault."""
    return decode(token, AccountClaims)


def _is_over(about: About, now_s: float) -> bool:
    """Return whether claims have expired; they end at the start of the second they name."""
    return bool(about.expires_s) and about.expires_s <= now_s


def _may_not_connect(licence: Licence, account: AccountClaims, login: Login) -> LoginRefused | None:
    if licence.proxy_required:
        return LoginRefused("proxy connection required")
    if licence.bearer_token and account.limits.disallow_bearer:
        return LoginRefused("account does not allow bearer tokens")
    if account.authorization.get("auth_users"):
        return LoginRefused("account delegates authentication, which is not supported")
    kinds = {kind.upper() for kind in licence.allowed_connection_types}
    if kinds and login.connection_type not in kinds & CONNECTION_TYPES:
        return LoginRefused("connection type not allowed")
    if not source_allowed(licence.src, login.ip):
        return LoginRefused(f"bad source address {login.ip}")
    return None


def _unproven(user: UserClaims, licence: Licence, login: Login) -> LoginRefused | None:
    """Return a refusal unless the user has a bearer token or signed the nonce."""
    if licence.bearer_token:
        return None
    signature = decode_signature(login.sig or "")
    if signature is None:
        return LoginRefused("signature missing or malformed")
    if not login.nonce or not nkeys.verify(user.about.subject, login.nonce, signature):
        return LoginRefused("signature not verified")
    return None


def _accepted(
    user: UserClaims, licence: Licence, known: Known, token: str, login: Login
) -> Accepted | LoginRefused:
    open_s = open_for_s(licence, login.now_s)
    if open_s is None:
        return LoginRefused("outside connect times")
    ends = [float(user.about.expires_s)] if user.about.expires_s else []
    ends += [login.now_s + open_s] if open_s else []
    return Accepted(
        user.about.subject,
        user.account,
        permissions_of(licence) or permissions_of(known.claims.default_permissions),
        Claimed(
            token="" if licence.bearer_token else token,
            issuer=user.about.issuer,
            name=user.about.name,
            tags=user.tags,
            max_subscriptions=licence.subs,
            max_payload=licence.payload,
            expires_s=min(ends, default=0.0),
        ),
    )


# -- permissions


def permissions_of(grants: Grants) -> CompiledPermissions | None:
    """Compile permissions; None means no restriction. Raise ClaimsFault."""
    responses = None
    if grants.resp is not None:
        responses = ResponsePermission(
            max_msgs=max(grants.resp.max or RESPONSE_MSGS_DEFAULT, -1),
            expires_ns=max(grants.resp.ttl or RESPONSE_EXPIRES_NS_DEFAULT, -1),
        )
    permissions = Permissions(
        publish=_direction(grants.pub), subscribe=_direction(grants.sub), responses=responses
    )
    return None if permissions == Permissions() else _compiled(permissions)


def _direction(subjects: Subjects) -> SubjectPermission | None:
    if not subjects.allow and not subjects.deny:
        return None
    _check_subjects((*subjects.allow, *subjects.deny))
    return SubjectPermission(allow=subjects.allow or None, deny=subjects.deny)


def _check_subjects(subjects: Iterable[str]) -> None:
    for subject in subjects:
        if not is_valid_subject(subject.split(" ")[0]):
            raise ClaimsFault("permissions name an invalid subject")


@lru_cache(COMPILED_MAX)
def _compiled(permissions: Permissions) -> CompiledPermissions:
    return compile_permissions(permissions)
