"""Peers for tests of the data plane: raw clients that read deliveries whole, over any transport.

A `Peer` speaks plain TCP, TLS or WebSocket and says nothing of its own accord but PONG. `fence`
sends PING and answers everything that came before the PONG, so nothing is ever waited for by
sleeping. All waits have a deadline. An embedded server lives in a thread of the test's process.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.server.config.options import TlsOptions, WebsocketOptions
from penstock.server.threaded_server import ThreadedServer
from support.patience import PATIENCE_SECONDS, pause_after

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

    from penstock.server.server_state import ServerState
    from support.tls import Certificates
    from support.transport_codecs import WebSocketClient

RECEIVE_BYTES = 1 << 18
QUIET = {"verbose": False, "pedantic": False}
TRANSPORTS = ("plain", "tls", "ws")


class PeerError(AssertionError):
    """The server did not do what it had to do, or not in time."""


class Delivery(NamedTuple):
    """A message as one subscriber got it."""

    subject: str
    sid: str
    reply: str
    header: bytes
    payload: bytes


Event = Delivery | str


def until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        if waited > seconds:
            raise PeerError(f"not within {seconds} s: {what}")
        time.sleep(pause_after(waited))


class Peer:
    """One connection: plain, tls, tls-first, ws or ws-deflate; `context` is a TLS client's side."""

    def __init__(
        self,
        port: int,
        *,
        transport: str = "plain",
        context: ssl.SSLContext | None = None,
        greeted: bool = True,
        receive_buffer: int = 0,
    ) -> None:
        self.socket: socket.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE_SECONDS)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._websocket: WebSocketClient | None = None
        try:
            self.info = self._greet(transport, context, greeted=greeted)
        except BaseException:
            self.socket.close()
            raise

    def _greet(
        self, transport: str, context: ssl.SSLContext | None, *, greeted: bool
    ) -> dict[str, Any]:
        """Reads INFO before or after the handshake, as the transport has it."""
        if transport in ("ws", "ws-deflate"):
            self._upgrade(compression=transport == "ws-deflate")
        if transport == "tls-first":
            self._secure(context)
        info: dict[str, Any] = json.loads(self._line()[5:]) if greeted else {}
        if transport == "tls":
            self._secure(context)
        return info

    def _secure(self, context: ssl.SSLContext | None) -> None:
        assert context is not None
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    def _upgrade(self, *, compression: bool) -> None:
        from support.transport_codecs import WebSocketClient

        self._websocket = WebSocketClient(compression=compression)
        self.socket.sendall(self._websocket.request())

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Vanish: the server sees a reset, not an orderly end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def leave(self) -> None:
        """Close in order, and return when the server has closed as well."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
        self.read_to_end()
        self.socket.close()

    # -- sending

    def send(self, data: bytes | str) -> None:
        raw = data.encode() if isinstance(data, str) else data
        if self._websocket is not None:
            raw = self._websocket.send(raw)
        self.socket.sendall(raw)

    def try_send(self, data: bytes | str) -> None:
        """Send to a server that may close before it has read all."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send(data)

    def connect(self, **options: object) -> Peer:
        self.send(f"CONNECT {json.dumps({**QUIET, **options})}\r\n")
        self.fence()
        return self

    # -- receiving

    def fence(self) -> list[Event]:
        """Everything that comes before the answer to a PING sent now."""
        self.send(b"PING\r\n")
        events = []
        while (event := self.event()) != "PONG":
            events.append(event)
        return events

    def deliveries(self) -> list[Delivery]:
        """The messages among what comes before the fence; nothing else may come."""
        events = self.fence()
        strangers = [event for event in events if not isinstance(event, Delivery)]
        if strangers:
            raise PeerError(f"unexpected: {strangers[:5]}")
        return [event for event in events if isinstance(event, Delivery)]

    def event(self) -> Event:
        """The next message or line; INFO is left out and PING is answered."""
        while True:
            line = self._line()
            if line == "PING":
                self.send(b"PONG\r\n")
            elif line.startswith(("MSG ", "HMSG ")):
                return self._delivery(line)
            elif not line.startswith("INFO "):
                return line

    def _delivery(self, line: str) -> Delivery:
        verb, *words = line.split(" ")
        sizes = 2 if verb == "HMSG" else 1
        if not sizes + 2 <= len(words) <= sizes + 3:
            raise PeerError(f"not a delivery: {line!r}")
        header, size = (0, *map(int, words[-sizes:]))[-2:]
        body = self._exactly(size + 2)
        if body[size:] != b"\r\n":
            raise PeerError(f"{line!r} ends in {body[size:]!r}")
        reply = words[2] if len(words) == sizes + 3 else ""
        return Delivery(words[0], words[1], reply, body[:header], body[header:size])

    def read_to_end(self) -> bytes:
        """All that comes until the server closes."""
        with contextlib.suppress(ConnectionResetError):
            while self._fill():
                pass
        return bytes(self._received)

    def _line(self) -> str:
        start = 0
        while (end := self._received.find(b"\r\n", start)) < 0:
            start = max(0, len(self._received) - 1)
            if not self._fill():
                raise PeerError(f"closed after {bytes(self._received[:200])!r}")
        line = self._received[:end].decode("utf-8", "surrogateescape")
        del self._received[: end + 2]
        return line

    def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            if not self._fill():
                raise PeerError(f"closed before {size} bytes")
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def _fill(self) -> bool:
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except TimeoutError:
            raise PeerError(f"silent after {bytes(self._received[:200])!r}") from None
        if self._websocket is not None:
            for event in self._websocket.receive(data):
                self._received += getattr(event, "data", b"")  # the upgrade's answer has none
        else:
            self._received += data
        return bool(data)


# ----------------------------------------------------------------------- embedded servers


class Embedded:
    """A server in a thread, and what its clients need to reach it over any transport."""

    def __init__(self, certificates: Certificates | None = None, **options: object) -> None:
        self._context = None
        options.setdefault("websocket", WebsocketOptions(host="127.0.0.1", port=-1, no_tls=True))
        if certificates is not None:
            pair = certificates.server
            self._context = certificates.context()
            options["tls"] = TlsOptions(cert_file=str(pair.cert), key_file=str(pair.key))
        self._server = ThreadedServer(**options)

    def __enter__(self) -> Embedded:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def stop(self) -> None:
        self._server.stop()

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def service(self) -> ServerState:
        """For counters, which any thread may read."""
        return self._server._server.service

    def peer(self, transport: str = "plain", **more: int | bool) -> Peer:
        port = self.port
        if transport in ("ws", "ws-deflate"):
            assert self._server.websocket_url is not None
            port = int(self._server.websocket_url.rpartition(":")[2])
        return Peer(port, transport=transport, context=self._context, **more)  # type: ignore[arg-type]

    def wait_for_connections(self, count: int) -> None:
        until(lambda: len(self.service.io_loop) == count, f"{count} connections")


@contextlib.contextmanager
def several(count: int, make: Callable[[], Peer]) -> Iterator[list[Peer]]:
    """Some peers, closed at the end whatever happens."""
    peers: list[Peer] = []
    try:
        peers.extend(make() for _ in range(count))
        yield peers
    finally:
        for peer in peers:
            peer.close()
