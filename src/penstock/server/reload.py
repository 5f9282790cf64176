"""Reload: taking over a changed configuration file while running.

The file is read and judged whole before anything changes; what cannot change on a running server
is refused, and the server goes on as it was. Clients whose users are gone, or whose permissions
have changed, are judged again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from penstock.server import reasons
from penstock.server.auth.values import Accepted, NeedsBcrypt, NeedsCallout
from penstock.server.config.reload import reloadable_changes
from penstock.server.logs import log

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.server.auth.values import Refused
    from penstock.server.options import Options
    from penstock.server.service import Service
    from penstock.server.session import Session


def take_over(service: Service, fresh: Options) -> list[str]:
    """Makes the running server one of the fresh options; answers what that changed.

    Raises ConfigError, having changed nothing.
    """
    changes = reloadable_changes(service.options, fresh)
    service.configure(fresh)
    for session in list(service.sessions.values()):
        session.link.set_traced(fresh.trace)
    judge(service, service.sessions.values())
    service.plane.settle()
    for change in changes:
        log.info("%s", change)
    log.info("Reloaded server configuration (%s)", fresh.config_digest)
    return changes


def judge(service: Service, sessions: Iterable[Session]) -> None:
    """Their users and accounts have changed: clients have what is their due now, or have to go."""
    for session in list(sessions):
        session.apply_limits()
        session.apply_crossings()
        _judge_again(session)
    _close_surplus(service)


def _judge_again(session: Session) -> None:
    """Is the client still one of the users?"""
    service = session.service
    authenticator = service.authenticator(session.kind)
    if session.is_configured and not authenticator.knows(session.user):
        # As the reference: a user that is gone is not told why it has to go.
        session.link.close(reasons.CLIENT_CLOSED)
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
        session.link.close(reasons.CREDENTIALS_REVOKED)
    else:
        session.judged_again(decision)


def _compared(session: Session, hashed: str, decision: Accepted | Refused) -> None:
    if isinstance(decision, Accepted):
        session.proved_hash = hashed
    else:
        session.judged_again(decision)


def _close_surplus(service: Service) -> None:
    """The limit may have fallen below what is there: the newest go first."""
    limit = service.options.max_connections
    staying = [s for s in service.sessions.values() if s.link.close_reason is None]
    for session in staying[limit:] if limit >= 0 else ():
        session.link.close(reasons.MAX_CONNECTIONS, "maximum connections exceeded")
    counts: dict[str, int] = {}
    for session in staying:
        name = session.account.name
        counts[name] = counts.get(name, 0) + session.bound
        if session.account.is_beyond(counts[name]):
            session.leave_full_account()
