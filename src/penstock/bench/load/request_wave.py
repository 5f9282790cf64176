"""Send many API requests over one connection with a window of pending ones.

Used to set up many assets and to measure how long that takes. A refusal raises BenchError.
"""

from __future__ import annotations

import json
import secrets
import time
from typing import TYPE_CHECKING, Any

from penstock.bench.bench_error import BenchError
from penstock.bench.load.raw_client import (
    HANDSHAKE_TIMEOUT_S,
    READ_BYTES,
    deadline_after,
    open_client,
)

if TYPE_CHECKING:
    from socket import socket

    from penstock.bench.load.raw_client import ServerEndpoint

WINDOW = 16
FIFTHS = 5

Json = dict[str, Any]


def ask_all(endpoint: ServerEndpoint, requests: list[tuple[str, Json]]) -> list[float]:
    """Send all requests; return the seconds until each fifth of them had a reply."""
    inbox = f"_INBOX.{secrets.token_hex(8)}"
    with open_client(endpoint) as client:
        client.subscribe(inbox, 1, deadline_after(HANDSHAKE_TIMEOUT_S))
        client.sock.settimeout(HANDSHAKE_TIMEOUT_S)
        frames = [_frame(subject, inbox, body) for subject, body in requests]
        marks: list[float] = []
        began = time.monotonic()
        client.sock.sendall(b"".join(frames[:WINDOW]))
        answered, unparsed = 0, b""
        while answered < len(frames):
            data = client.sock.recv(READ_BYTES)
            if not data:
                raise BenchError("connection closed in the midst of API requests")
            found, unparsed = _count(client.sock, unparsed + data)
            client.sock.sendall(b"".join(frames[answered + WINDOW : answered + WINDOW + found]))
            answered += found
            while len(marks) < answered * FIFTHS // len(frames):
                marks.append(time.monotonic() - began)
    return marks


def _frame(subject: str, reply: str, body: Json) -> bytes:
    payload = json.dumps(body).encode()
    return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(payload), payload)


def _count(sock: socket, data: bytes) -> tuple[int, bytes]:
    """Return the number of replies and the remaining bytes."""
    found = 0
    while True:
        line, end, rest = data.partition(b"\r\n")
        if not end:
            return found, data
        if line.startswith((b"MSG", b"HMSG")):
            size = int(line.split()[-1])
            if len(rest) < size + 2:
                return found, data
            if line.startswith(b"HMSG") or b'"error"' in rest[:size]:
                raise BenchError(f"refused: {rest[:size].decode(errors='replace')}")
            found, rest = found + 1, rest[size + 2 :]
        elif line == b"PING":
            sock.sendall(b"PONG\r\n")
        elif line.startswith(b"-ERR"):
            raise BenchError(f"server said: {line.decode(errors='replace')}")
        data = rest
