"""How log lines name a client."""

from __future__ import annotations

import pytest

from penstock.server.net.client_label import client_label, connection_label, user_claim
from penstock.server.net.connect_info import ConnectOptions
from penstock.server.system.server_accounts import Account
from penstock.subjects.trie import SubList

PLACE = "127.0.0.1:1 - cid:5"


def test_connection_is_named_by_address_and_number() -> None:
    assert connection_label("STANDARD", ("127.0.0.1", 4), 5) == "127.0.0.1:4 - cid:5"
    assert connection_label("STANDARD", ("::1", 4), 5) == "[::1]:4 - cid:5"
    assert connection_label("WEBSOCKET", ("127.0.0.1", 4), 5) == "127.0.0.1:4 - wid:5"
    proxied = connection_label("WEBSOCKET", ("127.0.0.1", 4), 5, "fe80::1")
    assert proxied == "[fe80::1]/127.0.0.1:4 - wid:5"


@pytest.mark.parametrize(
    ("said", "user", "label"),
    [
        ({}, "", PLACE),
        ({"name": "n"}, "", f'{PLACE} - "n"'),
        ({"version": "1", "lang": "go", "name": "n"}, "", f'{PLACE} - "v1:go:n"'),
        ({"user": "amy"}, "amy", f'{PLACE} - "ACC/Tag/user:amy"'),
        ({"nkey": "UKEY"}, "UKEY", f'{PLACE} - "ACC/Tag/nkey:UKEY"'),
        ({"jwt": "x"}, "UKEY", f'{PLACE} - "ACC/Tag/jwt:UKEY"'),
        ({"auth_token": "hush"}, "[REDACTED]", f'{PLACE} - "ACC/Tag/token"'),
        ({}, "default", f'{PLACE} - "ACC/Tag/user:default"'),
    ],
)
def test_client_is_named_by_program_account_and_user(
    said: dict[str, str], user: str, label: str
) -> None:
    account = Account("ACC", SubList(), claimed_name="Tag")
    assert client_label(PLACE, ConnectOptions(**said), account, user) == label  # type: ignore[arg-type]


def test_claim_holds_no_secret() -> None:
    assert user_claim(ConnectOptions(nkey="UKEY")) == 'Nkey "UKEY"'
    assert user_claim(ConnectOptions(user='a"b', password="hush")) == 'User "a\\"b"'
    assert user_claim(ConnectOptions(auth_token="hush")) == 'Token "[REDACTED]"'
    assert user_claim(ConnectOptions(jwt="hush")) == ""
    assert user_claim(ConnectOptions(jwt="hush"), "UKEY") == 'JWT User "UKEY"'
