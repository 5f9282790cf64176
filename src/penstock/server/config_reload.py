"""Config reload: applies a changed configuration to the running server.

The whole file is read and checked before anything changes. A change that a running server cannot
make is refused, and the server keeps its configuration. After the change every client is
authenticated again: clients of removed users are closed, the others get their new permissions.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.server.auth.login_values import Accepted, NeedsBcrypt, NeedsCallout
from penstock.server.config.reload_rules import reloadable_changes
from penstock.server.net import close_reasons
from penstock.server.server_log import log

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.server.auth.login_values import LoginRefused
    from penstock.server.config.options import Options
    from penstock.server.net.client_session import ClientSession
    from penstock.server.server_state import ServerState


SLICE_NS: Final = 2_000_000
"""Time for re-checking clients before the server serves them again."""


def take_over(service: ServerState, fresh: Options) -> list[str]:
    """Apply the new options to the running server; return a description of each change.

    Raises ConfigError for a change that is not possible, before anything changes.
    """
    changes = reloadable_changes(service.options, fresh)
    service.configure(fresh)
    recheck_sessions(service, service.sessions.values())
    for change in changes:
        log.info("%s", change)
    log.info("Reloaded server configuration (%s)", fresh.config_digest)
    return changes


def recheck_sessions(service: ServerState, sessions: Iterable[ClientSession]) -> None:
    """Re-check clients against changed users and accounts; of many, most are re-checked later."""
    service.session_recheck.add(sessions)


class SessionRecheck:
    """The sessions to which changed options must still be applied.

    The first slice runs at once, the rest between turns; until then the sessions keep their old
    permissions. After the last session, connections above a limit are closed.
    """

    def __init__(self, service: ServerState) -> None:
        self._service = service
        self._waiting: dict[int, ClientSession] = {}
        self._is_armed = False

    def add(self, sessions: Iterable[ClientSession]) -> None:
        self._waiting |= {session.cid: session for session in sessions}
        self._run()

    def _continue(self) -> None:
        self._is_armed = False
        self._run()

    def _run(self) -> None:
        until_ns = time.monotonic_ns() + SLICE_NS
        try:
            while self._waiting:
                self._recheck(self._waiting.pop(next(iter(self._waiting))))
                if time.monotonic_ns() >= until_ns:
                    break
        finally:
            if self._waiting and not self._is_armed:
                self._is_armed = True
                service = self._service
                service.loop.call_soon(service.watch.run, "a reload", self._continue)
        if not self._waiting:
            _close_surplus(self._service)
        self._service.io_loop.flush_and_close()

    def _recheck(self, session: ClientSession) -> None:
        if session.link.close_reason is None:
            session.link.set_traced(self._service.options.trace)
            session.apply_limits()
            session.apply_imports()
            _reauthenticate(session)


def _reauthenticate(session: ClientSession) -> None:
    """Authenticate a client again and apply the decision."""
    service = session.service
    authenticator = service.authenticator(session.kind)
    if session.is_configured and not authenticator.knows(session.user):
        # As in the reference, the client of a removed user is closed without -ERR.
        session.link.close(close_reasons.CLIENT_CLOSED)
        return
    decision = authenticator.authenticate(session.login())
    if isinstance(decision, NeedsBcrypt):
        # Comparing thousands of passwords would block the loop. A client that matched this hash
        # before is not compared again; another hash is compared on a thread, which may refuse
        # the client later. New permissions apply now, but the server does not read from the client
        # until then.
        if isinstance(decision.hoped, Accepted) and decision.hashed != session.proved_hash:
            service.check_bcrypt(session, decision, partial(_compared, session, decision.hashed))
        decision = decision.hoped
    if isinstance(decision, NeedsCallout):
        # As in the reference, the client must reconnect; the callout decides then.
        session.link.close(close_reasons.CREDENTIALS_REVOKED)
    else:
        session.apply_decision(decision)


def _compared(session: ClientSession, hashed: str, decision: Accepted | LoginRefused) -> None:
    if isinstance(decision, Accepted):
        session.proved_hash = hashed
    else:
        session.apply_decision(decision)


def _close_surplus(service: ServerState) -> None:
    """Close the newest connections above the server's and the accounts' limits."""
    limit = service.options.max_connections
    staying = [s for s in service.sessions.values() if s.link.close_reason is None]
    for session in staying[limit:] if limit >= 0 else ():
        session.link.close(close_reasons.MAX_CONNECTIONS, "maximum connections exceeded")
    counts: dict[str, int] = {}
    for session in staying:
        name = session.account.name
        counts[name] = counts.get(name, 0) + session.bound
        if session.account.is_beyond(counts[name]):
            session.leave_full_account()
