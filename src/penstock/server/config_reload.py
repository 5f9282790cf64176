"""Reload: taking over a changed configuration file while running.

The file is read and judged whole before anything changes; what cannot change on a running server
is refused, and the server goes on as it was. Clients whose users are gone, or whose permissions
have changed, are judged again.
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
"""Spent on changed rights of clients before clients are served again."""


def take_over(service: ServerState, fresh: Options) -> list[str]:
    """Makes the running server one of the fresh options; answers what that changed.

    Raises ConfigError, having changed nothing.
    """
    changes = reloadable_changes(service.options, fresh)
    service.configure(fresh)
    judge(service, service.sessions.values())
    for change in changes:
        log.info("%s", change)
    log.info("Reloaded server configuration (%s)", fresh.config_digest)
    return changes


def judge(service: ServerState, sessions: Iterable[ClientSession]) -> None:
    """Applies changed users and accounts to clients, or closes them; of many, most come later."""
    service.judged.add(sessions)


class JudgedSessions:
    """The sessions that changed options still have to be applied to.

    One slice is done at once, the rest between the turns of clients: until then they keep the
    rights that they had. Connections above a limit are closed after the last of them.
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
                self._judge(self._waiting.pop(next(iter(self._waiting))))
                if time.monotonic_ns() >= until_ns:
                    break
        finally:
            if self._waiting and not self._is_armed:
                self._is_armed = True
                service = self._service
                service.loop.call_soon(service.watch.run, "a reload", self._continue)
        if not self._waiting:
            _close_surplus(self._service)
        self._service.plane.settle()

    def _judge(self, session: ClientSession) -> None:
        if session.link.close_reason is None:
            session.link.set_traced(self._service.options.trace)
            session.apply_limits()
            session.apply_crossings()
            _judge_again(session)


def _judge_again(session: ClientSession) -> None:
    """Is the client still one of the users?"""
    service = session.service
    authenticator = service.authenticator(session.kind)
    if session.is_configured and not authenticator.knows(session.user):
        # As the reference: a user that is gone is not told why it has to go.
        session.link.close(close_reasons.CLIENT_CLOSED)
        return
    decision = authenticator.authenticate(session.login())
    if isinstance(decision, NeedsBcrypt):
        # Thousands of clients are not compared while all wait: who knew the password of this hash
        # still does. What it may do now, it may from now on; another hash is compared on a thread.
        if isinstance(decision.hoped, Accepted) and decision.hashed != session.proved_hash:
            service.check_bcrypt(session, decision, partial(_compared, session, decision.hashed))
        decision = decision.hoped
    if isinstance(decision, NeedsCallout):
        # As the reference: it may come again, and is asked about then.
        session.link.close(close_reasons.CREDENTIALS_REVOKED)
    else:
        session.judged_again(decision)


def _compared(session: ClientSession, hashed: str, decision: Accepted | LoginRefused) -> None:
    if isinstance(decision, Accepted):
        session.proved_hash = hashed
    else:
        session.judged_again(decision)


def _close_surplus(service: ServerState) -> None:
    """The limit may have fallen below what is there: the newest go first."""
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
