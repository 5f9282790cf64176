"""Reload: taking over a changed configuration file while running.

The file is read and judged whole before anything changes; what cannot change on a running server
is refused, and the server goes on as it was. Clients whose users are gone, or whose permissions
have changed, are judged again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.server import reasons
from penstock.server.config.reload import reloadable_changes
from penstock.server.logs import log

if TYPE_CHECKING:
    from penstock.server.options import Options
    from penstock.server.service import Service


def take_over(service: Service, fresh: Options) -> list[str]:
    """Makes the running server one of the fresh options; answers what that changed.

    Raises ConfigError, having changed nothing.
    """
    changes = reloadable_changes(service.options, fresh)
    service.configure(fresh)
    for session in list(service.sessions.values()):
        session.apply_limits()
        session.apply_crossings()
        session.link.set_traced(fresh.trace)
        session.reauthenticate()
    _close_surplus(service)
    service.plane.settle()
    for change in changes:
        log.info("%s", change)
    log.info("Reloaded server configuration")
    return changes


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
