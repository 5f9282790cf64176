"""Operators in a configuration that cannot be: both servers refuse to start, in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.claims import OPERATOR, SHOP, Realm, user_token
from support.servers import ServerStartError

if TYPE_CHECKING:
    from support.servers import Starter

BASE = Realm().config()
REFUSED = {
    "operator: eyJx\n": "error parsing operator JWT: expected 3 chunks",
    "operator: /nowhere/x\n": "error parsing operator JWT: open /nowhere/x: no such file",
    "operator: 5\n": "error parsing operators: unsupported type int64",
    "trusted_keys: x\n": 'trust key "x" required to be a valid public operator nkey',
    "default_sentinel: x\n": "default sentinel requires operators and accounts",
    f"{BASE}accounts {{ A {{ }} }}\n": "operators do not allow Accounts to be configured directly",
    f"{BASE}authorization {{ users [ {{user: a, password: b}} ] }}\n": (
        "operators do not allow users to be configured directly"
    ),
    f"{BASE}no_auth_user: x\n": "no_auth_user not compatible with Trusted Operator",
    f"{BASE}resolver_preload {{ A: x }}\n": "invalid account JWT",
    f"{BASE}resolver_preload: [a]\n": "preload should be a map of account_public_key:account_jwt",
    f"{BASE}resolver: foo\n": "error parsing account resolver, should be MEM or",
    f"{BASE}resolver: 5\n": "error parsing operator resolver, wrong type int64",
    f"{BASE}trusted_keys: {OPERATOR.public}\n": (
        "conflicting options for 'TrustedKeys' and 'TrustedOperators'"
    ),
    f"{BASE}default_sentinel: x\n": "default sentinel JWT not valid",
    f"{BASE}default_sentinel: {user_token(SHOP)}\n": "default sentinel must be a bearer token",
    f"{BASE}resolver_pinned_accounts: x\n": (
        'pinned account key "x" is not a valid public account nkey'
    ),
    Realm(operator=OPERATOR.claim(OPERATOR, "operator", assert_server_version="2.99.0")).config(): (
        f"operator {OPERATOR.public} expected minor version 99 > server minor version 15"
    ),
}


@pytest.mark.parametrize(("config", "why"), REFUSED.items(), ids=list(REFUSED.values()))
def test_invalid_operators_are_refused(start: Starter, config: str, why: str) -> None:
    with pytest.raises(ServerStartError) as caught:
        start(config)
    assert why in str(caught.value)


def test_operator_may_be_file(start: Starter, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("operator") / "o.jwt"
    token = OPERATOR.claim(OPERATOR, "operator")
    file.write_text(
        f"-----BEGIN NATS OPERATOR JWT-----\n{token}\n------END NATS OPERATOR JWT------\n"
    )
    assert start(f"operator: {file}\nresolver: MEMORY\n").url
