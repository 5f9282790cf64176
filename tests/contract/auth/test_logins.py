"""Login decisions against the reference server: who gets in, as whom, into which account.

Every configuration meets every login, once through the reference and once through the
authenticator. What monitoring of the reference shows is compared too, where a configured user
stands behind the login. Skipped where there is no reference server.
"""

import base64
import json
import urllib.request
from dataclasses import dataclass

import bcrypt
import pytest

from penstock.base import nkeys
from penstock.server.auth import GLOBAL_ACCOUNT, Accepted, Authenticator, Login, NeedsBcrypt
from penstock.server.config.options import AccountOptions, Authorization, Options, UserOptions
from support.servers import REFERENCE, ServerPool, ServerUnderTest
from support.wire import Wire

pytestmark = pytest.mark.skipif(REFERENCE is None, reason="no reference server")

SEED = nkeys.encode_seed(nkeys.KeyKind.USER, bytes(range(32)))
NKEY = nkeys.public_from_seed(SEED)
OTHER_SEED = nkeys.encode_seed(nkeys.KeyKind.USER, bytes(32))
HASH = bcrypt.hashpw(b"pw", bcrypt.gensalt(4)).decode()
ALICE = UserOptions(user="alice", password="pw")
HASHED = UserOptions(user="alice", password=HASH)
OPEN = UserOptions(user="bob")
SIGNER = UserOptions(nkey=NKEY)
BROWSER = UserOptions(user="alice", password="pw", allowed_connection_types=("WEBSOCKET",))

CONFIGURED = {
    "nothing": Options(),
    "token": Options(authorization=Authorization(token="pw")),
    "hashed token": Options(authorization=Authorization(token=HASH)),
    "single user": Options(authorization=Authorization(user="alice", password="pw")),
    "hashed single user": Options(authorization=Authorization(user="alice", password=HASH)),
    "users": Options(authorization=Authorization(users=(ALICE, OPEN))),
    "hashed users": Options(authorization=Authorization(users=(HASHED, OPEN))),
    "nkey and users": Options(authorization=Authorization(users=(SIGNER, ALICE))),
    "nkey": Options(authorization=Authorization(users=(SIGNER,))),
    "connection type": Options(authorization=Authorization(users=(BROWSER, OPEN))),
    "default user": Options(authorization=Authorization(users=(ALICE, OPEN)), no_auth_user="alice"),
    "default nkey": Options(authorization=Authorization(users=(SIGNER, ALICE)), no_auth_user=NKEY),
    "default user beside nkey": Options(
        authorization=Authorization(users=(SIGNER, ALICE)), no_auth_user="alice"
    ),
    "accounts": Options(
        authorization=Authorization(users=(ALICE,)),
        accounts=(AccountOptions(name="B", users=(OPEN, SIGNER)),),
    ),
}


@dataclass(frozen=True)
class Attempt:
    """What a client sends; `seed` signs the nonce of the connection."""

    user: str | None = None
    password: str | None = None
    token: str | None = None
    nkey: str | None = None
    seed: str | None = None
    jwt: str | None = None
    account: str | None = None

    def sig(self, nonce: bytes) -> str | None:
        if self.seed is None:
            return None
        return base64.urlsafe_b64encode(nkeys.sign(self.seed, nonce)).decode().rstrip("=")

    def fields(self, nonce: bytes) -> dict[str, str]:
        sent = {
            "user": self.user,
            "pass": self.password,
            "auth_token": self.token,
            "nkey": self.nkey,
            "sig": self.sig(nonce),
            "jwt": self.jwt,
            "account": self.account,
        }
        return {name: value for name, value in sent.items() if value is not None}

    def login(self, nonce: bytes) -> Login:
        return Login(
            user=self.user,
            password=self.password,
            token=self.token,
            nkey=self.nkey,
            sig=self.sig(nonce),
            jwt=self.jwt,
            account=self.account,
            nonce=nonce,
        )


ATTEMPTS = (
    Attempt(),
    Attempt(user="", password=""),
    Attempt(user="alice", password="pw"),
    Attempt(user="alice", password="PW"),
    Attempt(user="alice", password=HASH),
    Attempt(user="alice"),
    Attempt(user="bob"),
    Attempt(user="bob", password="pw"),
    Attempt(user="reply_no_responders", password="pw"),
    Attempt(password="pw"),
    Attempt(token="pw"),
    Attempt(token="PW"),
    Attempt(token=HASH),
    Attempt(user="alice", password="pw", token="x"),
    Attempt(user="alice", token="pw"),
    Attempt(nkey=NKEY, seed=SEED),
    Attempt(nkey=NKEY, seed=OTHER_SEED),
    Attempt(nkey=NKEY),
    Attempt(nkey=nkeys.public_from_seed(OTHER_SEED), seed=OTHER_SEED),
    Attempt(nkey="nonsense"),
    Attempt(user="alice", password="pw", nkey=NKEY),
    Attempt(user="alice", password="pw", nkey="nonsense"),
    Attempt(user="alice", password="pw", nkey=NKEY, seed=SEED),
    Attempt(jwt="nonsense"),
    Attempt(user="alice", password="pw", jwt="nonsense"),
    Attempt(user="alice", password="pw", account="B"),
    Attempt(account="B"),
)


@pytest.mark.parametrize("name", CONFIGURED)
def test_login_decisions_match_reference(name: str, pool: ServerPool) -> None:
    assert REFERENCE is not None
    configured = CONFIGURED[name]
    authenticator = Authenticator(configured)
    server = pool.start(REFERENCE, config_of(configured), flags=("-m", "-1"))
    try:
        for attempt in ATTEMPTS:
            compare(server, authenticator, attempt)
    finally:
        server.kill()


def compare(server: ServerUnderTest, authenticator: Authenticator, attempt: Attempt) -> None:
    with Wire(server.address) as wire:
        nonce = str(wire.info.get("nonce", "")).encode()
        assert bool(nonce) == authenticator.needs_nonce
        assert wire.info.get("auth_required", False) == authenticator.auth_required
        ours = authenticator.authenticate(attempt.login(nonce))
        ours = ours.check() if isinstance(ours, NeedsBcrypt) else ours
        settings = {"verbose": False, **attempt.fields(nonce)}
        wire.send(f"CONNECT {json.dumps(settings)}\r\nPING\r\n")
        answer = wire.line()
        if not isinstance(ours, Accepted):
            assert answer == "-ERR 'Authorization Violation'", attempt
            return
        assert answer == "PONG", attempt
        # The reference shows any nkey a client claims; ours shows who has been identified.
        if attempt.nkey is None or authenticator.needs_nonce:
            assert shown(server, int(wire.info["client_id"])) == (ours.user, ours.account)


def shown(server: ServerUnderTest, cid: int) -> tuple[str, str]:
    """User and account of an open connection in the reference's monitoring."""
    with urllib.request.urlopen(f"{server.http_url}/connz?auth=1&cid={cid}") as response:
        connection = json.load(response)["connections"][0]
    return connection.get("authorized_user", ""), connection.get("account", GLOBAL_ACCOUNT)


def config_of(configured: Options) -> str:
    authorization = configured.authorization
    fields = {
        "user": authorization.user,
        "password": authorization.password,
        "token": authorization.token,
    }
    lines = [f'  {key}: "{value}"' for key, value in fields.items() if value]
    if authorization.users:
        lines.append(f"  users: [{_users(authorization.users)}]")
    text = "authorization {\n" + "\n".join(lines) + "\n}\n" if lines else ""
    for account in configured.accounts:
        text += f"accounts {{ {account.name} {{ users: [{_users(account.users)}] }} }}\n"
    if configured.no_auth_user:
        text += f'no_auth_user: "{configured.no_auth_user}"\n'
    return text


def _users(users: tuple[UserOptions, ...]) -> str:
    def one(user: UserOptions) -> str:
        fields = {"user": user.user, "password": user.password, "nkey": user.nkey}
        parts = [f'{key}: "{value}"' for key, value in fields.items() if value]
        if user.allowed_connection_types:
            parts.append(f"allowed_connection_types: [{', '.join(user.allowed_connection_types)}]")
        return "{ " + ", ".join(parts) + " }"

    return ", ".join(map(one, users))
