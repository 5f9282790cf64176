"""Many idle connections: what each costs the server in memory, and whether all stay alive.

Connections are opened in waves smaller than any server's accept backlog, complete the handshake and
stay open until each has been checked with a second PING.
"""

import resource
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from penstock.bench import process_stats
from penstock.bench.bench_error import BenchError
from penstock.bench.load.raw_client import HANDSHAKE_TIMEOUT_S, ServerEndpoint
from penstock.bench.probes.figures import Figure, difference, per

WAVE = 64
FILES_SPARE = 64  # descriptors for everything that is not a connection
READ_BYTES = 8192
ANSWER_BYTES_MAX = 64 * 1024


def allow_connections(count: int) -> None:
    """Raise this process's limit of open files, which servers started later inherit."""
    needed = count + FILES_SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise BenchError(
            f"{count} connections need {needed} open files, the limit here is {hard} (ulimit -Hn)"
        )
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def probe_idle(endpoint: ServerEndpoint, pid: int | None, count: int) -> list[Figure]:
    """Open `count` connections, hold them, and PING each one."""
    allow_connections(count)
    with ExitStack() as stack:
        rss_before = process_stats.rss_bytes(pid) if pid is not None else None
        start = time.monotonic()
        sockets: list[socket.socket] = []
        while len(sockets) < count:
            sockets += _open_wave(stack, endpoint, min(WAVE, count - len(sockets)), len(sockets))
        opened_s = time.monotonic() - start
        rss_after = process_stats.rss_bytes(pid) if pid is not None else None
        start = time.monotonic()
        alive = _count_alive(sockets)
        asked_s = time.monotonic() - start
    grown = difference(rss_after, rss_before)
    return [
        Figure("connections open", len(sockets)),
        Figure("answered a PING while all were open", alive),
        Figure("opened per second", count / opened_s, "/s"),
        Figure("server memory per connection", per(grown, count), "bytes"),
        Figure("server memory with all open", rss_after, "bytes"),
        Figure("time to ask all of them", asked_s, "s"),
    ]


def _open_wave(
    stack: ExitStack, endpoint: ServerEndpoint, size: int, so_far: int
) -> list[socket.socket]:
    hello = endpoint.connect_line() + b"PING\r\n"
    wave = []
    try:
        for _ in range(size):
            address = (endpoint.host, endpoint.port)
            sock = stack.enter_context(socket.create_connection(address, HANDSHAKE_TIMEOUT_S))
            sock.sendall(hello)
            wave.append(sock)
        for sock in wave:
            _read_pong(sock)
    except OSError as error:
        reason = error.strerror or error
        raise BenchError(f"failed behind connection {so_far}: {reason}") from None
    return wave


def _count_alive(sockets: Sequence[socket.socket]) -> int:
    alive = 0
    for start in range(0, len(sockets), WAVE):
        wave = sockets[start : start + WAVE]
        for sock in wave:
            with suppress(OSError):
                sock.sendall(b"PING\r\n")
        for sock in wave:
            with suppress(OSError):
                _read_pong(sock)
                alive += 1
    return alive


def _read_pong(sock: socket.socket) -> None:
    seen = b""
    while b"PONG\r\n" not in seen:
        part = sock.recv(READ_BYTES)
        if not part or len(seen) > ANSWER_BYTES_MAX:
            raise ConnectionError(f"closed by the server: {seen[-100:]!r}")
        seen += part
