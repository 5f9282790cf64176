"""The limits of one client: the tightest of the server's, its account's and its own.

Pure: takes limits as values. `client_session` and `client_link` enforce the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from penstock.server.auth.login_values import Claimed
    from penstock.server.config.options import AccountConnectionLimits, Options


class ClientLimits(Struct, frozen=True):
    """Bytes per message, and the number of subscriptions; None means no limit."""

    max_payload: int
    max_subscriptions: int | None


def tightest(
    options: Options, account: AccountConnectionLimits | None, claimed: Claimed | None
) -> ClientLimits:
    """Return the tightest limits.

    A negative limit of an account or a user means no limit of its own. No account or user limit
    raises the server's.
    """
    payloads = [options.max_payload]
    subs = [options.max_subscriptions] if options.max_subscriptions > 0 else []
    for limits in (account, claimed):
        if limits is not None and limits.max_payload >= 0:
            payloads.append(limits.max_payload)
        if limits is not None and limits.max_subscriptions >= 0:
            subs.append(limits.max_subscriptions)
    return ClientLimits(min(payloads), min(subs, default=None))
