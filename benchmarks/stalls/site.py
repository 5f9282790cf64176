"""A server under attack: starts it, and opens raw connections to it.

There are two accounts: the attacker's has JetStream, the prober's is not involved. A `Peer` sends
and receives at the same time, so neither side ever waits for the other to read.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock.bench.bench_error import BenchError
from penstock.bench.process_stats import rss_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.bench.server_process import ServerCommand

Json = dict[str, Any]

START_S = 15.0
REPLY_S = 30.0
"""How long an attack may wait for its replies."""
READ_BYTES = 1 << 20
SEND_BYTES = 1 << 18
TAIL_BYTES = 32
"""Number of received bytes kept, so that a marker split across reads is still found."""
CONFIG = """
max_payload: 8MB
max_control_line: 64KB
http: "127.0.0.1:-1"
websocket {{ listen: "127.0.0.1:-1", no_tls: true, compression: true }}
jetstream {{ store_dir: {store} }}
accounts {{
  BUSY {{ jetstream: enabled, users: [ {{ user: busy, password: busy }} ] }}
  QUIET {{ users: [ {{ user: quiet, password: quiet }} ] }}
}}
"""


class Peer:
    """One connection of the account BUSY."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.inbox = f"_S.{secrets.token_hex(4)}"
        self._marker = f"MSG {self.inbox}.".encode()
        self._tail = b""
        self.replies = 0
        self.pongs = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.sock.close()

    def send(self, data: bytes, *, until_sent: float = REPLY_S) -> None:
        """Send everything, counting what arrives meanwhile."""
        view, deadline = memoryview(data), time.monotonic() + until_sent
        while view:
            events = self._poll(select.POLLIN | select.POLLOUT, 1.0)
            if events & ~select.POLLOUT:
                self._receive()
            if events & select.POLLOUT:
                view = view[self.sock.send(view[:SEND_BYTES]) :]
            if time.monotonic() > deadline:
                raise BenchError(f"the server took no more for {until_sent:.0f} s")

    def _poll(self, events: int, seconds: float) -> int:
        """Wait for the socket; `poll`, because `select` takes no descriptor above 1,023."""
        poller = select.poll()
        poller.register(self.sock, events)
        found = poller.poll(1000 * seconds)
        return found[0][1] if found else 0

    def _receive(self) -> bytes:
        data = self.sock.recv(READ_BYTES)
        if not data:
            raise BenchError("the server closed the connection: " + repr(self._tail))
        joined = self._tail + data
        # A marker inside the old tail was counted before.
        self.replies += joined.count(self._marker) - self._tail.count(self._marker)
        self.pongs += joined.count(b"PONG\r\n") - self._tail.count(b"PONG\r\n")
        self._tail = joined[-TAIL_BYTES:]
        return data

    def wait_replies(self, count: int, seconds: float = REPLY_S) -> bool:
        """Read until `count` replies arrived in all; False if that took too long."""
        return self._wait(lambda: self.replies >= count, seconds)

    def sync(self, seconds: float = REPLY_S) -> bool:
        """Return when the server has read everything that was sent so far."""
        wanted = self.pongs + 1
        self.send(b"PING\r\n")
        return self._wait(lambda: self.pongs >= wanted, seconds)

    def _wait(self, is_done: Any, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not is_done():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if self._poll(select.POLLIN, min(left, 1.0)):
                self._receive()
        return True

    def ask(self, subject: str, body: Json | None = None, seconds: float = REPLY_S) -> Json:
        """Send one request and return the reply, which may be a refusal."""
        reply = f"{self.inbox}.ask"
        marker = f"MSG {reply} ".encode()
        self.send(publish(subject, encode(body), reply))
        received, deadline = b"", time.monotonic() + seconds
        while True:
            at = received.find(marker)
            if at >= 0 and b"\r\n" in received[at:]:
                line, rest = received[at:].split(b"\r\n", 1)
                size = int(line.rsplit(b" ", 1)[1])
                if len(rest) >= size:
                    return dict(json.loads(rest[:size] or b"{}"))
            if time.monotonic() > deadline:
                raise BenchError(f"{subject}: no answer in {seconds:.0f} s")
            if self._poll(select.POLLIN, 1.0):
                received += self._receive()

    def must(self, subject: str, body: Json | None = None) -> Json:
        """Send a request that prepares an attack: a refusal ends the run."""
        answer = self.ask(subject, body)
        if "error" in answer:
            raise BenchError(f"{subject}: {answer['error']}")
        return answer


class Site:
    """One running server and everything that connects to it."""

    def __init__(self, pid: int, ports: Json, folder: Path) -> None:
        self.pid = pid
        self.folder = folder
        self._ports = ports

    @property
    def address(self) -> tuple[str, int]:
        return _address(self._ports["nats"][0])

    @property
    def websocket(self) -> tuple[str, int]:
        return _address(self._ports["websocket"][0])

    def connect(self, user: str = "busy") -> Peer:
        sock = socket.create_connection(self.address, timeout=REPLY_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(True)
        login(sock, user)
        peer = Peer(sock)
        peer.send(f"SUB {peer.inbox}.> 1\r\n".encode())
        peer.sync()
        return peer

    def page(self, path: str) -> int:
        """Fetch a monitoring page; return its size."""
        url = str(self._ports["monitoring"][0]) + path
        with urllib.request.urlopen(url, timeout=REPLY_S) as answer:
            return len(answer.read())

    def facts(self) -> Json:
        """Return the content of /varz."""
        url = str(self._ports["monitoring"][0]) + "/varz"
        with urllib.request.urlopen(url, timeout=REPLY_S) as answer:
            return dict(json.loads(answer.read()))

    def reload(self, old: str, new: str) -> None:
        """Change the configuration file and have the server read it again."""
        config = self.folder / "server.conf"
        config.write_text(config.read_text().replace(old, new))
        os.kill(self.pid, signal.SIGHUP)

    @property
    def memory(self) -> int:
        return rss_bytes(self.pid)


def login(sock: socket.socket, user: str) -> None:
    """Do the handshake on a fresh connection."""
    line = json.dumps(
        {"verbose": False, "headers": True, "no_responders": True, "user": user, "pass": user}
    )
    sock.sendall(f"CONNECT {line}\r\nPING\r\n".encode())
    received = b""
    while b"PONG\r\n" not in received:
        more = sock.recv(READ_BYTES)
        if not more or b"-ERR" in received:
            raise BenchError(f"login failed: {received!r}")
        received += more


def encode(body: Json | None) -> bytes:
    return b"" if body is None else json.dumps(body, separators=(",", ":")).encode()


def publish(subject: str, payload: bytes = b"", reply: str = "") -> bytes:
    head = f"PUB {subject} {reply} " if reply else f"PUB {subject} "
    return b"%b%d\r\n%b\r\n" % (head.encode(), len(payload), payload)


def requests(peer: Peer, subject: str, bodies: Iterable[Json | None]) -> bytes:
    """Pipelined requests, each with a reply subject of its own."""
    return b"".join(
        publish(subject, encode(body), f"{peer.inbox}.{i}") for i, body in enumerate(bodies)
    )


def _address(url: str) -> tuple[str, int]:
    host, port = url.split("//")[1].rsplit(":", 1)
    return host, int(port)


@contextlib.contextmanager
def start(command: ServerCommand) -> Iterator[Site]:
    """A fresh server with an empty store; killed and removed at the end."""
    with tempfile.TemporaryDirectory(prefix="penstock-stalls-") as name:
        folder = Path(name)
        config = folder / "server.conf"
        config.write_text(CONFIG.format(store=json.dumps(str(folder / "store"))))
        flags = ["-c", str(config), "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", name]
        with (folder / "log").open("wb") as log:
            child = subprocess.Popen(
                [*command.argv, *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            yield Site(child.pid, _ports(child, folder), folder)
        finally:
            child.kill()
            child.wait()


def _ports(child: subprocess.Popen[bytes], folder: Path) -> Json:
    path, deadline = folder / f"nats-server_{child.pid}.ports", time.monotonic() + START_S
    while time.monotonic() < deadline and child.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            return dict(json.loads(path.read_text()))
        time.sleep(0.01)
    raise BenchError("the server did not start:\n" + (folder / "log").read_text()[-2000:])
