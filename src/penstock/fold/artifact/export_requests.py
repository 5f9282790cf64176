"""Exports of a fold that is being watched: asked for by anyone, served by whoever owns the store.

A request waits its turn in the loop, which flushes first, so that an artifact is never older than
what was received before it was asked for. A failure is the requester's and nobody else's. What is
asked for after the queue was closed is refused at once; nobody waits for an answer that will never
come.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.fold.errors import FoldStoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.fold.artifact.manifest import Manifest

WAITING_MAX = 64
"""Requests that wait; more are refused."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """One artifact to be made."""

    dest: Path
    form: str | None
    answer: asyncio.Future[Manifest]


class Exports:
    """The queue between those who want artifacts and the loop; of one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[ExportRequest] = deque()
        self._bell = asyncio.Event()
        self._closed = False

    async def export_to(self, dest: Path | str, *, form: str | None = None) -> Manifest:
        """Have an artifact made at `dest`; see `SnapshotStore.export_to`."""
        if self._closed:
            raise FoldStoreError("the fold is closed")
        if len(self._waiting) >= WAITING_MAX:
            raise FoldStoreError(f"{WAITING_MAX} exports wait already")
        answer: asyncio.Future[Manifest] = asyncio.get_running_loop().create_future()
        self._waiting.append(ExportRequest(Path(dest), form, answer))
        self._bell.set()
        return await answer

    async def asked(self) -> None:
        """Wait until there is something to serve."""
        await self._bell.wait()

    @property
    def is_asked(self) -> bool:
        return bool(self._waiting)

    async def serve(self, make: Callable[[Path, str | None], Awaitable[Manifest]]) -> None:
        """Make what was asked for; `make` has flushed what was received."""
        while self._waiting:
            request = self._waiting.popleft()
            if request.answer.done():
                continue
            try:
                manifest = await make(request.dest, request.form)
            except asyncio.CancelledError:
                request.answer.cancel()
                raise
            except Exception as error:
                if not request.answer.done():
                    request.answer.set_exception(error)
            else:
                if not request.answer.done():
                    request.answer.set_result(manifest)
        self._bell.clear()

    def close(self) -> None:
        """Refuse what waits and what comes."""
        self._closed = True
        for request in self._waiting:
            if not request.answer.done():
                request.answer.set_exception(FoldStoreError("the fold is closed"))
        self._waiting.clear()
