"""The limits of one client are the tightest of three."""

from __future__ import annotations

import pytest

from penstock.server.config.options import AccountConnectionLimits, Options
from penstock.server.net.client_limits import ClientLimits, tightest


@pytest.mark.parametrize(
    ("of_server", "of_account", "expected"),
    [
        (Options(), None, ClientLimits(1_048_576, None)),
        (Options(), AccountConnectionLimits(), ClientLimits(1_048_576, None)),
        (Options(max_payload=50), AccountConnectionLimits(max_payload=100), ClientLimits(50, None)),
        (Options(max_payload=100), AccountConnectionLimits(max_payload=50), ClientLimits(50, None)),
        (Options(), AccountConnectionLimits(max_payload=0), ClientLimits(0, None)),
        (Options(max_subscriptions=5), AccountConnectionLimits(), ClientLimits(1_048_576, 5)),
        (
            Options(max_subscriptions=5),
            AccountConnectionLimits(max_subscriptions=2),
            ClientLimits(1_048_576, 2),
        ),
        (Options(), AccountConnectionLimits(max_subscriptions=0), ClientLimits(1_048_576, 0)),
    ],
)
def test_tightest_limit_holds(
    of_server: Options, of_account: AccountConnectionLimits | None, expected: ClientLimits
) -> None:
    assert tightest(of_server, of_account, None) == expected
