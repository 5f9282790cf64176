"""The login decision for one listener.

Rules are tried in a fixed order: nkey users, then users (by certificate if the listener maps
certificates, else by name), then the single token or user. With trusted operators, only the users'
signed claims decide. The first applicable rule decides; a login that fails it is never tried
against a later one. Without configured credentials every login is accepted. With a callout, the
service decides all logins except those of the users listed in its configuration.

A decision is immediate, unless it needs a bcrypt comparison or a callout: then the caller gets that
work to run elsewhere. This module uses no socket, clock or log, and returns no secret.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from penstock.base import nkeys
from penstock.server.auth.login_values import (
    GLOBAL_ACCOUNT,
    REDACTED_TOKEN,
    Accepted,
    Login,
    LoginRefused,
    NeedsBcrypt,
    NeedsCallout,
)
from penstock.server.auth.secret_compare import (
    decode_signature,
    is_bcrypt,
    matches_bcrypt,
    same_text,
)
from penstock.server.auth.user_table import AuthConfigError, User, UserTable

if TYPE_CHECKING:
    from penstock.server.auth.login_values import ConnectionType
    from penstock.server.auth.trust_chain import TrustChain
    from penstock.server.config.options import Options

Decision: TypeAlias = Accepted | LoginRefused | NeedsBcrypt | NeedsCallout
Local: TypeAlias = Accepted | LoginRefused | NeedsBcrypt
"""Decisions that need no callout."""


class Authenticator:
    """Decides the logins of one listener from the options it was created with."""

    def __init__(
        self,
        options: Options,
        connection_type: ConnectionType = "STANDARD",
        trust: TrustChain | None = None,
    ) -> None:
        authorization = options.authorization
        self._trust = trust
        self._callout = None if trust is not None else authorization.callout
        self._connection_type = connection_type
        self._users = UserTable(options)
        self._single_user = authorization.user
        self._single_password = authorization.password
        self._single_token = authorization.token
        self._default_user = options.no_auth_user
        self._maps_certificates = options.tls is not None and options.tls.verify_and_map
        self._check_default_user()

    @classmethod
    def for_websocket(cls, options: Options, trust: TrustChain | None = None) -> Authenticator:
        """Return the WebSocket listener's authenticator; it may replace the single credentials."""
        websocket = options.websocket
        if websocket is None:
            return cls(options, "WEBSOCKET", trust)
        options = replace(options, tls=websocket.tls)
        if websocket.user or websocket.token or websocket.no_auth_user:
            authorization = replace(
                options.authorization,
                user=websocket.user,
                password=websocket.password,
                token=websocket.token,
            )
            options = replace(
                options, authorization=authorization, no_auth_user=websocket.no_auth_user
            )
        return cls(options, "WEBSOCKET", trust)

    @property
    def guarded(self) -> bool:
        """Return whether any user is configured, by name, token, nkey or claims."""
        is_listed = self._users or self._single_user or self._single_token
        return self._trust is not None or bool(is_listed)

    @property
    def auth_required(self) -> bool:
        """Return whether clients must send credentials: no user is set for those without."""
        return self.anonymous is None

    @property
    def needs_nonce(self) -> bool:
        """Return whether INFO must carry a nonce for the client to sign."""
        return bool(self._trust is not None or self._users.by_nkey)

    @property
    def anonymous(self) -> Accepted | None:
        """Return the user of a client without credentials, even without CONNECT; None: refused."""
        if not self.guarded:
            return Accepted()
        default = self._default(self._connection_type)
        if default is None or not self._decides_itself(self._default_user, default.accepted):
            return None
        return default.accepted

    def knows(self, user: str) -> bool:
        """Return whether the list contains a user with this name or nkey."""
        return bool(user) and self._users.find(user) is not None

    def authenticate(self, login: Login) -> Decision:
        """Decide at once, or return the bcrypt comparison or callout that decides."""
        if login.account or login.new_account:
            # Clients could once choose their account. One that still does must not be put into
            # another.
            return LoginRefused("account named in CONNECT")
        if self._trust is not None:
            return self._trust.decide(login)
        decision = self._by_rules(login)
        if self._callout is None:
            return decision
        outcome = decision.hoped if isinstance(decision, NeedsBcrypt) else decision
        is_default = self._default_user and self._is_anonymous(login)
        name = self._default_user if is_default else raw_user(login)
        return decision if self._decides_itself(name, outcome) else NeedsCallout(login)

    def _decides_itself(self, name: str, outcome: Accepted | LoginRefused) -> bool:
        """Return whether the server decides the login without the callout service."""
        callout = self._callout
        if callout is None or name in callout.auth_users:
            return True
        if isinstance(outcome, LoginRefused) or outcome.account == GLOBAL_ACCOUNT:
            return False
        return bool(callout.allowed_accounts) and outcome.account not in callout.allowed_accounts

    def _by_rules(self, login: Login) -> Local:
        if not self.guarded:
            return Accepted(claimed_name(login))
        default = self._default(login.connection_type)
        if default is not None and self._is_anonymous(login):
            return default.accepted
        if self._users.by_nkey and login.nkey:
            return self._by_nkey(login, login.nkey)
        if self._users.by_name and self._maps_certificates:
            return self._by_certificate(login)
        if self._users.by_name and login.user:
            return self._by_name(login, login.user)
        return self._by_single_credentials(login)

    def _is_anonymous(self, login: Login) -> bool:
        # If no nkey is configured, an nkey counts as not sent.
        names_nkey = bool(login.nkey and self._users.by_nkey)
        return not (login.user or login.password or login.token or names_nkey)

    def _default(self, connection_type: str) -> User | None:
        """Return the user of clients without credentials, if one is configured and may be used."""
        user = self._users.find(self._default_user) if self._default_user else None
        if user is None or not user.may_use(connection_type):
            return None
        # A listener that maps certificates accepts named users only by certificate.
        by_certificate = self._maps_certificates and self._default_user in self._users.by_name
        return None if by_certificate else user

    def _by_nkey(self, login: Login, nkey: str) -> Local:
        user = self._users.by_nkey.get(nkey)
        if user is None:
            return LoginRefused("unknown nkey")
        if not user.may_use(login.connection_type):
            return LoginRefused("connection type not allowed")
        if nkey == self._default_user:
            # A client without credentials is accepted as this user, so a signature proves nothing.
            return user.accepted
        signature = decode_signature(login.sig or "")
        if signature is None:
            return LoginRefused("nkey signature missing or malformed")
        if not login.nonce or not nkeys.verify(nkey, login.nonce, signature):
            return LoginRefused("nkey signature not valid")
        return user.accepted

    def _by_certificate(self, login: Login) -> Local:
        if login.tls_peer is None:
            return LoginRefused("no client certificate")
        user = self._users.find_by_certificate(login.tls_peer, login.connection_type)
        if user is None:
            return LoginRefused("no user for this certificate")
        # A certificate replaces the name, but not a password configured for the user.
        return _compare(user.password, login.password or "", user.accepted)

    def _by_name(self, login: Login, name: str) -> Local:
        user = self._users.by_name.get(name)
        password = login.password or ""
        if user is None:
            # Refusing an unknown name takes as long as a known one, so that timing reveals nothing.
            return self._never(password)
        if not user.may_use(login.connection_type):
            return LoginRefused("connection type not allowed")
        return _compare(user.password, password, user.accepted)

    def _by_single_credentials(self, login: Login) -> Local:
        if self._single_token:
            return _compare(self._single_token, login.token or "", Accepted(claimed_name(login)))
        if not self._single_user:
            return LoginRefused("no credentials")
        password = login.password or ""
        known = same_text(self._single_user, login.user or "")
        decision = _compare(self._single_password, password, Accepted(self._single_user))
        return decision if known else _refused_as_slowly(decision)

    def _never(self, password: str) -> Local:
        decoy = self._users.decoy_hash or password
        return _refused_as_slowly(_compare(decoy, password, Accepted()))

    def _check_default_user(self) -> None:
        name = self._default_user
        if not name:
            return
        if not self._users:
            raise AuthConfigError(
                f'no_auth_user: "{name}" present, but users/nkeys are not defined'
            )
        if self._users.find(name) is None:
            raise AuthConfigError(
                f'no_auth_user: "{name}" not present as user or nkey in authorization block '
                "or account configuration"
            )


def _compare(configured: str, presented: str, accepted: Accepted) -> Local:
    if is_bcrypt(configured):
        check = partial(_compare_bcrypt, configured, presented, accepted)
        return NeedsBcrypt(check, configured, accepted)
    return accepted if same_text(configured, presented) else LoginRefused("wrong credentials")


def _compare_bcrypt(configured: str, presented: str, accepted: Accepted) -> Accepted | LoginRefused:
    return accepted if matches_bcrypt(configured, presented) else LoginRefused("wrong credentials")


def _refused_as_slowly(decision: Local) -> Local:
    """Return a refusal that takes as long as the decision would have taken."""
    refusal = LoginRefused("unknown user")
    if isinstance(decision, NeedsBcrypt):
        return NeedsBcrypt(partial(_run_and_refuse, decision, refusal), decision.hashed, refusal)
    return refusal


def _run_and_refuse(decision: NeedsBcrypt, refusal: LoginRefused) -> LoginRefused:
    decision.check()
    return refusal


def raw_user(login: Login) -> str:
    """Return the name that a client sent, unverified."""
    return login.nkey or login.user or login.token or ""


def claimed_name(login: Login) -> str:
    """Return the name to show for a login without a configured user."""
    return login.nkey or login.user or (REDACTED_TOKEN if login.token else "")
