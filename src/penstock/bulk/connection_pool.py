"""Pool of idle connections, reused by the next read on the same event loop.

The caller returns a connection only after it stopped following; later deliveries for the earlier
reader are dropped. `take` discards connections that were lost meanwhile. A pool belongs to one
event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.bulk.bulk_connection import open_link

if TYPE_CHECKING:
    from penstock.bulk.bulk_connection import BulkConnection, ConnectSettings

IDLE_LINKS_MAX: Final = 4


class LinkPool:
    """Idle connections of one event loop."""

    def __init__(self, dialling: ConnectSettings) -> None:
        self._dialling = dialling
        self._idle: list[BulkConnection] = []

    async def take(self) -> BulkConnection:
        while self._idle:
            link = self._idle.pop()
            if link.is_open:
                return link
        return await open_link(self._dialling)

    async def give_back(self, link: BulkConnection) -> None:
        if link.is_open and len(self._idle) < IDLE_LINKS_MAX:
            self._idle.append(link)
        else:
            await link.close()

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()
