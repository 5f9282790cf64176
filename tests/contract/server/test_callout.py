"""Auth callout: a service that is asked, over NATS, who may come in and as whom."""

from __future__ import annotations

import base64
import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from support.claims import AMY, BOB, GUEST, REFUSED, SHOP, UNLIMITED_USER, Issuer
from support.servers import until
from support.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.servers import Implementation, ServerPool, ServerUnderTest, Starter

QUESTIONS = "$SYS.REQ.USER.AUTH"
USERS = "{user: service, password: pw}, {user: spare, password: pw}"


def config(
    more: str = "", *, users: str = USERS, timeout_s: int = 10, callout: str = "", top: str = ""
) -> str:
    callout = f"issuer: {SHOP.public}, account: DESK, auth_users: [service], {callout}"
    return (
        f"accounts {{ DESK {{ users: [{users}] }}, HALL {{ {more} }} }}\n"
        f"authorization {{ timeout: {timeout_s}, auth_callout {{ {callout} }} }}\n{top}"
    )


class Desk:
    """The service: receives requests, and replies as configured."""

    def __init__(self, server: ServerUnderTest) -> None:
        self._wire = Wire(server.address)
        self._wire.connect(user="service", **{"pass": "pw"})
        self._wire.send(f"SUB {QUESTIONS} 1\r\nPING\r\n")
        self._wire.expect("PONG")

    def close(self) -> None:
        self._wire.close()

    def question(self) -> Question:
        words = self._wire.line().split()
        assert words[:3] == ["MSG", QUESTIONS, "1"]
        token = self._wire.read_exactly(int(words[-1]) + 2)[:-2].decode()
        return Question(self._wire, words[3], token)

    def lets_in(self, **claims: Any) -> Question:
        question = self.question()
        question.let_in(**claims)
        return question

    def hears_nothing(self) -> None:
        self._wire.expect_quiet()


class Question:
    def __init__(self, wire: Wire, reply: str, token: str) -> None:
        self._wire = wire
        self._reply = reply
        body = token.split(".")[1]
        self.claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        self.nats = self.claims["nats"]

    def user(self, issuer: Issuer = SHOP, **claims: Any) -> str:
        about = {
            "sub": self.nats["user_nkey"],
            "aud": "HALL",
            "name": "",
            **claims.pop("about", {}),
        }
        return issuer.claim(AMY, "user", about=about, **{**UNLIMITED_USER, **claims})

    def let_in(self, issuer: Issuer = SHOP, **claims: Any) -> None:
        self.answer(jwt=self.user(issuer, **claims))

    def answer(
        self, issuer: Issuer = SHOP, about: dict[str, Any] | None = None, **nats: Any
    ) -> None:
        about = {
            "sub": self.nats["user_nkey"],
            "aud": self.nats["server_id"]["id"],
            **(about or {}),
        }
        self.say(issuer.claim(AMY, "authorization_response", about=about, **nats))

    def say(self, text: str) -> None:
        self._wire.send(f"PUB {self._reply} {len(text)}\r\n{text}\r\n")


@pytest.fixture
def server(pool: ServerPool, implementation: Implementation) -> ServerUnderTest:
    return pool.get(implementation, config())


@pytest.fixture
def desk(server: ServerUnderTest) -> Iterator[Desk]:
    opened = Desk(server)
    yield opened
    opened.close()


def knock(server: ServerUnderTest, **connect: Any) -> Wire:
    """Logs in and asks for a PONG, without waiting for either."""
    wire = Wire(server.address)
    connect = {"user": "amy", "pass": "secret", "verbose": False, **connect}
    wire.send(f"CONNECT {json.dumps(connect)}\r\nPING\r\n")
    return wire


# -- the question


@pytest.mark.parametrize(
    ("connect", "user"),
    [
        ({"user": "amy", "pass": "secret"}, "amy"),
        ({"auth_token": "t0k3n"}, "[REDACTED]"),
        ({"nkey": AMY.public, "sig": "c2ln"}, AMY.public),
        ({"jwt": "no.such.token", "sig": "c2ln"}, None),
        ({"user": "spare", "pass": "pw", "lang": "x", "version": "1", "protocol": 1}, "spare"),
        ({}, None),
    ],
)
def test_service_receives_credentials_of_client(
    server: ServerUnderTest, desk: Desk, connect: dict[str, Any], user: str | None
) -> None:
    with Wire(server.address) as wire:
        wire.send(f"CONNECT {json.dumps({'name': 'me', **connect})}\r\nPING\r\n")
        question = desk.question()
        info = question.nats["client_info"]
        assert info.pop("id") == wire.info["client_id"]
        assert info.pop("user", None) == user
        assert info == {"host": "127.0.0.1", "kind": "Client", "name": "me", "type": "nats"}
        shown = {"name": "me", "protocol": 0, **connect}
        shown.pop("jwt", None)
        assert question.nats["connect_opts"] == shown
        question.answer(error="no")
        wire.expect(REFUSED)


def test_request_names_client_and_its_expiry(server: ServerUnderTest, desk: Desk) -> None:
    before_s = int(time.time())
    with knock(server) as wire:
        question = desk.question()
        claims = question.claims
        server_id = wire.info["server_id"]
        assert claims["iss"] == server_id
        assert claims["sub"] == SHOP.public
        assert claims["aud"] == "nats-authorization-request"
        assert claims["exp"] - claims["iat"] == 10
        assert claims["iat"] >= before_s
        assert set(claims) == {"aud", "exp", "iat", "iss", "jti", "nats", "sub"}
        asker = question.nats["server_id"]
        assert asker == {
            "name": wire.info["server_name"],
            "host": wire.info["host"],
            "id": server_id,
            "version": wire.info["version"],
        }
        assert question.nats["type"] == "authorization_request"
        assert question.nats["version"] == 2
        question.answer(error="no")
        wire.expect(REFUSED)


# -- the answer


def test_admitted_client_gets_account_and_permissions_of_reply(
    server: ServerUnderTest, desk: Desk
) -> None:
    with knock(server) as wire, knock(server) as other:
        desk.lets_in(pub={"allow": ["a.>"]})
        desk.lets_in()
        wire.expect("PONG")
        other.expect("PONG")
        wire.send("PUB b 0\r\n\r\n")
        wire.expect("-ERR 'Permissions Violation for Publish to \"b\"'")
        other.send("SUB a.> 1\r\nPING\r\n")
        other.expect("PONG")
        wire.send("PUB a.b 2\r\nhi\r\n")
        other.expect("MSG a.b 1 2", "hi")
        desk.hears_nothing()


def test_commands_sent_before_reply_run_after_it(server: ServerUnderTest, desk: Desk) -> None:
    with knock(server) as wire:
        wire.send("SUB a 1\r\nPUB a 2\r\nhi\r\n")
        desk.lets_in()
        wire.expect("PONG", "MSG a 1 2", "hi")


@pytest.mark.parametrize(
    ("signed", "comes_in"),
    [
        ({}, True),
        ({"issuer": GUEST}, False),
        ({"issuer": GUEST, "issuer_account": SHOP.public}, False),
        ({"issuer_account": SHOP.public}, False),
        ({"about": {"aud": "NOWHERE"}}, False),
        ({"about": {"aud": ""}}, False),
        ({"about": {"sub": BOB.public}}, False),
        ({"about": {"exp": 1_700_000_001}}, False),
        ({"about": {"nbf": 4_000_000_000}}, False),
        ({"allowed_connection_types": ["STANDARD", "WEBSOCKET"]}, True),
        ({"times": [{"start": "00:00:00", "end": "23:59:59"}]}, True),
        ({"times": [{"start": "nonsense", "end": "23:59:59"}]}, False),
        ({"pub": {"allow": ["a b c"]}}, False),
        ({"bearer_token": True}, True),
    ],
)
def test_user_claims_are_checked(
    server: ServerUnderTest, desk: Desk, signed: dict[str, Any], comes_in: bool
) -> None:
    with knock(server) as wire:
        desk.lets_in(**signed)
        if comes_in:
            wire.expect("PONG")
        else:
            wire.expect(REFUSED)
            wire.expect_closed()


@pytest.mark.parametrize(
    ("answered", "comes_in"),
    [
        ({}, True),
        ({"issuer": GUEST}, False),
        ({"issuer_account": SHOP.public}, True),
        ({"issuer": GUEST, "issuer_account": SHOP.public}, False),
        ({"about": {"sub": BOB.public}}, False),
        ({"about": {"aud": "somebody"}}, False),
        ({"error": "no"}, False),
    ],
)
def test_reply_claims_are_checked(
    server: ServerUnderTest, desk: Desk, answered: dict[str, Any], comes_in: bool
) -> None:
    with knock(server) as wire:
        question = desk.question()
        question.answer(**{"jwt": question.user(), **answered})
        if comes_in:
            wire.expect("PONG")
        else:
            wire.expect(REFUSED)
            wire.expect_closed()


@pytest.mark.parametrize("text", ["", "nonsense", "a.b.c"])
def test_malformed_reply_admits_no_client(server: ServerUnderTest, desk: Desk, text: str) -> None:
    with knock(server) as wire:
        desk.question().say(text)
        wire.expect(REFUSED)
        wire.expect_closed()


def test_user_token_instead_of_reply_admits_no_client(server: ServerUnderTest, desk: Desk) -> None:
    with knock(server) as wire:
        question = desk.question()
        question.say(question.user())
        wire.expect(REFUSED)


def test_missing_reply_admits_no_client(start: Starter) -> None:
    server = start(config(timeout_s=1))
    with knock(server) as wire:
        wire.expect(REFUSED)
        wire.expect_closed()


def test_expired_user_is_disconnected(server: ServerUnderTest, desk: Desk) -> None:
    with knock(server) as wire:
        desk.lets_in(about={"exp": int(time.time()) + 2})
        wire.expect("PONG", "-ERR 'User Authentication Expired'")
        wire.expect_closed()


@pytest.mark.parametrize(("named", "shown"), [("zed", "zed"), ("", "amy")])
def test_service_may_set_user_name(
    server: ServerUnderTest, desk: Desk, named: str, shown: str
) -> None:
    with knock(server) as wire:
        desk.lets_in(about={"name": named})
        wire.expect("PONG")
        wire.send("SUB in 1\r\nPUB $SYS.REQ.USER.INFO in 0\r\n\r\n")
        words = wire.line().split()
        info = json.loads(wire.read_exactly(int(words[-1]) + 2))["data"]
        assert info["account"] == "HALL"
        assert info["user"] == shown


# -- whom it is not asked about


def test_users_of_service_bypass_callout(server: ServerUnderTest, desk: Desk) -> None:
    with knock(server, user="service", **{"pass": "pw"}) as wire:
        wire.expect("PONG")
    with knock(server, user="service", **{"pass": "wrong"}) as wire:
        wire.expect(REFUSED)
    desk.hears_nothing()


def test_clients_cannot_send_callout_requests(server: ServerUnderTest, desk: Desk) -> None:
    with knock(server, user="service", **{"pass": "pw"}) as wire:
        wire.expect("PONG")
        wire.send(f"PUB {QUESTIONS} 0\r\n\r\n")
        wire.expect(f"-ERR 'Permissions Violation for Publish to \"{QUESTIONS}\"'")
    desk.hears_nothing()


def test_configured_users_bypass_callout_where_accounts_are_listed(start: Starter) -> None:
    hall = "users: [{user: amy, password: secret}]"
    server = start(config(hall, callout="allowed_accounts: [DESK]"))
    desk = Desk(server)
    with knock(server) as wire:
        wire.expect("PONG")
        desk.hears_nothing()
    with knock(server, **{"pass": "wrong"}) as wire:
        desk.lets_in()
        wire.expect("PONG")
    desk.close()


@pytest.mark.parametrize(("name", "asked"), [("service", False), ("spare", True)])
def test_client_without_credentials_is_default_user(start: Starter, name: str, asked: bool) -> None:
    server = start(config(top=f"no_auth_user: {name}"))
    desk = Desk(server)
    with knock(server, user="", **{"pass": ""}) as wire:
        if asked:
            desk.lets_in()
        wire.expect("PONG")
        desk.hears_nothing()
    desk.close()


def test_reload_disconnects_clients_admitted_by_callout(start: Starter) -> None:
    server = start(config())
    desk = Desk(server)
    with knock(server) as wire:
        desk.lets_in()
        wire.expect("PONG")
        server.reload(config(top="debug: true"))
        wire.expect_closed()
        desk.hears_nothing()
    with knock(server) as wire:
        desk.lets_in()
        wire.expect("PONG")
    desk.close()


def test_callout_configuration_cannot_be_reloaded(start: Starter) -> None:
    server = start(config())
    server.config_path.write_text(config(callout="allowed_accounts: [HALL]"))
    server.send_signal(signal.SIGHUP)
    until(lambda: "config reload not supported for AuthCallout" in server.log, "refusal")
