"""An auth callout that cannot be: both servers refuse to start, in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.claims import AMY, SHOP
from support.servers import ServerStartError

if TYPE_CHECKING:
    from support.servers import Starter

ISSUER = f"issuer: {SHOP.public}"
REFUSED = {
    "5": "Expected authorization callout to be a map/struct, got 5",
    "{ issuer: foo, auth_users: [a] }": (
        'Expected callout user to be a valid public account nkey, got "foo"'
    ),
    f"{{ issuer: {AMY.public}, auth_users: [a] }}": (
        f'Expected callout user to be a valid public account nkey, got "{AMY.public}"'
    ),
    f"{{ {ISSUER} }}": "Authorization callouts require authorized users to be specified",
    "{ auth_users: [a] }": "Authorization callouts require an issuer to be specified",
    f"{{ {ISSUER}, auth_users: a }}": "Expected auth_users field to be an array, got *conf.token",
    f"{{ {ISSUER}, auth_users: [a], xkey: x }}": (
        'Expected callout xkey to be a valid public xkey, got "x"'
    ),
    f"{{ {ISSUER}, auth_users: [a], nonsense: 1 }}": (
        'Unknown field "nonsense" parsing authorization callout'
    ),
    f"{{ {ISSUER}, auth_users: [a], allowed_accounts: A }}": (
        "Expected allowed accounts field to be an array, got *conf.token"
    ),
    f"{{ {ISSUER}, auth_users: [a], allowed_accounts: [NONE] }}": (
        'auth_callout allowed account "NONE" not found in configured accounts'
    ),
}


@pytest.mark.parametrize(("callout", "why"), REFUSED.items(), ids=list(REFUSED.values()))
def test_invalid_callout_is_refused(start: Starter, callout: str, why: str) -> None:
    with pytest.raises(ServerStartError) as caught:
        start(
            "accounts { A { users: [{user: a, password: b}] } }\n"
            f"authorization {{ auth_callout: {callout} }}\n"
        )
    assert why in str(caught.value)
