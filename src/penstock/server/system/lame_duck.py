"""Lame duck mode: shuts down while clients move to other servers.

The server first notifies its clients, so that they can move. After a grace period it closes them
one by one, spread over the remaining time, so that they do not all reconnect at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.base.units import SECOND_NS
from penstock.server.net import close_reasons
from penstock.server.server_log import log

if TYPE_CHECKING:
    from penstock.server.server_state import ServerState

CLOSE_GAP_S_MAX: Final = 1.0


async def retire(service: ServerState) -> None:
    """Notify every client, wait, close them. The caller has already closed the listeners."""
    log.info("Entering lame duck mode, stop accepting new clients")
    service.lame_duck = True
    if service.system is not None:
        service.system.lame_duck()
    for session in list(service.sessions.values()):
        if session.options.protocol >= 1:
            session.link.send(service.info_for(session).line())
    service.io_loop.flush_and_close()
    if not service.sessions:
        return
    grace_ns = service.options.lame_duck_grace_period_ns
    await asyncio.sleep(grace_ns / SECOND_NS)
    remaining_s = (service.options.lame_duck_duration_ns - grace_ns) / SECOND_NS
    sessions = list(service.sessions.values())
    log.info("Closing existing clients")
    gap_s = min(CLOSE_GAP_S_MAX, remaining_s / max(1, len(sessions)))
    for session in sessions:
        if session.link.close_reason is None:
            session.link.close(close_reasons.SERVER_SHUTDOWN)
            service.io_loop.flush_and_close()
            await asyncio.sleep(gap_s)
