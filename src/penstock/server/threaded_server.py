"""ThreadedServer: the server in its own thread, for programs without an event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Self

from penstock.server.server_app import Server

if TYPE_CHECKING:
    from types import TracebackType


class ThreadedServer:
    """A blocking server: `with penstock.ThreadedServer() as server: ...`.

    Takes the arguments of `Server`. The thread is a daemon, so a program that does not stop it
    can still exit.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        self._server = Server(*args, **keywords)
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._run, name="penstock", daemon=True)

    def start(self) -> None:
        """Return when clients can connect; raise the error that prevented the start."""
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """Return when everything is closed."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result()
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def websocket_url(self) -> str | None:
        return self._server.websocket_url

    @property
    def monitor_url(self) -> str | None:
        return self._server.monitor_url

    def _run(self) -> None:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            await self._server.start()
        except BaseException as error:
            self._failure = error
            self._ready.set()
            return
        self._ready.set()
        await self._server.wait_stopped()
