"""What is logged of a login that was refused: who it claimed to be, and never a secret."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from support_wire import Wire

if TYPE_CHECKING:
    from support_servers import Implementation, ServerPool

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
def test_a_refused_login_is_logged_with_the_name_it_claimed(
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
