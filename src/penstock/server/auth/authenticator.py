"""The login decision for one listener.

Rules are tried in a fixed order: nkey users, then users (by certificate where the listener maps
certificates, else by name), then the single token or user; where operators are trusted, users'
signed claims alone decide. The first rule that applies decides;
a login that fails it is never tried against a later one. Without any configured credentials
everybody is in. Where a callout is configured, its service decides about all but the users it
names itself. Decisions are immediate except when a bcrypt hash must be compared or that service
be asked: then the caller gets the comparison or question to run elsewhere. No socket, clock or log
here, and no secret leaves.
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
"""What this server decides by itself."""


class Authenticator:
    """Decides logins of one listener from the options it was built with."""

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
        """The decisions of the WebSocket listener, which may replace the single credentials."""
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
        """Whether there is any user, by name, token, nkey or claims."""
        is_listed = self._users or self._single_user or self._single_token
        return self._trust is not None or bool(is_listed)

    @property
    def auth_required(self) -> bool:
        """Whether a peer must send credentials, as there is no user for those without."""
        return self.anonymous is None

    @property
    def needs_nonce(self) -> bool:
        """Whether INFO must carry a nonce to sign."""
        return bool(self._trust is not None or self._users.by_nkey)

    @property
    def anonymous(self) -> Accepted | None:
        """Who a peer without credentials is, also when it never sends CONNECT; None: nobody."""
        if not self.guarded:
            return Accepted()
        default = self._default(self._connection_type)
        if default is None or not self._decides_itself(self._default_user, default.accepted):
            return None
        return default.accepted

    def knows(self, user: str) -> bool:
        """Whether a user of the list, by name or nkey, is called this."""
        return bool(user) and self._users.find(user) is not None

    def authenticate(self, login: Login) -> Decision:
        """Decide at once, or hand back the bcrypt comparison that decides."""
        if login.account or login.new_account:
            # Peers once chose their account; one that still does must not land in another.
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
        """Whether a login is none that the service is asked about."""
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
        # An nkey nobody could have asked for, as none is configured, counts as nothing sent.
        names_nkey = bool(login.nkey and self._users.by_nkey)
        return not (login.user or login.password or login.token or names_nkey)

    def _default(self, connection_type: str) -> User | None:
        """The user of peers without credentials, where one is named and may be used."""
        user = self._users.find(self._default_user) if self._default_user else None
        if user is None or not user.may_use(connection_type):
            return None
        # A listener that maps certificates knows named users by their certificate alone.
        by_certificate = self._maps_certificates and self._default_user in self._users.by_name
        return None if by_certificate else user

    def _by_nkey(self, login: Login, nkey: str) -> Local:
        user = self._users.by_nkey.get(nkey)
        if user is None:
            return LoginRefused("unknown nkey")
        if not user.may_use(login.connection_type):
            return LoginRefused("connection type not allowed")
        if nkey == self._default_user:
            # Whoever sends nothing is let in as this user, so a signature would prove nothing.
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
        # A certificate replaces the name, not a password that was configured for it.
        return _compare(user.password, login.password or "", user.accepted)

    def _by_name(self, login: Login, name: str) -> Local:
        user = self._users.by_name.get(name)
        password = login.password or ""
        if user is None:
            # Unknown names take as long to refuse as known ones, so that time tells nothing.
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
    """A refusal that costs what the decision would have cost."""
    refusal = LoginRefused("unknown user")
    if isinstance(decision, NeedsBcrypt):
        return NeedsBcrypt(partial(_run_and_refuse, decision, refusal), decision.hashed, refusal)
    return refusal


def _run_and_refuse(decision: NeedsBcrypt, refusal: LoginRefused) -> LoginRefused:
    decision.check()
    return refusal


def raw_user(login: Login) -> str:
    """How a client calls itself, before anybody has looked at that."""
    return login.nkey or login.user or login.token or ""


def claimed_name(login: Login) -> str:
    """What is shown of a login where no configured user stands behind it."""
    return login.nkey or login.user or (REDACTED_TOKEN if login.token else "")
