"""What a service's answer decides, where the reference looks less closely."""

from __future__ import annotations

import time

import pytest

from penstock.server.auth.callout_request import verdict
from penstock.server.auth.login_values import Accepted, Login, LoginRefused
from penstock.server.config.options import CalloutOptions
from support.claims import AMY, SHOP, UNLIMITED_USER

SERVER = "N"


def answer(**user: object) -> bytes:
    about = {"aud": "HALL"}
    jwt = SHOP.claim(AMY, "user", about=about, **{**UNLIMITED_USER, **user})
    return SHOP.claim(AMY, "authorization_response", about={"aud": SERVER}, jwt=jwt).encode()


def judge(text: bytes, login: Login) -> Accepted | LoginRefused:
    return verdict(
        text,
        callout=CalloutOptions(issuer=SHOP.public),
        user_key=AMY.public,
        server_id=SERVER,
        accounts={"HALL"},
        login=login,
    )


@pytest.mark.parametrize("kind", ["STANDARD", "WEBSOCKET"])
def test_user_comes_in_by_ways_its_claims_name(kind: str) -> None:
    login = Login(connection_type="WEBSOCKET", now_s=time.time())
    decision = judge(answer(allowed_connection_types=[kind]), login)
    assert isinstance(decision, Accepted) is (kind == "WEBSOCKET")


def test_accepted_user_has_limits() -> None:
    decision = judge(answer(subs=5, payload=10), Login(user="amy", now_s=time.time()))
    assert isinstance(decision, Accepted)
    assert decision.user == "user"
    assert decision.account == "HALL"
    assert decision.claimed is not None
    assert decision.claimed.max_subscriptions == 5
    assert decision.claimed.max_payload == 10
