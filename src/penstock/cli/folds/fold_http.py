"""`/healthz` and `/metrics` of a fold that `penstock fold run` follows: a small HTTP server.

It serves GET and HEAD, one request per connection. Requests are bounded in length, time and number.
A scrape reads the fold in a thread, because some stores scan to count.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from penstock.base.units import SECOND_NS
from penstock.cli.cli_errors import Failure
from penstock.fold.fold_status import FoldState

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import AsyncIterator

    from prometheus_client import CollectorRegistry

    from penstock.fold import Fold
    from penstock.fold.fold_metrics import FoldMetrics

HEAD_BYTES_MAX: Final = 8_192
ANSWER_SECONDS: Final = 10.0
"""Time for a client to send its request and accept the response."""
CONNECTIONS_MAX: Final = 64
REASONS: Final = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Unavailable"}


class FoldPages:
    """The pages of one fold."""

    def __init__(self, fold: Fold, registry: CollectorRegistry, options: Namespace) -> None:
        self._fold = fold
        self._registry = registry
        self._max_lag: int | None = options.max_lag
        self._max_age = None if options.max_age is None else options.max_age / SECOND_NS
        self._open = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        if self._open >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._open += 1
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._serve(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()
        finally:
            self._open -= 1
            with suppress(OSError):
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = head.split(b"\r\n", 1)[0].partition(b" ")
        path = rest.split(b" ", 1)[0].split(b"?", 1)[0].decode("latin-1")
        code, kind, body = 405, "text/plain", b""
        if method in (b"GET", b"HEAD"):
            code, kind, body = await self.page(path)
        lines = (
            f"HTTP/1.1 {code} {REASONS[code]}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
        if method != b"HEAD":
            writer.write(body)
        await writer.drain()

    async def page(self, path: str) -> tuple[int, str, bytes]:
        """Return status, content type and body of a path."""
        if path == "/healthz":
            document = self._health()
            code = 200 if document["status"] == "ok" else 503
            return code, "application/json", json.dumps(document).encode()
        if path == "/metrics":
            from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

            return (
                200,
                CONTENT_TYPE_LATEST,
                await asyncio.to_thread(generate_latest, self._registry),
            )
        return 404, "text/plain", b""

    def _health(self) -> dict[str, Any]:
        fold = self._fold
        healthy = fold.is_healthy(max_lag=self._max_lag, max_age=self._max_age)
        return {
            "status": "ok" if healthy else "unavailable",
            "bucket": fold.name,
            "state": fold.state.value,
            "revision": fold.cursor.rank,
            "lag": fold.lag,
            "contact_age": fold.contact_age,
            "error": fold.error or ("" if healthy else self._reason()),
        }

    def _reason(self) -> str:
        """Return why a fold without an error is unhealthy."""
        fold, age = self._fold, self._fold.contact_age
        if fold.state is not FoldState.LIVE:
            return f"the fold is {fold.state.value}"
        if self._max_lag is not None and fold.lag > self._max_lag:
            return f"{fold.lag} revisions behind"
        return "no message from the server" + ("" if age is None else f" for {age:.1f} s")


class FoldMonitor:
    """The metrics of a fold that is about to be opened, and the pages once it is."""

    def __init__(self, options: Namespace) -> None:
        from prometheus_client import CollectorRegistry

        from penstock.fold.fold_metrics import FoldMetrics

        self._options = options
        self._registry = CollectorRegistry()
        self._metrics: FoldMetrics = FoldMetrics(self._registry)
        self.observer = self._metrics.observer(options.bucket)

    @asynccontextmanager
    async def serving(self, fold: Fold) -> AsyncIterator[tuple[str, int]]:
        """Serve while the body runs; yield the address."""
        self._metrics.watch(self._options.bucket, fold)
        pages = FoldPages(fold, self._registry, self._options)
        host, port = self._options.http
        try:
            server = await asyncio.start_server(pages.answer, host, port, limit=HEAD_BYTES_MAX)
        except OSError as error:
            raise Failure(f"cannot listen on {host}:{port}: {error.strerror}") from error
        async with server:
            yield server.sockets[0].getsockname()[:2]


def address(text: str) -> tuple[str, int]:
    """Parse `HOST:PORT`, or a port on the loopback address."""
    host, _, port = text.rpartition(":")
    number = int(port)
    if not 0 <= number <= 65_535:
        raise ValueError(f"{number} is not a port")
    return host.strip("[]") or "127.0.0.1", number
