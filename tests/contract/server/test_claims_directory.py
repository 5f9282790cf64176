"""Accounts in a directory of tokens: pushed to a running server, looked up, listed, deleted."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from support.claims import (
    AMY,
    BOB,
    GUEST,
    ISSUED_S,
    OPERATOR,
    SHOP,
    SIGNING_KEY,
    SYSTEM,
    UNLIMITED,
    Issuer,
    login,
    refused_token,
    user_token,
)
from support.servers import ServerStartError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.servers import Implementation, ServerPool, ServerUnderTest, Starter
    from support.wire import Wire

INBOX = "_INBOX.claims"
UPDATE = "$SYS.REQ.CLAIMS.UPDATE"
_issued = itertools.count(ISSUED_S + 1)


def account(
    subject: Issuer,
    issuer: Issuer = OPERATOR,
    about: dict[str, Any] | None = None,
    **nats: object,
) -> str:
    """Every token is newer than those before it."""
    issued_s = next(_issued)
    about = {"iat": issued_s, "jti": f"ID{issued_s}", **(about or {})}
    return issuer.claim(subject, "account", about=about, **{"limits": UNLIMITED, **nats})


def config(resolver: str, *preloaded: Issuer, **operator: object) -> str:
    token = OPERATOR.claim(OPERATOR, "operator", system_account=SYSTEM.public, **operator)
    tokens = "\n".join(f"{one.public}: {account(one)}" for one in (SYSTEM, *preloaded))
    return f"operator: {token}\nresolver: {resolver}\nresolver_preload {{\n{tokens}\n}}\n"


def directory(options: str = "") -> str:
    return f'{{ type: full, dir: "jwt", {options} }}'


class Desk:
    """A user of the system account that administers."""

    def __init__(self, server: ServerUnderTest) -> None:
        self.wire = login(server, user_token(SYSTEM), headers=True, no_responders=True)
        self.wire.send(f"SUB {INBOX} 1\r\n")

    def ask(self, subject: str, body: str | bytes = b"") -> bytes | None:
        body = body.encode() if isinstance(body, str) else body
        self.wire.send(f"PUB {subject} {INBOX} {len(body)}\r\n".encode() + body + b"\r\n")
        return self.heard()

    def heard(self) -> bytes | None:
        """None: no reply."""
        words = self.wire.line().split()
        payload = self.wire.read_exactly(int(words[-1]) + 2)[:-2]
        return None if words[0] == "HMSG" else payload

    def json(self, subject: str, body: str = "") -> dict[str, Any]:
        answer = json.loads(self.ask(subject, body) or b"null")
        assert answer.pop("server")["id"]
        return answer

    def update(self, token: str) -> None:
        assert self.json(UPDATE, token)["data"]["message"] == "jwt updated"

    def listed(self) -> set[str]:
        return set(self.json("$SYS.REQ.CLAIMS.LIST")["data"])


REFUSING = config(directory("allow_delete: true"), SHOP)


@pytest.fixture
def shared(pool: ServerPool, implementation: Implementation) -> ServerUnderTest:
    """A server that these tests leave as it is."""
    return pool.get(implementation, REFUSING)


class Administer(Protocol):
    """Opens the desk of a server; it closes with the test."""

    def __call__(self, server: ServerUnderTest) -> Desk: ...


@pytest.fixture
def administer() -> Iterator[Administer]:
    opened: list[Desk] = []

    def open_desk(server: ServerUnderTest) -> Desk:
        opened.append(Desk(server))
        return opened[-1]

    yield open_desk
    for desk in opened:
        desk.wire.close()


def gone(wire: Wire, error: str | None) -> None:
    if error is not None:
        wire.expect(f"-ERR '{error}'")
    wire.expect_closed()


def deletion(*names: str, by: Issuer = OPERATOR, **nats: object) -> str:
    return by.claim(by, "generic", **{"accounts": list(names), **nats})


# -- updates


def test_pushed_account_is_known_and_survives_restart(
    start: Starter, administer: Administer
) -> None:
    server = start(config(directory()))
    refused_token(server, user_token(SHOP))
    token = account(SHOP)
    said = administer(server).json(UPDATE, token)
    assert said == {"data": {"account": SHOP.public, "code": 200, "message": "jwt updated"}}
    login(server, user_token(SHOP)).close()
    assert (server.workdir / "jwt" / f"{SHOP.public}.jwt").read_text() == token
    server.restart()
    login(server, user_token(SHOP)).close()


@pytest.mark.parametrize(
    "subject", ["$SYS.REQ.ACCOUNT.{}.CLAIMS.UPDATE", "$SYS.ACCOUNT.{}.CLAIMS.UPDATE"]
)
def test_subject_may_name_account(start: Starter, administer: Administer, subject: str) -> None:
    desk = administer(server := start(config(directory())))
    named = subject.format(SHOP.public)
    assert desk.json(named, account(SHOP))["data"]["message"] == "jwt updated"
    login(server, user_token(SHOP)).close()
    error = desk.json(named, account(GUEST))["error"]
    assert error["description"].endswith("subject does not match jwt content")


def test_expired_account_loses_its_clients(start: Starter, administer: Administer) -> None:
    server = start(config(directory(), SHOP, GUEST))
    with login(server, user_token(SHOP)) as wire, login(server, user_token(GUEST)) as other:
        ends = {"exp": int(time.time()) + 2}
        administer(server).update(account(SHOP, about=ends))
        gone(wire, "Account Authentication Expired")
        other.expect_quiet()
    refused_token(server, user_token(SHOP))


def test_push_without_reply_is_stored(start: Starter, administer: Administer) -> None:
    desk = administer(server := start(config(directory())))
    token = account(SHOP)
    desk.wire.send(f"PUB $SYS.ACCOUNT.{SHOP.public}.CLAIMS.UPDATE {len(token)}\r\n{token}\r\n")
    assert desk.ask(f"$SYS.REQ.ACCOUNT.{SHOP.public}.CLAIMS.LOOKUP") == token.encode()
    login(server, user_token(SHOP)).close()


@pytest.mark.parametrize(
    ("token", "error"),
    [
        ("", "jwt update resulted in error - expected 3 chunks"),
        (user_token(SHOP), "jwt update resulted in error - not account claim"),
        (
            account(SHOP, exports=[{"subject": "a b", "type": "service"}]),
            'jwt validation failed - validation errors: [subject "a b" cannot have spaces]',
        ),
    ],
)
def test_invalid_account_is_refused(
    shared: ServerUnderTest, administer: Administer, token: str, error: str
) -> None:
    desk = administer(shared)
    said = desk.json(UPDATE, token)["error"]
    assert (said["code"], said["description"]) == (500, error)
    assert desk.listed() == {SYSTEM.public, SHOP.public}


def test_strict_operator_requires_signing_keys(start: Starter) -> None:
    helper = Issuer(OPERATOR.kind, 97)
    token = OPERATOR.claim(
        OPERATOR,
        "operator",
        system_account=SYSTEM.public,
        strict_signing_key_usage=True,
        signing_keys=[helper.public],
    )
    keys = {"signing_keys": [SIGNING_KEY.public]}
    preload = f"{SYSTEM.public}: {account(SYSTEM, helper, **keys)}"
    desk_token = user_token(SIGNING_KEY, issuer_account=SYSTEM.public)
    server = start(
        f"operator: {token}\nresolver: {directory()}\nresolver_preload {{ {preload} }}\n"
    )
    with login(server, desk_token) as wire:
        wire.send(f"SUB {INBOX} 1\r\n")
        pushed = account(SHOP)
        wire.send(f"PUB {UPDATE} {INBOX} {len(pushed)}\r\n{pushed}\r\n")
        size = int(wire.line().split()[-1])
        assert b"signing key" in wire.read_exactly(size)


def test_directory_limits_its_accounts(start: Starter, administer: Administer) -> None:
    desk = administer(start(config(directory("limit: 2"))))
    desk.update(account(SHOP))
    error = desk.json(UPDATE, account(GUEST))["error"]
    assert error["description"] == "jwt update resulted in error - jwt store is full"
    desk.update(account(SHOP))


# -- what clients feel of it


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"revocations": {AMY.public: ISSUED_S + 1}}, "User Authentication Revoked"),
        ({"limits": {**UNLIMITED, "subs": 1}}, "maximum subscriptions exceeded"),
        ({"limits": {**UNLIMITED, "conn": 1}}, "maximum account active connections exceeded"),
    ],
)
def test_pushed_claims_apply_to_connected_clients(
    start: Starter, administer: Administer, change: dict[str, Any], error: str
) -> None:
    desk = administer(server := start(config(directory(), SHOP)))
    with (
        login(server, user_token(SHOP, BOB), BOB) as other,
        login(server, user_token(SHOP)) as wire,
    ):
        wire.send("SUB a 1\r\n")
        wire.expect_quiet()
        desk.update(account(SHOP, **change))
        gone(wire, error)
        other.expect_quiet()


def test_removed_signing_key_disconnects_its_users(start: Starter, administer: Administer) -> None:
    desk = administer(server := start(config(directory())))
    desk.update(account(SHOP, signing_keys=[SIGNING_KEY.public]))
    token = user_token(SIGNING_KEY, issuer_account=SHOP.public)
    with login(server, token) as wire, login(server, user_token(SHOP, BOB), BOB) as other:
        desk.update(account(SHOP))
        gone(wire, None)
        other.expect_quiet()


def test_changed_default_permissions_apply_to_connected_clients(
    start: Starter, administer: Administer
) -> None:
    desk = administer(server := start(config(directory(), SHOP)))
    with login(server, user_token(SHOP)) as wire:
        desk.update(account(SHOP, default_permissions={"pub": {"deny": ["no"]}}))
        wire.send("PUB no 0\r\n\r\n")
        wire.expect("-ERR 'Permissions Violation for Publish to \"no\"'")


def test_imports_change_under_connected_clients(start: Starter, administer: Administer) -> None:
    desk = administer(server := start(config(directory(), GUEST)))
    desk.update(account(SHOP, exports=[{"subject": "news", "type": "stream"}]))
    with login(server, user_token(GUEST)) as reader, login(server, user_token(SHOP)) as writer:
        reader.send("SUB news 1\r\n")
        reader.expect_quiet()
        wanted = {"subject": "news", "type": "stream", "account": SHOP.public, "name": "n"}
        desk.update(account(GUEST, imports=[wanted]))
        writer.send("PUB news 2\r\nhi\r\n")
        reader.expect("MSG news 1 2", "hi")
        desk.update(account(GUEST))
        writer.send("PUB news 2\r\nho\r\n")
        writer.expect_quiet()
        reader.expect_quiet()


def test_account_that_expires_disconnects_its_clients(
    start: Starter, administer: Administer
) -> None:
    desk = administer(server := start(config(directory(), SHOP)))
    with login(server, user_token(SHOP)) as wire:
        desk.update(account(SHOP, about={"exp": int(time.time()) + 2}))
        gone(wire, "Account Authentication Expired")


# -- questions


def test_tokens_are_looked_up_and_listed(start: Starter, administer: Administer) -> None:
    desk = administer(start(config(directory())))
    lookup = f"$SYS.REQ.ACCOUNT.{SHOP.public}.CLAIMS.LOOKUP"
    assert desk.ask(lookup) == b""
    desk.update(token := account(SHOP))
    assert desk.ask(lookup) == token.encode()
    assert desk.listed() == {SYSTEM.public, SHOP.public}
    desk.update(account(GUEST, about={"exp": ISSUED_S}))
    assert desk.listed() == {SYSTEM.public, SHOP.public}


def test_pack_contains_accounts_requester_lacks(start: Starter, administer: Administer) -> None:
    desk = administer(start(config(directory())))
    desk.update(shop := account(SHOP))
    packed = [desk.ask("$SYS.REQ.CLAIMS.PACK"), desk.heard()]
    assert desk.heard() == b""
    assert f"{SHOP.public}|{shop}".encode() in packed
    mixed = 0
    for one in packed:
        assert one is not None
        token = one.partition(b"|")[2]
        mixed ^= int.from_bytes(hashlib.sha256(token).digest(), "big")
    assert desk.ask("$SYS.REQ.CLAIMS.PACK", mixed.to_bytes(32, "big")) == b""
    desk.wire.expect_quiet()


# -- deleting


@pytest.mark.parametrize(("options", "left"), [("", [".jwt.deleted"]), ("hard_delete: true", [])])
def test_operator_deletes_accounts(
    start: Starter, administer: Administer, options: str, left: list[str]
) -> None:
    server = start(config(directory(f"allow_delete: true, {options}"), SHOP))
    desk = administer(server)
    with login(server, user_token(SHOP)) as wire:
        said = desk.json("$SYS.REQ.CLAIMS.DELETE", deletion(SHOP.public))
        assert said == {"data": {"code": 200, "message": "deleted 1 accounts"}}
        gone(wire, "Account Authentication Expired")
    refused_token(server, user_token(SHOP))
    found = [path.name for path in (server.workdir / "jwt").iterdir() if SHOP.public in path.name]
    assert found == [SHOP.public + suffix for suffix in left]
    desk.update(account(SHOP))
    login(server, user_token(SHOP)).close()


def test_delete_request_may_omit_token_type(start: Starter, administer: Administer) -> None:
    desk = administer(start(config(directory("allow_delete: true"), SHOP)))
    said = desk.json("$SYS.REQ.CLAIMS.DELETE", deletion(SHOP.public, type=""))
    assert said["data"]["message"] == "deleted 1 accounts"


@pytest.mark.parametrize(
    ("token", "error"),
    [
        ("", "request by  failed - expected 3 chunks"),
        (deletion(SHOP.public, by=SHOP), "not trusted"),
        (OPERATOR.claim(SHOP, "generic", accounts=[SHOP.public]), "not self signed"),
        (deletion("x"), "malformed request"),
        (deletion(accounts="x"), "malformed request"),
        (deletion(SYSTEM.public), "not allowed to delete system account"),
    ],
)
def test_only_operator_deletes_accounts(
    shared: ServerUnderTest, administer: Administer, token: str, error: str
) -> None:
    desk = administer(shared)
    said = desk.json("$SYS.REQ.CLAIMS.DELETE", token)["error"]
    assert said["description"].endswith(error)
    assert desk.listed() == {SYSTEM.public, SHOP.public}


def test_deletion_must_be_enabled(start: Starter, administer: Administer) -> None:
    desk = administer(start(config(directory(), SHOP)))
    error = desk.json("$SYS.REQ.CLAIMS.DELETE", deletion(SHOP.public))["error"]
    assert error["description"].endswith("delete must be enabled in server config")


# -- in memory


def test_memory_resolver_accounts_change_too(start: Starter, administer: Administer) -> None:
    desk = administer(server := start(config("MEMORY", SHOP)))
    subject = "$SYS.REQ.ACCOUNT.{}.CLAIMS.UPDATE"
    with login(server, user_token(SHOP)) as wire:
        token = account(SHOP, revocations={"*": ISSUED_S + 1})
        said = desk.json(subject.format(SHOP.public), token)
        assert said == {"data": {"account": SHOP.public, "code": 200, "message": "jwt updated"}}
        gone(wire, "User Authentication Revoked")
    assert (
        desk.json(subject.format(GUEST.public), account(GUEST))["data"]["message"]
        == "jwt update skipped"
    )
    error = desk.json(subject.format(SHOP.public))["error"]
    assert error["description"] == "jwt update error - request body is empty"


def test_server_without_directory_has_no_responders(start: Starter, administer: Administer) -> None:
    desk = administer(start(config("MEMORY")))
    for verb in ("UPDATE", "LIST", "PACK", "DELETE"):
        assert desk.ask(f"$SYS.REQ.CLAIMS.{verb}") is None


# -- the configuration


@pytest.mark.parametrize(
    "resolver",
    [
        "{ type: full }",
        '{ type: full, dir: "x", ttl: "1h" }',
        '{ type: full, dir: "x", hard_delete: true }',
        "{ type: full, dir: 3 }",
        '{ type: full, dir: "x", interval: "soon" }',
        '{ type: cache, dir: "x", allow_delete: true }',
        '{ type: other, dir: "x" }',
        '{ dir: "x" }',
    ],
)
def test_invalid_directories_are_refused_alike(start: Starter, resolver: str) -> None:
    with pytest.raises(ServerStartError, match=r"server\.conf"):
        start(config(resolver))
