"""Operator mode of a running server: accounts come as signed claims, change, and expire.

`OperatorMode` holds the trust chain of the options and returns the options with the claimed
accounts in place of configured ones. When an account or an activation expires, or new claims are
pushed, it rebuilds everything, applies it to the clients, and closes those whose account no longer
exists. Servers without operators load no crypto library.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from penstock.server.config.config_scanner import ConfigError
from penstock.server.net import close_reasons
from penstock.server.server_log import log

if TYPE_CHECKING:
    import asyncio

    from penstock.server.auth.token_directory import TokenFiles
    from penstock.server.auth.trust_chain import TrustChain
    from penstock.server.config.options import Options, TokenDirectory
    from penstock.server.server_state import ServerState

TIMER_S_MAX: Final = 86_400.0
"""Longest timer; after a day everything is rebuilt, because longer timers are not more accurate."""


class OperatorMode:
    """The trust chain of one server."""

    def __init__(self, service: ServerState) -> None:
        self._service = service
        self._given: Options | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._files: TokenFiles | None = None
        self.tokens: dict[str, str] = {}
        """Tokens of accounts as received, trusted or not."""
        self.trust: TrustChain | None = None

    def take(self, options: Options) -> Options:
        """Return the options with the claimed accounts; raise ConfigError or ClaimsFault."""
        self.close()
        self.trust = None
        if not options.operators and not options.trusted_keys:
            return options
        from penstock.server.auth.claimed_accounts import ClaimedAccounts
        from penstock.server.auth.trust_chain import TrustChain

        now_s = time.time()
        if options is not self._given:
            self.tokens = self._collect(options)
        self._given = options
        self.trust = TrustChain(replace(options, resolver_preload=self.tokens), now_s)
        claimed = ClaimedAccounts(
            {name: known.claims for name, known in self.trust.accounts.items()}, now_s
        )
        for warning in (*self.trust.warnings, *claimed.warnings):
            log.warning("%s", warning)
        ahead = [at_s for at_s in claimed.expiries_s if at_s > now_s]
        if ahead:
            self._arm(min(ahead) - now_s)
        return replace(options, accounts=claimed.options)

    def _collect(self, options: Options) -> dict[str, str]:
        """Return the tokens of the options; with a directory, its tokens, updated from the options.

        A token of the options replaces one of the directory unless that one was issued later.
        """
        if options.resolver_directory is None:
            self._files = None
            return dict(options.resolver_preload)
        files = self._open(options.resolver_directory)
        for name, token in options.resolver_preload.items():
            files.save_newer(name, token)
        if options.system_account and options.system_account not in files.tokens:
            raise ConfigError("error resolving system account: account missing")
        self._files = files
        return files.tokens

    def _open(self, directory: TokenDirectory) -> TokenFiles:
        from penstock.server.auth.token_directory import TokenFiles

        try:
            files = TokenFiles(directory.path, directory.limit)
        except OSError as error:
            raise ConfigError(f"resolver directory: {error}") from error
        log.info("Managing all jwt in exclusive directory %s", files)
        for stray in files.strays:
            log.warning("%s in the resolver's directory is no account JWT", stray)
        return files

    def name_accounts(self) -> None:
        """Set the accounts' names for monitoring from their claims."""
        known = {} if self.trust is None else self.trust.accounts
        for name, account in known.items():
            self._service.accounts[name].claimed_name = account.claims.about.name

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- changes

    def update(self, name: str, token: str) -> None:
        """Replace the claims of an account at once; raise DirectoryFull or OSError."""
        from penstock.server.config_reload import recheck_sessions

        if self._files is not None:
            self._files.save(name, token)
        else:
            self.tokens[name] = token
        self._make_again()
        sessions = [s for s in self._service.sessions.values() if s.account.name == name]
        for session in sessions:
            session.apply_limits(has_subscriptions=True)
        recheck_sessions(self._service, [s for s in sessions if s.link.close_reason is None])
        self._service.io_loop.flush_and_close()

    def delete(self, name: str, *, hard: bool) -> None:
        """Delete the claims of an account; raise OSError."""
        assert self._files is not None
        self._files.delete(name, hard=hard)
        self._make_again()

    def _arm(self, delay_s: float) -> None:
        delay_s = min(delay_s, TIMER_S_MAX)
        self._timer = self._service.loop.call_later(delay_s, self._make_again)

    def _make_again(self) -> None:
        service = self._service
        assert self._given is not None
        service.configure(self._given)
        assert self.trust is not None
        for session in list(service.sessions.values()):
            if session.bound and session.account.name not in self.trust.accounts:
                session.link.close(
                    close_reasons.AUTHENTICATION_EXPIRED, "Account Authentication Expired"
                )
            else:
                session.apply_imports()
        service.io_loop.flush_and_close()
