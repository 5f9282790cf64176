"""A TCP proxy that spoils connections on purpose: cuts them short, or swallows a delivery.

`spoil` is asked for every chunk a server sends, with the number of its connection, and gives what
is to be passed on; None cuts the connection. `spoil_sent` is asked alike for what a client sends.
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

    def __init__(
        self,
        port: int,
        spoil: Callable[[int, bytes], bytes | None],
        spoil_sent: Callable[[int, bytes], bytes | None] = lambda number, data: data,
        *,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._chunk_bytes = chunk_bytes
        self._port = port
        self._spoil = spoil
        self._spoil_sent = spoil_sent
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._server.close()
        await asyncio.sleep(0)  # those that were accepted a moment ago begin, and see it
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        await asyncio.sleep(0)  # sockets of what was aborted are closed in the loop's next turn

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self._closing:
                raise ConnectionAbortedError
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
            self._tasks.discard(task)
            return
        up = asyncio.ensure_future(self._pass(number, reader, far_writer))
        try:
            while data := await far_reader.read(self._chunk_bytes):
                kept = self._spoil(number, data)
                if kept is None:
                    break
                writer.write(kept)
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for one in (writer, far_writer):  # before anything that may be cancelled
                one.transport.abort()
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)
            self._tasks.discard(task)

    async def _pass(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(self._chunk_bytes):
                kept = self._spoil_sent(number, data)
                if kept is None:
                    writer.transport.abort()
                    return
                writer.write(kept)
                await writer.drain()
