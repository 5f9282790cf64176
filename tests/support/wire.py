"""A raw-socket NATS peer for transcripts: bytes out, lines in, every wait with a deadline.

``Wire`` reads lines that end in CRLF exactly; a server that ends one otherwise is caught here.
Silence is never proved by waiting: ``expect_quiet`` sends PING and wants PONG as the very next
line, which also proves that everything the connection sent before has been processed.

It knows no semantics beyond that and keeps no subscriptions.
"""

from __future__ import annotations

import json
import re
import socket
import time
from typing import TYPE_CHECKING, Any

from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

RECEIVE_BYTES = 65536
LINE_END = b"\r\n"

Expected = str | re.Pattern[str]


class WireError(AssertionError):
    """The server did not say what it had to say."""


class Wire:
    """One connection to a server under test."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        name: str = "A",
        greeting: bool = True,
        answers_pings: bool = True,
        seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.name = name
        self.seconds = seconds
        self._answers_pings = answers_pings
        self.socket: socket.socket | ssl.SSLSocket = socket.create_connection(address, seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._ended = False
        self.closed = False
        self.history: list[str] = []
        self.info: dict[str, Any] = self.expect_info() if greeting else {}

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True
        self.socket.close()

    def upgrade(self, context: ssl.SSLContext, server_name: str = "localhost") -> None:
        """Continue this connection under TLS."""
        self.socket = context.wrap_socket(self.socket, server_hostname=server_name)

    # -- sending ---------------------------------------------------------------------------

    def send(self, data: str | bytes, pieces: Iterable[bytes] | None = None) -> None:
        """Send bytes; ``pieces``, when given, are the same bytes cut up.

        A server may close before it has read all we have to say, so a broken pipe is no failure:
        the expectations that follow tell what it answered.
        """
        raw = data.encode() if isinstance(data, str) else data
        self.history.append(f"{self.name}> {_shown(raw)}")
        try:
            for piece in [raw] if pieces is None else pieces:
                self.socket.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            return

    def connect(self, **options: object) -> None:
        """CONNECT, quiet unless told otherwise, and wait until it has been processed."""
        settings = {"verbose": False, "pedantic": False, **options}
        self.send(f"CONNECT {json.dumps(settings)}\r\n")
        self.expect_quiet()

    # -- receiving -------------------------------------------------------------------------

    def line(self) -> str:
        """The next line, without its end.

        Like any client this one answers the server's pings, which come when the server likes,
        unless a test wants to see them.
        """
        deadline = time.monotonic() + self.seconds
        while (text := self._any_line(deadline)) == "PING" and self._answers_pings:
            self.send("PONG\r\n")
        return text

    def _any_line(self, deadline: float) -> str:
        while (end := self._received.find(LINE_END)) < 0:
            if not self._fill(deadline):
                raise WireError(self._story(f"closed after {bytes(self._received)!r}"))
        text = bytes(self._received[:end]).decode(errors="surrogateescape")
        del self._received[: end + len(LINE_END)]
        self.history.append(f"{self.name}< {text[:200]}")
        return text

    def _fill(self, deadline: float) -> bool:
        """Receive once; False when the server has closed."""
        if self._ended:
            return False
        left = deadline - time.monotonic()
        if left <= 0:
            raise WireError(self._story(f"nothing more after {bytes(self._received)!r}"))
        self.socket.settimeout(left)
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except TimeoutError:
            raise WireError(self._story(f"nothing more after {bytes(self._received)!r}")) from None
        except OSError:  # reset by peer, or TLS cut short: closed anyway
            data = b""
        self._ended = not data
        self._received += data
        return bool(data)

    def read_exactly(self, size: int) -> bytes:
        """That many raw bytes, lines or not."""
        deadline = time.monotonic() + self.seconds
        while len(self._received) < size:
            if not self._fill(deadline):
                raise WireError(self._story(f"closed before {size} bytes"))
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def expect(self, *expected: Expected) -> re.Match[str] | None:
        """These lines come next; the match of the last one when it was a pattern."""
        matched: re.Match[str] | None = None
        for wanted in expected:
            got = self.line()
            matched = wanted.fullmatch(got) if isinstance(wanted, re.Pattern) else None
            if matched is None and got != wanted:
                shown = wanted.pattern if isinstance(wanted, re.Pattern) else wanted
                raise WireError(self._story(f"expected {shown!r}\n     got {got!r}"))
        return matched

    def expect_info(self) -> dict[str, Any]:
        """The next line is INFO; its fields."""
        got = self.line()
        # The blank before the line's end is what the reference writes, so parsers rely on it.
        if not (got.startswith("INFO {") and got.endswith("} ")):
            raise WireError(self._story(f"expected INFO, got {got!r}"))
        fields = json.loads(got[5:])
        assert isinstance(fields, dict)
        return fields

    def expect_closed(self) -> None:
        """The server closes, and says nothing more before it does."""
        deadline = time.monotonic() + self.seconds
        while self._fill(deadline):
            pass
        if self._received:
            raise WireError(self._story(f"expected close, got {bytes(self._received)!r}"))

    def expect_quiet(self) -> None:
        """All sent so far is processed, the connection lives, and nothing was said."""
        self.send("PING\r\n")
        self.expect("PONG")

    def drain(self) -> None:
        """Wait until all sent so far is processed, or the server has closed."""
        self.send("PING\r\n")
        try:
            while self.line() != "PONG":
                pass
        except WireError:
            return

    def _story(self, problem: str) -> str:
        return "\n".join([f"{self.name}: {problem}", "so far:", *self.history[-30:]])


def _shown(raw: bytes) -> str:
    text = repr(raw)[2:-1]
    return text if len(text) <= 200 else f"{text[:200]}... ({len(raw)} bytes)"
