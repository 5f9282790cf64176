"""The monitoring server: HTTP/1.1 over asyncio streams, parsed by h11.

It replies to GET and HEAD from `page_table` and keeps connections alive. It trusts no peer: heads,
bodies, connections and time are bounded, a slow or silent peer is disconnected, and internal errors
are logged here and reported as a bare 500. It never touches a client connection.
"""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import h11
from msgspec.structs import replace

from penstock.server.monitor.page_answers import NOT_ALLOWED, OUR_FAULT, PageAnswer, text_answer
from penstock.server.monitor.page_table import Pages
from penstock.server.monitor.sliced_pages import paced
from penstock.server.net.host_addresses import reachable
from penstock.server.net.listener import bind
from penstock.server.server_app import join_address
from penstock.server.server_log import log

if TYPE_CHECKING:
    import ssl

    from penstock.server.monitor.sliced_pages import PageRoom
    from penstock.server.server_state import ServerState

HEAD_BYTES_MAX: Final = 16_384
BODY_BYTES_MAX: Final = 16_384  # of a request; the body is not used
READ_BYTES: Final = 16_384
CONNECTIONS_MAX: Final = 256
IDLE_S_MAX: Final = 60.0  # between requests of one connection
REQUEST_S_MAX: Final = 10.0  # for a request to arrive completely, once it has begun
RESPONSE_S_MAX: Final = 10.0  # for the peer to accept a response
METHODS: Final = frozenset((b"GET", b"HEAD"))


class Monitor:
    """Serves the monitoring pages of one server on one port."""

    def __init__(self, service: ServerState) -> None:
        self._service = service
        self._pages = Pages(service)
        self._secure = service.options.https_port != 0
        self._server: asyncio.Server | None = None
        self._conversations: set[asyncio.Task[None]] = set()
        self._address = ("", 0)

    @property
    def url(self) -> str:
        """Return the URL of the monitor, with the bound port."""
        scheme, (host, port) = self.scheme_and_address
        return f"{scheme}://{join_address(reachable(host), port)}"

    @property
    def scheme_and_address(self) -> tuple[str, tuple[str, int]]:
        return "https" if self._secure else "http", self._address

    async def start(self) -> None:
        """Start listening; raise OSError or ValueError if that fails."""
        options = self._service.options
        host = options.http_host or options.host
        context, timeout_s = self._tls()
        try:
            listening = bind(host, options.https_port or options.http_port)
        except OSError as error:
            raise OSError(f"can't listen to the monitor port: {error}") from error
        self._address = listening.getsockname()[:2]
        self._server = await asyncio.start_server(
            self._connected, sock=listening, ssl=context, ssl_handshake_timeout=timeout_s
        )
        scheme = "https" if self._secure else "http"
        log.info("Starting %s monitor on %s", scheme, join_address(host, self._address[1]))

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is not None:
            self._server.close()
        for conversation in self._conversations:
            conversation.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)

    def _tls(self) -> tuple[ssl.SSLContext | None, float | None]:
        tls = self._service.options.tls
        if not self._secure or tls is None:
            return None, None
        from penstock.base.units import SECOND_NS
        from penstock.server.net.codecs.tls_context import build_context

        # Scrapers and browsers have no client certificate; the reference requires none here.
        open_to_all = replace(tls, verify=False, verify_and_map=False)
        return build_context(open_to_all), tls.timeout_ns / SECOND_NS

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversation = asyncio.current_task()
        if conversation is None or len(self._conversations) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._conversations.add(conversation)
        try:
            await Conversation(self._pages, self._service.page_room, reader, writer).run()
        except (OSError, TimeoutError, asyncio.CancelledError):
            # The peer disconnected, was too slow, or the server stops. In each case no peer waits
            # for a reply, and no caller awaits this task.
            pass
        finally:
            self._conversations.discard(conversation)
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()  # close() would wait for a peer that does not read
            else:
                writer.close()


class Conversation:
    """One connection: requests and their responses, in sequence."""

    def __init__(
        self,
        pages: Pages,
        room: PageRoom,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._pages = pages
        self._room = room
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        # A response counts as accepted when the socket has all of it.
        writer.transport.set_write_buffer_limits(0)

    async def run(self) -> None:
        while await self._exchange():
            self._http.start_next_cycle()

    async def _exchange(self) -> bool:
        """Serve one request; return whether another may follow."""
        try:
            request = await self._request()
        except h11.RemoteProtocolError as error:
            await self._refuse(error.error_status_hint)
            return False
        if request is None:
            return False
        await self._send(self._answer(request), with_body=request.method != b"HEAD")
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _request(self) -> h11.Request | None:
        """Return the next complete request; None if the peer has finished."""
        await self._await_first_byte()
        async with asyncio.timeout(REQUEST_S_MAX):
            request, body_bytes = None, 0
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    self._http.receive_data(await self._reader.read(READ_BYTES))
                elif isinstance(event, h11.Request):
                    request = event
                elif isinstance(event, h11.Data):
                    body_bytes += len(event.data)
                    if body_bytes > BODY_BYTES_MAX:
                        raise h11.RemoteProtocolError("body too large", 413)
                elif isinstance(event, h11.EndOfMessage):
                    return request
                else:
                    return None

    async def _await_first_byte(self) -> None:
        received, _ = self._http.trailing_data
        if not received:
            async with asyncio.timeout(IDLE_S_MAX):
                self._http.receive_data(await self._reader.read(READ_BYTES))

    def _answer(self, request: h11.Request) -> PageAnswer:
        if request.method not in METHODS:
            return NOT_ALLOWED
        path, _, query = request.target.decode("latin-1").partition("?")
        try:
            return self._pages.answer(path, query)
        except Exception:
            log.exception("monitoring request for %s failed", path)
            return OUR_FAULT

    async def _refuse(self, status: int) -> None:
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        text = f"{status} {HTTPStatus(status).phrase}"
        await self._send(text_answer(status, text, (("Connection", "close"),)))

    async def _send(self, answer: PageAnswer, *, with_body: bool = True) -> None:
        headers = [
            ("Content-Type", answer.content_type),
            ("Date", formatdate(time.time(), usegmt=True)),
            *answer.headers,
        ]
        if answer.rest is None:
            headers.append(("Content-Length", str(len(answer.body))))
        reason = HTTPStatus(answer.status).phrase
        response = h11.Response(status_code=answer.status, headers=headers, reason=reason)
        pieces = [self._http.send(response)]
        if with_body:
            pieces += self._encoded(answer.body)
        if with_body and answer.rest is not None:
            await self._write(pieces)
            pieces = []
            async with self._room:
                async for piece in paced(answer.rest):
                    await self._write(self._encoded(piece))
        pieces.append(self._http.send(h11.EndOfMessage()))
        await self._write(pieces)

    def _encoded(self, body: bytes) -> list[bytes]:
        """Encode the body for the wire; a body of unknown length is sent in chunks."""
        sent = self._http.send(h11.Data(data=body)) if body else None
        return [] if sent is None else [sent]

    async def _write(self, pieces: list[bytes]) -> None:
        """Write the pieces; raise TimeoutError if the peer does not accept them in time."""
        # Not writelines: in asyncio of Python 3.12.0-3.12.8 and 3.13.0-3.13.1 it never makes drain
        # wait (CVE-2024-12254), so a peer that does not read would fill the memory.
        self._writer.write(b"".join(pieces))
        async with asyncio.timeout(RESPONSE_S_MAX):
            await self._writer.drain()
