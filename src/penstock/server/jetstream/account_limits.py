"""Computes each account's JetStream limits from the configuration or its claims.

Pure functions of the options. An account has one set of limits, or one per tier; None means that
JetStream is disabled for the account.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api.account_usage import AccountLimits

if TYPE_CHECKING:
    from penstock.server.config.options import JetStreamAccountLimits
    from penstock.server.server_state import ServerState
    from penstock.server.system.server_accounts import Account


def granted(
    service: ServerState, account: Account
) -> tuple[AccountLimits | None, dict[str, AccountLimits]]:
    """Return an account's limits (None: JetStream is disabled), and the limits of its tiers."""
    if account.name == service.system_account:
        return None, {}
    options = service.options
    configured = {entry.name: entry for entry in options.accounts}
    if account.name not in configured:
        # Without its own configuration, an account has JetStream only if no other account is
        # configured and there is no operator.
        others = configured.keys() - {service.system_account}
        is_left_out = others or options.operators or options.trusted_keys
        return None if is_left_out else AccountLimits(), {}
    given = configured[account.name].jetstream
    if given is None:
        return None, {}
    return _limits(given), {name: _limits(tier) for name, tier in given.tiers.items()}


def _limits(given: JetStreamAccountLimits) -> AccountLimits:
    names = AccountLimits.__struct_fields__
    return AccountLimits(**{name: getattr(given, name) for name in names})
