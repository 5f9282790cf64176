"""Operator mode of a running server: accounts that come as signed claims, and that run out.

Keeps the trust made of the options, and gives the options with the accounts that are claimed in
place of configured ones. When an account or a leave to import runs out, all of it is made again
and clients of accounts that are there no more are told to go. Servers without operators pay
nothing: no crypto is loaded.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from penstock.server import reasons
from penstock.server.logs import log

if TYPE_CHECKING:
    import asyncio

    from penstock.server.auth.trust import Trust
    from penstock.server.options import Options
    from penstock.server.service import Service

TIMER_S_MAX: Final = 86_400.0
"""Timers are looked at again after a day: far ones are no better kept than that."""


class Trusting:
    """The trust of one server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._given: Options
        self._timer: asyncio.TimerHandle | None = None
        self.trust: Trust | None = None

    def take(self, options: Options) -> Options:
        """The options with the accounts they claim. Raises what refuses a configuration."""
        self.close()
        self.trust = None
        if not options.operators and not options.trusted_keys:
            return options
        from penstock.server.auth.claimed_accounts import ClaimedAccounts
        from penstock.server.auth.trust import Trust

        now_s = time.time()
        self._given = options
        self.trust = Trust(options, now_s)
        claimed = ClaimedAccounts(
            {name: known.claims for name, known in self.trust.accounts.items()}, now_s
        )
        for warning in (*self.trust.warnings, *claimed.warnings):
            log.warning("%s", warning)
        ahead = [at_s for at_s in claimed.expiries_s if at_s > now_s]
        if ahead:
            self._arm(min(ahead) - now_s)
        return replace(options, accounts=claimed.options)

    def name_accounts(self) -> None:
        """Monitoring calls accounts by the names in their claims."""
        known = {} if self.trust is None else self.trust.accounts
        for name, account in known.items():
            self._service.accounts[name].claimed_name = account.claims.about.name

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, delay_s: float) -> None:
        delay_s = min(delay_s, TIMER_S_MAX)
        self._timer = self._service.loop.call_later(delay_s, self._ran_out)

    def _ran_out(self) -> None:
        service = self._service
        service.configure(self._given)
        assert self.trust is not None
        for session in list(service.sessions.values()):
            if session.bound and session.account.name not in self.trust.accounts:
                session.link.close(reasons.AUTHENTICATION_EXPIRED, "Account Authentication Expired")
            else:
                session.apply_crossings()
        service.plane.settle()
