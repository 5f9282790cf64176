"""Operator mode: what signed claims give an account and its users, once they are in."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from support.claims import (
    BOB,
    GUEST,
    ISSUED_S,
    OPERATOR,
    SHOP,
    SYSTEM,
    UNLIMITED,
    Realm,
    credentials,
    login,
    refused,
    refused_token,
    user_token,
)
from support.wire import Wire

if TYPE_CHECKING:
    from pathlib import Path

    from support.servers import Implementation, ServerPool, ServerUnderTest, Starter


@pytest.fixture
def plain(pool: ServerPool, implementation: Implementation) -> ServerUnderTest:
    """A server with one unlimited account."""
    return pool.get(implementation, Realm().add(SHOP).config())


# -- permissions and limits


def test_permissions_are_enforced(plain: ServerUnderTest) -> None:
    token = user_token(SHOP, pub={"allow": ["p.>"], "deny": ["p.no"]}, sub={"allow": ["s", "q g"]})
    with login(plain, token) as wire:
        wire.send("PUB p.a 0\r\n\r\nSUB s 1\r\nSUB q g 2\r\n")
        wire.expect_quiet()
        wire.send("PUB p.no 0\r\n\r\n")
        wire.expect("-ERR 'Permissions Violation for Publish to \"p.no\"'")
        wire.send("SUB q 3\r\n")
        wire.expect("-ERR 'Permissions Violation for Subscription to \"q\"'")


def test_response_permission_allows_one_reply(plain: ServerUnderTest) -> None:
    service = user_token(SHOP, sub={"allow": ["ask"]}, resp={"max": 1, "ttl": 60_000_000_000})
    with login(plain, service) as answering, login(plain, user_token(SHOP, BOB), BOB) as asking:
        answering.send("SUB ask 1\r\n")
        answering.expect_quiet()
        asking.send("SUB back 1\r\nPUB ask back 0\r\n\r\n")
        answering.expect("MSG ask 1 back 0", "")
        answering.send("PUB back 1\r\na\r\nPUB back 1\r\nb\r\n")
        answering.expect("-ERR 'Permissions Violation for Publish to \"back\"'")
        asking.expect("MSG back 1 1", "a")
        asking.expect_quiet()


def test_default_permissions_of_account_apply(start: Starter) -> None:
    server = start(Realm().add(SHOP, default_permissions={"pub": {"deny": ["no"]}}).config())
    with (
        login(server, user_token(SHOP)) as wire,
        login(server, user_token(SHOP, BOB, sub={"allow": ["x"]}), BOB) as own,
    ):
        wire.send("PUB no 0\r\n\r\n")
        wire.expect("-ERR 'Permissions Violation for Publish to \"no\"'")
        own.send("PUB no 0\r\n\r\n")
        own.expect_quiet()


def test_user_limits_are_enforced(plain: ServerUnderTest) -> None:
    token = user_token(SHOP, payload=4, subs=1)
    with login(plain, token) as wire:
        wire.send("SUB a 1\r\nSUB b 2\r\n")
        wire.expect("-ERR 'maximum subscriptions exceeded'")
        wire.send("PUB a 4\r\nfour\r\n")
        wire.expect("MSG a 1 4", "four")
        wire.send("PUB a 5\r\nfives\r\n")
        wire.expect("-ERR 'Maximum Payload Violation'")
        wire.expect_closed()


def test_user_without_subscriptions_is_closed_at_login(plain: ServerUnderTest) -> None:
    with Wire(plain.address) as wire:
        wire.send(f"CONNECT {json.dumps(credentials(wire, user_token(SHOP, subs=0)))}\r\n")
        while (line := wire.line()).startswith("+OK"):
            pass
        assert line == "-ERR 'maximum subscriptions exceeded'"
        wire.expect_closed()


def test_account_limits_are_enforced(start: Starter) -> None:
    limits = {**UNLIMITED, "conn": 1, "payload": 4}
    server = start(Realm().add(SHOP, limits=limits).config())
    with login(server, user_token(SHOP)) as wire:
        with Wire(server.address) as second:
            second.send(f"CONNECT {json.dumps(credentials(second, user_token(SHOP)))}\r\n")
            second.expect("-ERR 'maximum account active connections exceeded'")
            second.expect_closed()
        wire.send("PUB a 5\r\nfives\r\n")
        wire.expect("-ERR 'Maximum Payload Violation'")
        wire.expect_closed()


FORBIDDEN: list[dict[str, Any]] = [
    {"limits": {**UNLIMITED, "exports": 0}, "exports": [{"subject": "a", "type": "stream"}]},
    {
        "limits": {**UNLIMITED, "exports": 5, "wildcards": False},
        "exports": [{"subject": "a.*", "type": "stream"}],
    },
    {"exports": [{"subject": "a.>", "type": "stream"}, {"subject": "a.b", "type": "stream"}]},
    {"imports": [{"subject": "a", "type": "stream"}]},
    {"mappings": {"a": [{"subject": "b", "weight": 60}, {"subject": "c", "weight": 60}]}},
    {"signing_keys": ["nonsense"]},
]


@pytest.mark.parametrize("nats", FORBIDDEN)
def test_account_with_invalid_claims_is_unknown(start: Starter, nats: dict[str, Any]) -> None:
    refused_token(start(Realm().add(SHOP, **nats).config()), user_token(SHOP))


# -- what accounts share


def test_accounts_are_isolated(start: Starter) -> None:
    server = start(Realm().add(SHOP).add(GUEST).config())
    with login(server, user_token(SHOP)) as shop, login(server, user_token(GUEST)) as guest:
        guest.send("SUB > 1\r\n")
        guest.expect_quiet()
        shop.send("PUB a 0\r\n\r\n")
        shop.expect_quiet()
        guest.expect_quiet()


def test_imports_and_mappings_work(start: Starter) -> None:
    exports = [{"subject": "news.*", "type": "stream"}, {"subject": "ask", "type": "service"}]
    imports = [
        {"subject": "news.*", "type": "stream", "account": SHOP.public, "local_subject": "n.*"},
        {"subject": "ask", "type": "service", "account": SHOP.public, "local_subject": "shop"},
        {"subject": "none", "type": "service", "account": SHOP.public},
    ]
    mappings = {"old": [{"subject": "new"}]}
    realm = Realm().add(SHOP, exports=exports).add(GUEST, imports=imports, mappings=mappings)
    server = start(realm.config())
    with login(server, user_token(SHOP)) as shop, login(server, user_token(GUEST)) as guest:
        shop.send("SUB ask 1\r\n")
        shop.expect_quiet()
        guest.send("SUB n.* 1\r\nSUB new 2\r\nSUB back 3\r\n")
        guest.expect_quiet()
        shop.send("PUB news.a 2\r\nhi\r\n")
        guest.expect("MSG n.a 1 2", "hi")
        guest.send("PUB old 2\r\nho\r\nPUB shop back 1\r\n?\r\n")
        guest.expect("MSG new 2 2", "ho")
        asked = shop.line().split()
        shop.expect("?")
        assert asked[:3] == ["MSG", "ask", "1"]
        shop.send(f"PUB {asked[3]} 1\r\n!\r\n")
        guest.expect("MSG back 3 1", "!")


@pytest.mark.parametrize("leave", ["none", "of another", "over", "revoked", "given"])
def test_export_may_require_activation_token(start: Starter, leave: str) -> None:
    about = {"exp": ISSUED_S} if leave == "over" else {}
    giver = GUEST if leave == "of another" else SHOP
    token = giver.claim(GUEST, "activation", about=about, subject="news", kind="stream")
    wanted = {"subject": "news", "type": "stream", "account": SHOP.public}
    if leave != "none":
        wanted["token"] = token
    export: dict[str, Any] = {"subject": "news", "type": "stream", "token_req": True}
    if leave == "revoked":
        export["revocations"] = {GUEST.public: ISSUED_S}
    server = start(Realm().add(SHOP, exports=[export]).add(GUEST, imports=[wanted]).config())
    if leave == "of another":
        refused_token(server, user_token(GUEST))
        return
    with login(server, user_token(SHOP)) as shop, login(server, user_token(GUEST)) as guest:
        guest.send("SUB news 1\r\n")
        guest.expect_quiet()
        shop.send("PUB news 2\r\nhi\r\n")
        shop.expect_quiet()
        if leave == "given":
            guest.expect("MSG news 1 2", "hi")
        guest.expect_quiet()


# -- configuration


def test_only_pinned_accounts_are_accepted(start: Starter) -> None:
    realm = Realm().add(SHOP).add(GUEST)
    server = start(realm.config(f"resolver_pinned_accounts: [{SHOP.public}]\n"))
    refused_token(server, user_token(GUEST))
    login(server, user_token(SHOP)).close()


def test_client_without_token_is_sentinel_user(start: Starter) -> None:
    sentinel = user_token(SHOP, bearer_token=True, pub={"allow": ["a"]})
    server = start(Realm().add(SHOP).config(f"default_sentinel: {sentinel}\n"))
    with Wire(server.address) as wire:
        wire.connect()
        wire.send("PUB b 0\r\n\r\n")
        wire.expect("-ERR 'Permissions Violation for Publish to \"b\"'")


def test_trusted_keys_replace_operator_token(start: Starter) -> None:
    accounts = Realm().add(SHOP).config().split("\n", 1)[1]
    server = start(f"trusted_keys: [{OPERATOR.public}]\n{accounts}")
    login(server, user_token(SHOP)).close()
    refused(server)


def test_reload_adds_and_removes_accounts(start: Starter) -> None:
    server = start(Realm().add(SHOP).config())
    refused_token(server, user_token(GUEST))
    server.reload(Realm().add(SHOP).add(GUEST).config())
    login(server, user_token(GUEST)).close()
    with login(server, user_token(SHOP)) as wire:
        server.reload(Realm().add(GUEST).config())
        wire.expect(re.compile("-ERR .*"))
        wire.expect_closed()
    refused_token(server, user_token(SHOP))


def test_jetstream_limits_come_from_claims(start: Starter, tmp_path: Path) -> None:
    limits = {**UNLIMITED, "mem_storage": 1000, "disk_storage": -1, "streams": 1, "consumer": -1}
    realm = Realm().add(SHOP, limits=limits).add(GUEST).add(SYSTEM)
    persisting = f"jetstream: enabled\nsystem_account: {SYSTEM.public}\n"
    server = start(realm.config(persisting), "-sd", str(tmp_path))
    asking = "SUB back 1\r\nPUB $JS.API.INFO back 0\r\n\r\n"
    with login(server, user_token(SHOP)) as shop, login(server, user_token(GUEST)) as guest:
        shop.send(asking)
        shop.line()
        told = json.loads(shop.line())["limits"]
        assert (told["max_memory"], told["max_storage"], told["max_streams"]) == (1000, -1, 1)
        guest.send(asking)
        guest.line()
        assert json.loads(guest.line())["error"]["err_code"] == 10039
