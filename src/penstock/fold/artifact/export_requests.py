"""The queue of export requests for a running fold; the watch loop, which owns the store, serves it.

The loop flushes before it serves a request, so an artifact contains everything received before the
request. An error is raised to the requester only and does not end the loop. After `close`, waiting
and new requests fail at once, so that no caller waits forever.
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
"""Maximum number of waiting requests; further ones are rejected."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """A request for one artifact."""

    dest: Path
    form: str | None
    answer: asyncio.Future[Manifest]


class Exports:
    """The queue between requesters and the watch loop; use from one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[ExportRequest] = deque()
        self._bell = asyncio.Event()
        self._closed = False

    async def export_to(self, dest: Path | str, *, form: str | None = None) -> Manifest:
        """Request an artifact at `dest` and wait for it; see `SnapshotStore.export_to`."""
        if self._closed:
            raise FoldStoreError("the fold is closed")
        if len(self._waiting) >= WAITING_MAX:
            raise FoldStoreError(f"{WAITING_MAX} exports wait already")
        answer: asyncio.Future[Manifest] = asyncio.get_running_loop().create_future()
        self._waiting.append(ExportRequest(Path(dest), form, answer))
        self._bell.set()
        return await answer

    async def asked(self) -> None:
        """Wait until there is a request."""
        await self._bell.wait()

    @property
    def is_asked(self) -> bool:
        return bool(self._waiting)

    async def serve(self, make: Callable[[Path, str | None], Awaitable[Manifest]]) -> None:
        """Serve all waiting requests with `make`, which must include all received updates."""
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
        """Fail waiting requests and reject new ones."""
        self._closed = True
        for request in self._waiting:
            if not request.answer.done():
                request.answer.set_exception(FoldStoreError("the fold is closed"))
        self._waiting.clear()
