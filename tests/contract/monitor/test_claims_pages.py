"""What monitoring and the system account tell of accounts and users that come with claims."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from support.claims import (
    AMY,
    BOB,
    OPERATOR,
    SHOP,
    SIGNING_KEY,
    SYSTEM,
    Realm,
    login,
    user_token,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.servers import ServerUnderTest, Starter
    from support.wire import Wire

REALM = (
    Realm()
    .add(
        SHOP,
        about={"name": "shop"},
        tags=["a:b"],
        signing_keys=[SIGNING_KEY.public],
        revocations={BOB.public: 100},
    )
    .add(SYSTEM, about={"name": "sys"})
)
AMYS = user_token(SHOP, about={"name": "amy", "exp": int(time.time()) + 3600}, tags=["t:u"])
BEARERS = user_token(SIGNING_KEY, BOB, issuer_account=SHOP.public, bearer_token=True)


@pytest.fixture
def server(start: Starter) -> ServerUnderTest:
    return start(REALM.config(f"system_account: {SYSTEM.public}\n"), "-m", "-1")


@pytest.fixture
def listener(server: ServerUnderTest) -> Iterator[Wire]:
    with login(server, user_token(SYSTEM, BOB), BOB) as wire:
        wire.send("SUB $SYS.ACCOUNT.*.CONNECT 1\r\nSUB back 2\r\n")
        wire.expect_quiet()
        yield wire


def answered(wire: Wire, subject: str, body: str = "") -> Any:
    wire.send(f"PUB {subject} back {len(body)}\r\n{body}\r\n")
    wire.line()
    return json.loads(wire.line())["data"]


def test_connection_shows_its_claims_but_no_bearer_token(
    server: ServerUnderTest, listener: Wire
) -> None:
    with login(server, AMYS), login(server, BEARERS, BOB):
        told = [listener.line() for _ in range(4)][1::2]
        page = answered(listener, "$SYS.REQ.SERVER.PING.CONNZ", '{"auth":true,"sort":"cid"}')
        amy, bearer = page["connections"][1:]
        assert (amy["authorized_user"], amy["account"]) == (AMY.public, SHOP.public)
        assert (amy["jwt"], amy["issuer_key"]) == (AMYS, SHOP.public)
        assert (amy["name_tag"], amy["tags"]) == ("shop", ["t:u"])
        assert (bearer["issuer_key"], bearer["name_tag"]) == (SIGNING_KEY.public, "shop")
        assert "jwt" not in bearer
        events = [json.loads(event)["client"] for event in told]
        assert (events[0]["jwt"], events[0]["tags"]) == (AMYS, ["t:u"])
        assert [event["name_tag"] for event in events] == ["shop", "shop"]
        assert [event["issuer_key"] for event in events] == [SHOP.public, SIGNING_KEY.public]


def test_account_shows_its_claims(server: ServerUnderTest, listener: Wire) -> None:
    with login(server, AMYS):
        assert listener.line().split()[1].endswith(".CONNECT")
        listener.line()
        body = json.dumps({"account": SHOP.public})
        detail = answered(listener, "$SYS.REQ.SERVER.PING.ACCOUNTZ", body)["account_detail"]
        assert (detail["jwt"], detail["issuer_key"]) == (REALM.accounts[SHOP], OPERATOR.public)
        assert (detail["name_tag"], detail["tags"]) == ("shop", ["a:b"])
        assert detail["revoked_user"] == {BOB.public: "1970-01-01T00:01:40Z"}


def test_user_can_request_its_own_info(server: ServerUnderTest) -> None:
    with login(server, AMYS) as wire:
        wire.send("SUB back 2\r\n")
        told = answered(wire, "$SYS.REQ.USER.INFO")
        assert told["user"] == AMY.public
        assert (told["account"], told["account_name"]) == (SHOP.public, "shop")
        assert told["user_name"] == "amy"
        assert 0 < told["expires"] <= 3600 * 1_000_000_000
