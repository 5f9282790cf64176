"""Listener: accepts sockets, attaches links with the right transport, and sends INFO.

The greeting depends on the transport. Plain TCP and TLS send INFO first, unencrypted. With
`handshake_first`, and on WebSocket, the handshake comes first and INFO goes through the codec.
Where both TLS and plain clients may connect, or where TLS-first has a fallback, the first bytes
decide: the listener peeks at them and leaves them in the socket.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.base.units import SECOND_NS
from penstock.server.net.client_session import ClientSession
from penstock.server.net.host_addresses import UNSPECIFIED, plain_address
from penstock.server.server_log import log

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.server.auth.login_values import ConnectionType
    from penstock.server.config.options import Options
    from penstock.server.net.codecs.contract import TransportCodec
    from penstock.server.server_state import ServerState

ACCEPTS_PER_TURN: Final = 256
BACKLOG: Final = 4096
PEEK_BYTES: Final = 3
LOOPBACK_SEND_BYTES: Final = 512 * 1024
ACCEPT_PAUSE_S: Final = 0.25
NO_IPV6: Final = frozenset((errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT))
OUT_OF_DESCRIPTORS: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


@dataclass(frozen=True, slots=True)
class Transport:
    """The transport of one listener's connections. `make_codec` None: plain TCP."""

    kind: ConnectionType = "STANDARD"
    make_codec: Callable[[], TransportCodec] | None = None
    info_first: bool = True
    plain_allowed: bool = False
    fallback_s: float = 0.0  # TLS first: send INFO unencrypted after this wait; 0: never
    handshake_timeout_s: float = 2.0
    login_timeout_s: float = 2.0


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; port -1 means any free port. Raises OSError.

    A host that means every address (`0.0.0.0`, `::`) accepts IPv4 and IPv6, if IPv6 is available.
    """
    port = max(port, 0)
    if host in UNSPECIFIED:
        try:
            return _listening(socket.AF_INET6, ("::", port), dual=True)
        except OSError as error:
            if error.errno not in NO_IPV6:
                raise
        return _listening(socket.AF_INET, ("0.0.0.0", port))
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return _listening(family, address)


def _listening(family: int, address: tuple[Any, ...], *, dual: bool = False) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if dual:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


class Listener:
    """Accepts connections on one socket while it is open."""

    def __init__(
        self, service: ServerState, listening: socket.socket, transport: Transport
    ) -> None:
        self.service = service
        self.transport = transport
        self._socket = listening
        self._open = False
        # Connections that have sent nothing yet; they close with the listener.
        self._waiting: set[socket.socket] = set()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._socket.getsockname()[:2]
        return host, port

    def start(self) -> None:
        self._open = True
        self.service.loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """Stop accepting; attached connections stay open."""
        if self._open:
            self.service.loop.remove_reader(self._socket.fileno())
        self._open = False
        self._socket.close()
        for connection in self._waiting:
            self.service.loop.remove_reader(connection.fileno())
            connection.close()
        self.service.undecided -= len(self._waiting)
        self._waiting.clear()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                connection, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                self._accept_failed(error)
                break
            host = plain_address(address[0])
            _tune(connection, host)
            self._greet(connection, (host, address[1]))
        self.service.io_loop.flush_and_close()

    def _accept_failed(self, error: OSError) -> None:
        log.error("accept failed: %s", error)
        if error.errno in OUT_OF_DESCRIPTORS:
            # Level-triggered: without a pause the loop would spin on the same error.
            self.service.loop.remove_reader(self._socket.fileno())
            self.service.loop.call_later(ACCEPT_PAUSE_S, self._resume)

    def _resume(self) -> None:
        if self._open:
            self.service.loop.add_reader(self._socket.fileno(), self._accept)

    # -- greeting

    def _greet(self, connection: socket.socket, address: tuple[str, int]) -> None:
        service, transport = self.service, self.transport
        session = ClientSession(
            service,
            service.next_cid(),
            address,
            kind=transport.kind,
            nonce=service.make_nonce(transport.kind),
        )
        if service.is_full:
            self._turn_away(session, connection)
        elif transport.plain_allowed:
            self._say_info(session, connection)
            self._peek(session, connection, wait_s=transport.login_timeout_s)
        elif transport.fallback_s:
            self._peek(session, connection, wait_s=transport.fallback_s)
        else:
            self._attach(session, connection, secure=True, info_sent=False)

    def _turn_away(self, session: ClientSession, connection: socket.socket) -> None:
        """Reject a connection over the limit; send -ERR if the transport starts in plain text."""
        log.error("%s - maximum connections exceeded", session)
        if self.transport.info_first:
            info = self.service.greeting_for(session).line()
            _send_now(connection, info + b"-ERR 'maximum connections exceeded'\r\n")
        connection.close()

    def _say_info(self, session: ClientSession, connection: socket.socket) -> None:
        _send_now(connection, self.service.greeting_for(session).line())

    def _peek(self, session: ClientSession, connection: socket.socket, *, wait_s: float) -> None:
        """Wait for the first bytes, which distinguish TLS from plain text."""
        loop = self.service.loop
        self._waiting.add(connection)
        self.service.undecided += 1

        def stop_waiting() -> None:
            self._waiting.discard(connection)
            self.service.undecided -= 1
            loop.remove_reader(connection.fileno())
            timer.cancel()

        def readable() -> None:
            stop_waiting()
            self._first_bytes(session, connection)

        def overdue() -> None:
            if connection in self._waiting:  # else the listener has closed it
                stop_waiting()
                self._first_bytes_overdue(session, connection)

        timer = loop.call_later(wait_s, overdue)
        loop.add_reader(connection.fileno(), readable)

    def _first_bytes(self, session: ClientSession, connection: socket.socket) -> None:
        from penstock.server.net.codecs.tls_codec import looks_like_tls

        try:
            secure = looks_like_tls(connection.recv(PEEK_BYTES, socket.MSG_PEEK))
        except OSError:
            connection.close()
            return
        if self.transport.plain_allowed:
            self._attach(session, connection, secure=secure, info_sent=True)
        elif secure:
            self._attach(session, connection, secure=True, info_sent=False)
        else:
            self._attach(session, connection, secure=True, info_sent=True)
        self.service.io_loop.flush_and_close()

    def _first_bytes_overdue(self, session: ClientSession, connection: socket.socket) -> None:
        """Attach after the wait: as plain, or as TLS with INFO first for clients that expect it."""
        if self.transport.plain_allowed:
            self._attach(session, connection, secure=False, info_sent=True)
        else:
            self._say_info(session, connection)
            self._attach(session, connection, secure=True, info_sent=True)
        self.service.io_loop.flush_and_close()

    def _attach(
        self, session: ClientSession, connection: socket.socket, *, secure: bool, info_sent: bool
    ) -> None:
        service, transport = self.service, self.transport
        codec = None
        if secure and transport.make_codec is not None:
            codec = transport.make_codec()
        link = service.io_loop.attach(
            connection.detach(), session.cid, session, session.account.interest, codec=codec
        )
        service.session_opened(session)
        session.open(
            link,
            login_needed=service.authenticator(session.kind).auth_required,
            login_timeout_s=transport.login_timeout_s,
        )
        if codec is not None:
            session.await_handshake(transport.handshake_timeout_s)
        if not info_sent:
            info = service.greeting_for(session).line()
            if codec is not None and transport.info_first:
                service.io_loop.send_raw(link, info)
            else:
                link.send(info)
        session.debug("client connection created")


def _tune(connection: socket.socket, peer: str) -> None:
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if peer.startswith("127.") or peer == "::1":
        # For a local reader a long kernel queue has no benefit and falls out of the cache; the
        # rest waits in the outbox. Remote peers keep the kernel's own tuning.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LOOPBACK_SEND_BYTES)


def _send_now(connection: socket.socket, data: bytes) -> None:
    """Send a few bytes on a new socket, whose send buffer is empty."""
    try:
        connection.send(data)
    except OSError as error:
        log.debug("greeting not sent: %s", error)


def plain_transport(options: Options) -> Transport:
    """Return the client listener's transport; raises ValueError for an unusable certificate."""
    login_timeout_s = options.authorization.timeout_ns / SECOND_NS
    if options.tls is None:
        return Transport(login_timeout_s=login_timeout_s)
    from penstock.server.net.codecs.tls_codec import build_acceptor

    tls = options.tls
    first = tls.handshake_first
    return Transport(
        make_codec=build_acceptor(tls).codec,
        info_first=not first,
        plain_allowed=options.allow_non_tls and not first,
        fallback_s=tls.handshake_first_fallback_ns / SECOND_NS if first else 0.0,
        handshake_timeout_s=tls.timeout_ns / SECOND_NS,
        login_timeout_s=login_timeout_s,
    )


def websocket_transport(server_options: Options) -> Transport:
    """Return the WebSocket listener's transport; raises ValueError for unusable options."""
    from penstock.server.net.codecs import codec_stack, tls_codec, websocket

    options = server_options.websocket
    assert options is not None
    acceptor = websocket.build_acceptor(options, secure=options.is_secure)
    make_codec: Callable[[], TransportCodec] = acceptor.codec
    if options.tls is not None:
        make_codec = codec_stack.SecureWebSocketAcceptor(
            tls_codec.build_acceptor(options.tls), acceptor
        ).codec
    timeout_ns = options.auth_timeout_ns or server_options.authorization.timeout_ns
    return Transport(
        kind="WEBSOCKET",
        make_codec=make_codec,
        info_first=False,
        handshake_timeout_s=(options.handshake_timeout_ns or 2 * SECOND_NS) / SECOND_NS,
        login_timeout_s=timeout_ns / SECOND_NS,
    )
