"""A TCP proxy that spoils connections on purpose: cuts them short, or swallows a delivery.

`spoil` is asked for every chunk a server sends, with the number of its connection, and gives what
is to be passed on; None cuts the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK_BYTES = 4096


class Proxy:
    """Listens on loopback while its context lasts."""

    def __init__(self, port: int, spoil: Callable[[int, bytes], bytes | None]) -> None:
        self._port = port
        self._spoil = spoil
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        up = asyncio.ensure_future(self._pass(reader, far_writer))
        try:
            while data := await far_reader.read(CHUNK_BYTES):
                kept = self._spoil(number, data)
                if kept is None:
                    break
                writer.write(kept)
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)
            for one in (writer, far_writer):
                one.transport.abort()
            self._tasks.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                writer.write(data)
                await writer.drain()
