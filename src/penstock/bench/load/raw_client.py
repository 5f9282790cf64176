"""One raw NATS client connection: handshake in Python, everything after it in compiled loops.

The scanner reads the connection from the first byte after INFO, so no byte is read twice or lost
between the handshake and the measured loop. After `open_client` and `flush` the stream is between
two lines.
"""

import json
import socket
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote, urlsplit

from penstock.bench.bench_error import BenchError
from penstock.bench.load import load_generator
from penstock.bench.load.message_scan import MessageScanner

DEFAULT_PORT = 4222
HANDSHAKE_TIMEOUT_S = 10.0
INFO_BYTES_MAX = 32 * 1024
READ_BYTES = 64 * 1024
NANOS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ServerEndpoint:
    """The address of a server, and the credentials of its URL."""

    host: str
    port: int
    user: str | None = None
    password: str | None = None

    @classmethod
    def parse(cls, url: str) -> Self:
        split = urlsplit(url if "//" in url else f"nats://{url}")
        if split.scheme != "nats":
            raise BenchError(f"{url}: only nats:// URLs can be measured")
        try:
            port = split.port or DEFAULT_PORT
        except ValueError as error:
            raise BenchError(f"{url}: {error}") from None
        if not split.hostname:
            raise BenchError(f"{url}: no host in the URL")
        user = unquote(split.username) if split.username else None
        password = unquote(split.password) if split.password else None
        return cls(split.hostname, port, user, password)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def connect_line(self) -> bytes:
        options: dict[str, object] = {
            "verbose": False,
            "pedantic": False,
            "lang": "penstock-bench",
            "version": "1",
            "protocol": 1,
            "headers": True,
            "no_responders": True,
        }
        if self.user is not None and self.password is None:
            options["auth_token"] = self.user
        elif self.user is not None:
            options["user"] = self.user
            options["pass"] = self.password
        return b"CONNECT %b\r\n" % json.dumps(options).encode()


class Client:
    """A connected socket with its scanner; a context manager that closes it."""

    def __init__(self, sock: socket.socket, info: dict[str, object]) -> None:
        self.sock = sock
        self.info = info
        self.scanner = MessageScanner()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    @property
    def fd(self) -> int:
        return self.sock.fileno()

    def send(self, data: bytes, deadline_ns: int) -> None:
        """Send all data and wait until the server has processed it."""
        load_generator.publish(self.fd, self.scanner, data, len(data), deadline_ns)
        self._finish_line()

    def subscribe(self, subject: str, sid: int, deadline_ns: int, queue: str = "") -> None:
        self.send(f"SUB {subject} {queue} {sid}\r\n".encode(), deadline_ns)

    def flush(self, deadline_ns: int) -> None:
        load_generator.flush(self.fd, self.scanner, deadline_ns)
        self._finish_line()

    def _finish_line(self) -> None:
        # Servers send a second INFO after the first PONG; read on until a line ends.
        self.sock.settimeout(HANDSHAKE_TIMEOUT_S)
        while not self.scanner.between_lines:
            data = self.sock.recv(READ_BYTES)
            if not data or not self.scanner.feed(data):
                raise BenchError(self.scanner.error or "connection lost in the midst of a line")


def deadline_after(seconds: float) -> int:
    return load_generator.monotonic_ns() + int(seconds * NANOS)


def open_client(endpoint: ServerEndpoint) -> Client:
    """Connect, send CONNECT, and wait until the server has accepted it."""
    try:
        sock = socket.create_connection((endpoint.host, endpoint.port), HANDSHAKE_TIMEOUT_S)
    except OSError as error:
        raise BenchError(f"cannot connect to {endpoint}: {error.strerror or error}") from None
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = Client(sock, _read_info(sock, endpoint))
        client.send(endpoint.connect_line(), deadline_after(HANDSHAKE_TIMEOUT_S))
    except BaseException:
        sock.close()
        raise
    return client


def _read_info(sock: socket.socket, endpoint: ServerEndpoint) -> dict[str, object]:
    line = b""
    try:
        while not line.endswith(b"\n") and len(line) < INFO_BYTES_MAX:
            part = sock.recv(INFO_BYTES_MAX)
            if not part:
                raise BenchError(f"{endpoint}: connection closed before INFO")
            line += part
    except OSError as error:
        raise BenchError(f"{endpoint}: no INFO: {error.strerror or error}") from None
    verb, _, body = line.partition(b" ")
    try:
        info = json.loads(body) if verb == b"INFO" else None
    except ValueError:
        info = None
    if not isinstance(info, dict):
        raise BenchError(f"{endpoint}: not a NATS server (no INFO line)")
    if info.get("tls_required"):
        raise BenchError(f"{endpoint}: requires TLS, which the load generator does not speak")
    return info
