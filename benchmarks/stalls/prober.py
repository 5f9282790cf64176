"""The uninvolved client: a process that sends one PING after another and keeps the worst round
trip.

    python -m benchmarks.stalls.prober HOST PORT

It reads commands from standard input: `reset` begins a measurement, `read` prints the worst round
trip since then in nanoseconds and the number of round trips. `read` waits for the reply to an
outstanding PING, so a server that hangs cannot appear idle.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time

from benchmarks.stalls.site import login

PAUSE_S = 0.0005
REPLY_S = 300.0
NICE = -15


def main() -> None:
    host, port = sys.argv[1], int(sys.argv[2])
    with contextlib.suppress(OSError):
        os.nice(NICE)  # it measures the server's delays, not its own
    sock = socket.create_connection((host, port), timeout=REPLY_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    login(sock, "quiet")
    commands = _Commands()
    print("ready", flush=True)
    worst = count = 0
    while True:
        began = time.monotonic_ns()
        _ping(sock)
        worst = max(worst, time.monotonic_ns() - began)
        count += 1
        command = commands.next()
        if command == "reset":
            worst = count = 0
            print("reset", flush=True)
        elif command == "read":
            print(worst, count, flush=True)
        elif command == "":
            return


class _Commands:
    """Lines of standard input, polled between two PINGs."""

    def __init__(self) -> None:
        self._buffer = b""

    def next(self) -> str | None:
        """Return the next command; None if there is none, "" at the end of the input."""
        if not select.select([0], [], [], PAUSE_S)[0]:
            return None
        data = os.read(0, 4096)
        if not data:
            return ""
        self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()


def _ping(sock: socket.socket) -> None:
    sock.sendall(b"PING\r\n")
    received = b""
    while b"PONG\r\n" not in received:
        more = sock.recv(65536)
        if not more:
            raise SystemExit("the server closed the prober's connection")
        received += more
        if received.endswith(b"PING\r\n"):
            sock.sendall(b"PONG\r\n")


if __name__ == "__main__":
    main()
