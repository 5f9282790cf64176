"""What one client may do at most: the tightest of the server's, its account's and its own limits.

Pure: the limits come in as values. Who is beyond one is told and closed elsewhere (`session`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from penstock.server.auth.login_values import Claimed
    from penstock.server.config.options import AccountConnectionLimits, Options


class ClientLimits(Struct, frozen=True):
    """Bytes of one message, and how many subscriptions; None: as many as the client likes."""

    max_payload: int
    max_subscriptions: int | None


def tightest(
    options: Options, account: AccountConnectionLimits | None, claimed: Claimed | None
) -> ClientLimits:
    """A negative limit of an account or a user is none, and none is above the server's."""
    payloads = [options.max_payload]
    subs = [options.max_subscriptions] if options.max_subscriptions > 0 else []
    for limits in (account, claimed):
        if limits is not None and limits.max_payload >= 0:
            payloads.append(limits.max_payload)
        if limits is not None and limits.max_subscriptions >= 0:
            subs.append(limits.max_subscriptions)
    return ClientLimits(min(payloads), min(subs, default=None))
