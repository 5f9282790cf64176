"""Login decisions: each mechanism, their order, and what no login may reach."""

import base64
from collections.abc import Callable

import bcrypt
import pytest

from penstock.base import nkeys
from penstock.broker.permission_values import Permissions, SubjectPermission
from penstock.server.auth import (
    Accepted,
    AuthConfigError,
    Authenticator,
    Decision,
    Login,
    LoginRefused,
    NeedsBcrypt,
    PeerCertificate,
)
from penstock.server.config.options import (
    AccountOptions,
    Authorization,
    Options,
    TlsOptions,
    UserOptions,
    WebsocketOptions,
)

NONCE = b"nonce-in-info-1"
SEED = nkeys.encode_seed(nkeys.KeyKind.USER, bytes(range(32)))
NKEY = nkeys.public_from_seed(SEED)
OTHER_SEED = nkeys.encode_seed(nkeys.KeyKind.USER, bytes(32))
HASH = "$2b$04$r6rGAZnvWcbCW.UcROs07eE29d5rYQ.0xvWpLsA2N5X/my9IobiUG"  # of "secret"
ONLY_A = Permissions(publish=SubjectPermission(allow=("a",)))
ONLY_B = Permissions(publish=SubjectPermission(allow=("b",)))
ALICE = UserOptions(user="alice", password="pw")


def options(*users: UserOptions, no_auth_user: str = "", map_tls: bool = False) -> Options:
    return Options(
        authorization=Authorization(users=users),
        no_auth_user=no_auth_user,
        tls=TlsOptions(verify_and_map=True) if map_tls else None,
    )


def decide(configured: Options, login: Login) -> Accepted | LoginRefused:
    return settle(Authenticator(configured).authenticate(login))


def settle(decision: Decision) -> Accepted | LoginRefused:
    return decision.check() if isinstance(decision, NeedsBcrypt) else decision


def signed(
    seed: str = SEED, nonce: bytes = NONCE, encode: Callable[[bytes], bytes] | None = None
) -> str:
    raw = nkeys.sign(seed, nonce)
    return (encode or base64.urlsafe_b64encode)(raw).decode()


# -- nothing configured ----------------------------------------------------------------------


def test_without_configured_credentials_all_clients_are_accepted() -> None:
    open_house = Authenticator(Options())
    assert not open_house.auth_required
    assert not open_house.needs_nonce
    assert open_house.anonymous == Accepted()
    assert open_house.authenticate(Login(user="x", password="y")) == Accepted("x")


def test_open_server_never_shows_token_client_sent() -> None:
    assert Authenticator(Options()).authenticate(Login(token="t")) == Accepted("[REDACTED]")


@pytest.mark.parametrize("login", [Login(account="A"), Login(new_account=True)])
def test_naming_account_in_connect_is_refused_everywhere(login: Login) -> None:
    assert isinstance(decide(Options(), login), LoginRefused)
    assert isinstance(decide(options(ALICE, no_auth_user="alice"), login), LoginRefused)


# -- one token, one user ---------------------------------------------------------------------


def test_token_lets_in_its_bearer_only() -> None:
    configured = Options(authorization=Authorization(token="tok"))
    assert Authenticator(configured).auth_required
    assert decide(configured, Login(token="tok")) == Accepted("[REDACTED]")
    for login in (Login(), Login(token="tOk"), Login(user="tok", password="tok")):
        assert isinstance(decide(configured, login), LoginRefused)


def test_single_user_needs_name_and_password() -> None:
    configured = Options(authorization=Authorization(user="u", password="p"))
    assert decide(configured, Login(user="u", password="p", token="x")) == Accepted("u")
    for login in (
        Login(),
        Login(user="u"),
        Login(user="u", password="P"),
        Login(user="v", password="p"),
        Login(password="p"),
    ):
        assert isinstance(decide(configured, login), LoginRefused)


def test_lone_surrogates_in_credentials_are_refused_not_raised() -> None:
    configured = Options(authorization=Authorization(user="u", password="p"))
    login = Login(user="\ud800", password="\udfff")
    assert isinstance(decide(configured, login), LoginRefused)


# -- users -----------------------------------------------------------------------------------


def test_user_without_password_logs_in_with_none() -> None:
    configured = options(UserOptions(user="v"))
    assert decide(configured, Login(user="v")) == Accepted("v")
    assert isinstance(decide(configured, Login(user="v", password="x")), LoginRefused)


def test_users_carry_their_account_and_permissions() -> None:
    configured = Options(
        authorization=Authorization(
            users=(ALICE, UserOptions(user="own", password="pw", permissions=ONLY_B)),
            default_permissions=ONLY_A,
        ),
        accounts=(
            AccountOptions(name="A", users=(UserOptions(user="in_a", password="pw"),)),
            AccountOptions(
                name="B",
                users=(UserOptions(user="in_b", password="pw"),),
                default_permissions=ONLY_B,
            ),
        ),
    )

    def rights(user: str) -> tuple[str, tuple[str, ...] | None]:
        accepted = decide(configured, Login(user=user, password="pw"))
        assert isinstance(accepted, Accepted)
        permissions = accepted.permissions
        return accepted.account, None if permissions is None else permissions.pub_allow

    assert rights("alice") == ("$G", ("a",))
    assert rights("own") == ("$G", ("b",))
    assert rights("in_a") == ("A", None)
    assert rights("in_b") == ("B", ("b",))


def test_all_logins_of_user_share_one_set_of_permissions() -> None:
    authenticator = Authenticator(options(UserOptions(user="u", password="p", permissions=ONLY_A)))
    login = Login(user="u", password="p")
    first, second = authenticator.authenticate(login), authenticator.authenticate(login)
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)
    assert first.permissions is second.permissions


def test_allowed_connection_types_bind_user() -> None:
    configured = options(
        UserOptions(user="w", password="p", allowed_connection_types=("websocket",))
    )
    login = Login(user="w", password="p")
    assert isinstance(decide(configured, login), LoginRefused)
    over_websocket = Login(user="w", password="p", connection_type="WEBSOCKET")
    assert decide(configured, over_websocket) == Accepted("w")


@pytest.mark.parametrize(
    "configured",
    [
        options(ALICE, ALICE),
        options(UserOptions(nkey=NKEY), UserOptions(nkey=NKEY)),
        Options(
            authorization=Authorization(users=(ALICE,)),
            accounts=(AccountOptions(name="A", users=(ALICE,)),),
        ),
    ],
)
def test_name_belongs_to_one_user(configured: Options) -> None:
    with pytest.raises(AuthConfigError, match="Duplicate"):
        Authenticator(configured)


@pytest.mark.parametrize("user", [UserOptions(nkey="UNONSENSE"), UserOptions(password="p")])
def test_impossible_users_are_refused_at_start(user: UserOptions) -> None:
    with pytest.raises(AuthConfigError):
        Authenticator(options(user))


# -- bcrypt ----------------------------------------------------------------------------------


@pytest.mark.parametrize("minor", "abxy")
def test_hashed_passwords_are_compared_by_caller_of_check(minor: str) -> None:
    hashed = HASH.replace("$2b$", f"$2{minor}$")
    authenticator = Authenticator(options(UserOptions(user="u", password=hashed)))
    right = authenticator.authenticate(Login(user="u", password="secret"))
    wrong = authenticator.authenticate(Login(user="u", password="Secret"))
    assert isinstance(right, NeedsBcrypt)
    assert isinstance(wrong, NeedsBcrypt)
    assert right.check() == Accepted("u")
    assert isinstance(wrong.check(), LoginRefused)


def test_single_credentials_may_be_hashed_too() -> None:
    user = Options(authorization=Authorization(user="u", password=HASH))
    token = Options(authorization=Authorization(token=HASH))
    assert decide(user, Login(user="u", password="secret")) == Accepted("u")
    assert decide(token, Login(token="secret")) == Accepted("[REDACTED]")
    assert isinstance(decide(token, Login(token="no")), LoginRefused)


@pytest.mark.parametrize("hashed", [HASH, "$2a$04$short", "$2b$99$" + "x" * 53])
def test_hash_is_never_its_own_password(hashed: str) -> None:
    configured = options(UserOptions(user="u", password=hashed))
    assert isinstance(decide(configured, Login(user="u", password=hashed)), LoginRefused)


def test_bcrypt_reads_no_further_than_its_limit() -> None:
    hashed = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()
    configured = options(UserOptions(user="u", password=hashed))
    assert decide(configured, Login(user="u", password="x" * 90)) == Accepted("u")
    assert isinstance(decide(configured, Login(user="u", password="x" * 71)), LoginRefused)


def test_unknown_names_cost_as_much_as_known_ones() -> None:
    users = Authenticator(options(UserOptions(user="u", password=HASH)))
    single = Authenticator(Options(authorization=Authorization(user="u", password=HASH)))
    for authenticator in (users, single):
        decision = authenticator.authenticate(Login(user="reply_no_responders", password="secret"))
        assert isinstance(decision, NeedsBcrypt)
        assert isinstance(decision.check(), LoginRefused)


# -- nkeys -----------------------------------------------------------------------------------


def test_nkey_user_signs_nonce() -> None:
    configured = options(UserOptions(nkey=NKEY, permissions=ONLY_A), ALICE)
    assert Authenticator(configured).needs_nonce
    accepted = decide(configured, Login(nkey=NKEY, sig=signed(), nonce=NONCE))
    assert isinstance(accepted, Accepted)
    assert accepted.user == NKEY
    assert accepted.permissions is not None


@pytest.mark.parametrize(
    "encode",
    [
        base64.urlsafe_b64encode,
        base64.b64encode,
        lambda raw: base64.urlsafe_b64encode(raw).rstrip(b"="),
        lambda raw: base64.b64encode(raw).rstrip(b"="),
    ],
)
def test_signatures_come_in_either_base64_with_or_without_padding(
    encode: Callable[[bytes], bytes],
) -> None:
    configured = options(UserOptions(nkey=NKEY))
    for number in range(8):
        nonce = bytes((number,)) * 15
        login = Login(nkey=NKEY, sig=signed(nonce=nonce, encode=encode), nonce=nonce)
        assert decide(configured, login) == Accepted(NKEY)


@pytest.mark.parametrize(
    "login",
    [
        Login(nkey=NKEY, nonce=NONCE),
        Login(nkey=NKEY, sig="", nonce=NONCE),
        Login(nkey=NKEY, sig="!!", nonce=NONCE),
        Login(nkey=NKEY, sig="A" * 100_000, nonce=NONCE),
        Login(nkey=NKEY, sig=signed(OTHER_SEED), nonce=NONCE),
        Login(nkey=NKEY, sig=signed(nonce=b"yesterday's"), nonce=NONCE),
        Login(nkey=NKEY, sig=signed(nonce=b""), nonce=b""),
        Login(nkey=nkeys.public_from_seed(OTHER_SEED), sig=signed(OTHER_SEED), nonce=NONCE),
        Login(nkey="nonsense", sig=signed(), nonce=NONCE),
    ],
)
def test_anything_but_fresh_signature_of_known_nkey_is_refused(login: Login) -> None:
    assert isinstance(decide(options(UserOptions(nkey=NKEY)), login), LoginRefused)


def test_failed_nkey_is_not_rescued_by_good_password() -> None:
    configured = options(UserOptions(nkey=NKEY), ALICE)
    for nkey in (NKEY, "nonsense"):
        login = Login(nkey=nkey, user="alice", password="pw", nonce=NONCE)
        assert isinstance(decide(configured, login), LoginRefused)


# -- default user ----------------------------------------------------------------------------


@pytest.mark.parametrize("password", ["pw", HASH])
def test_client_without_credentials_is_default_user(password: str) -> None:
    configured = options(UserOptions(user="u", password=password), no_auth_user="u")
    authenticator = Authenticator(configured)
    assert not authenticator.auth_required
    assert authenticator.anonymous == Accepted("u")
    for login in (Login(), Login(user="", password=""), Login(jwt="x"), Login(nkey="x")):
        assert authenticator.authenticate(login) == Accepted("u")


@pytest.mark.parametrize(
    "login", [Login(user="alice"), Login(user="x"), Login(password="x"), Login(token="x")]
)
def test_default_user_does_not_rescue_wrong_credentials(login: Login) -> None:
    assert isinstance(decide(options(ALICE, no_auth_user="alice"), login), LoginRefused)


def test_nkey_may_be_default_user() -> None:
    configured = options(UserOptions(nkey=NKEY), ALICE, no_auth_user=NKEY)
    assert decide(configured, Login()) == Accepted(NKEY)
    assert decide(configured, Login(nkey=NKEY)) == Accepted(NKEY)
    other = nkeys.public_from_seed(OTHER_SEED)
    assert isinstance(decide(configured, Login(nkey=other)), LoginRefused)


def test_default_user_must_be_allowed_on_this_connection() -> None:
    user = UserOptions(user="w", allowed_connection_types=("WEBSOCKET",))
    authenticator = Authenticator(options(user, no_auth_user="w"))
    assert authenticator.auth_required
    assert isinstance(authenticator.authenticate(Login()), LoginRefused)
    assert authenticator.authenticate(Login(connection_type="WEBSOCKET")) == Accepted("w")


@pytest.mark.parametrize(
    "configured",
    [options(ALICE, no_auth_user="bob"), Options(no_auth_user="bob")],
)
def test_unknown_default_user_is_refused_at_start(configured: Options) -> None:
    with pytest.raises(AuthConfigError, match='no_auth_user: "bob"'):
        Authenticator(configured)


# -- certificates ----------------------------------------------------------------------------


def test_mapped_certificate_names_user_whatever_connect_names() -> None:
    configured = options(UserOptions(user="host.x"), ALICE, map_tls=True)
    peer = PeerCertificate(dns_names=("host.x",))
    assert decide(configured, Login(user="alice", tls_peer=peer)) == Accepted("host.x")


def test_password_alone_fails_where_certificates_are_mapped() -> None:
    configured = options(ALICE, map_tls=True, no_auth_user="alice")
    assert Authenticator(configured).anonymous is None
    for peer in (None, PeerCertificate(dns_names=("host.x",))):
        login = Login(user="alice", password="pw", tls_peer=peer)
        assert isinstance(decide(configured, login), LoginRefused)
        assert isinstance(decide(configured, Login(tls_peer=peer)), LoginRefused)


def test_password_configured_for_mapped_user_still_counts() -> None:
    configured = options(UserOptions(user="host.x", password=HASH), map_tls=True)
    peer = PeerCertificate(dns_names=("host.x",))
    assert isinstance(decide(configured, Login(tls_peer=peer)), LoginRefused)
    assert decide(configured, Login(password="secret", tls_peer=peer)) == Accepted("host.x")


# -- the WebSocket listener ------------------------------------------------------------------


def test_websocket_listener_may_have_credentials_of_its_own() -> None:
    configured = Options(
        authorization=Authorization(user="u", password="p"),
        websocket=WebsocketOptions(token="tok"),
    )
    websocket = Authenticator.for_websocket(configured)
    assert websocket.authenticate(Login(token="tok")) == Accepted("[REDACTED]")
    assert isinstance(websocket.authenticate(Login(user="u", password="p")), LoginRefused)
    assert isinstance(decide(configured, Login(token="tok")), LoginRefused)


def test_websocket_listener_may_have_default_user_of_its_own() -> None:
    configured = Options(
        authorization=Authorization(users=(ALICE,)),
        websocket=WebsocketOptions(no_auth_user="alice"),
    )
    assert Authenticator.for_websocket(configured).anonymous == Accepted("alice")
    assert Authenticator(configured).auth_required


def test_default_user_for_websocket_only_is_announced_there_only() -> None:
    user = UserOptions(user="w", allowed_connection_types=("WEBSOCKET",))
    configured = Options(
        authorization=Authorization(users=(user,)),
        no_auth_user="w",
        websocket=WebsocketOptions(port=-1),
    )
    assert Authenticator.for_websocket(configured).anonymous == Accepted("w")
    assert Authenticator(configured).anonymous is None


def test_websocket_listener_without_own_credentials_uses_servers() -> None:
    configured = Options(
        authorization=Authorization(users=(ALICE,)), websocket=WebsocketOptions(port=-1)
    )
    websocket = Authenticator.for_websocket(configured)
    assert websocket.authenticate(Login(user="alice", password="pw")) == Accepted("alice")
    assert Authenticator.for_websocket(Options()).anonymous == Accepted()


# -- secrets ---------------------------------------------------------------------------------


def test_no_value_shows_secret() -> None:
    login = Login(user="u", password="s3cret", token="s3cret", sig="s3cret", jwt="s3cret")
    configured = options(UserOptions(user="u", password=HASH))
    authenticator = Authenticator(configured)
    decision = authenticator.authenticate(login)
    table = authenticator._users
    shown = f"{login} {login!r} {decision!r} {list(table)!r} {settle(decision)!r}"
    assert "s3cret" not in shown
    assert HASH not in shown
