"""Connections that are done with, kept open for the next read over the same event loop.

A link goes back only when nothing is followed on it any more; what still arrives for an earlier
reader is nobody's and dropped. Links that were lost meanwhile are thrown away. Whoever makes a pool
uses it on one event loop alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.bulk.bulk_connection import open_link

if TYPE_CHECKING:
    from penstock.bulk.bulk_connection import BulkConnection, Dialling

IDLE_LINKS_MAX: Final = 4


class LinkPool:
    """Idle links of one event loop."""

    def __init__(self, dialling: Dialling) -> None:
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
