"""What is logged of logins: who was refused, never a secret, and what makes them unsafe."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from support.wire import Wire

if TYPE_CHECKING:
    from support.servers import Implementation, ServerPool
    from support.tls import Certificates

NKEY = "UCNGL4W5QX66CFX6A6DCBVDH5VOHMI7B2UZZU7TXAUQQSI2JPHULCKBR"
DOORS = {
    "users": "authorization { users: [ {user: amy, password: a} ] }\n",
    "token": "authorization { token: open }\n",
    "one": "authorization { user: amy, password: a }\n",
    "nkeys": f"authorization {{ users: [ {{nkey: {NKEY}}} ] }}\n",
}
CLAIMS = {
    "nothing": ({}, ""),
    "name": ({"user": "amy", "pass": "shut-secret"}, ' - User "amy"'),
    "odd-name": ({"user": 'a"\nb', "pass": "shut-secret"}, r' - User "a\"\nb"'),
    "token": ({"auth_token": "shut-secret"}, ' - Token "[REDACTED]"'),
    "nkey": ({"nkey": NKEY, "sig": "shut-secret"}, f' - Nkey "{NKEY}"'),
    "jwt": ({"jwt": "shut-secret"}, ""),
    "name-and-nkey": ({"user": "amy", "nkey": NKEY}, f' - Nkey "{NKEY}"'),
}


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("door", DOORS)
def test_refused_login_is_logged_with_name_it_claimed(
    pool: ServerPool, implementation: Implementation, door: str, claim: str
) -> None:
    server = pool.get(implementation, DOORS[door])
    said, logged = CLAIMS[claim]
    with Wire(server.address) as wire:
        cid = wire.info["client_id"]
        wire.send(f"CONNECT {json.dumps(said)}\r\n")
        wire.expect("-ERR 'Authorization Violation'")
        wire.expect_closed()
    line = server.wait_for_log(rf"cid:{cid} - authentication error(.*)\n")
    assert line[1] == logged
    assert "shut-secret" not in re.sub("CONNECT .*", "", server.log)


HASH = '"$2a$04$tM5gFwqpOfnhHfxTAXt.UOcGmSXcp.lmUNGyNZuIBTmi67T.G9AaO"'
PLAIN = "Plaintext passwords detected, use nkeys or bcrypt"
TLS_FIRST = 'Clients that are not using "TLS Handshake First" option will fail to connect'


@pytest.mark.parametrize(
    ("config", "warned"),
    [
        (DOORS["users"], True),
        (DOORS["one"], True),
        (DOORS["token"], False),
        (DOORS["nkeys"], False),
        ("accounts { ONE { users: [ {user: amy, password: a} ] } }\n", True),
        ("authorization { users: [ {user: amy} ] }\n", True),
        (f"authorization {{ user: amy, password: {HASH} }}\n", False),
        (f"authorization {{ users: [ {{user: amy, password: {HASH}}} ] }}\n", False),
        (f"authorization {{ users: [ {{user: a, password: {HASH}}}, {{user: b}} ] }}\n", True),
    ],
)
def test_plain_text_passwords_cause_warning(
    pool: ServerPool, implementation: Implementation, config: str, warned: bool
) -> None:
    server = pool.get(implementation, config)
    server.wait_for_log("Server is ready")
    assert (PLAIN in server.log) is warned


@pytest.mark.parametrize(
    ("setting", "warned"),
    [("true", True), ("auto", False), ('"300ms"', False), ("false", False)],
)
def test_listener_unusable_for_most_clients_causes_warning(
    pool: ServerPool,
    implementation: Implementation,
    certificates: Certificates,
    setting: str,
    warned: bool,
) -> None:
    server = pool.get(implementation, certificates.block(f"handshake_first: {setting}"))
    server.wait_for_log("Server is ready")
    assert (TLS_FIRST in server.log) is warned


def test_users_that_certificates_name_need_no_password(
    pool: ServerPool, implementation: Implementation, certificates: Certificates
) -> None:
    users = 'authorization { users: [ {user: "CN=bob"} ] }\n'
    server = pool.get(implementation, certificates.verifying("verify_and_map: true") + users)
    server.wait_for_log("Server is ready")
    assert PLAIN not in server.log
