"""A server that is being attacked, and the question whether it has taken harm.

Unharmed means: the process lives, a new client is served, the log holds no traceback and no
internal error, and memory has not grown past a bound. Nothing here attacks.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

from support.peers import Peer, until

if TYPE_CHECKING:
    import ssl

    from support.servers import ServerUnderTest

MIB = 1 << 20
HARM = re.compile(r"Traceback|internal error|Exception ignored|Unhandled|Logging error")


class Victim:
    """One server process under attack; the keywords are what a good client needs."""

    def __init__(
        self,
        server: ServerUnderTest,
        *,
        login: dict[str, str] | None = None,
        transport: str = "plain",
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.server = server
        self._login: dict[str, object] = dict(login or {})
        self._transport = transport
        self._context = context

    @property
    def port(self) -> int:
        return self.server.port

    def peer(self) -> Peer:
        """A connection that has been greeted and has said nothing yet."""
        return Peer(self.port)

    def client(self) -> Peer:
        peer = Peer(self.port, transport=self._transport, context=self._context)
        return peer.connect(**self._login)

    def answer(self, *said: bytes | str) -> bytes:
        """What a fresh connection receives until it is closed, after sending this."""
        with self.peer() as peer:
            for piece in said:
                peer.try_send(piece)
            return peer.read_to_end()

    def resident(self) -> int:
        return self._status("VmRSS")

    def peak(self) -> int:
        return self._status("VmHWM")

    def _status(self, field: str) -> int:
        with open(f"/proc/{self.server.pid}/status") as status:
            found = re.search(rf"{field}:\s+(\d+) kB", status.read())
        assert found is not None
        return int(found[1]) * 1024

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.server.pid}/fd"))

    def wait_for_files(self, count: int) -> None:
        until(lambda: self.open_files() <= count, f"at most {count} open files")

    def check_well(self) -> None:
        assert self.server.alive, self.server.log[-3000:]
        with self.client() as peer:
            peer.send("SUB well 1\r\nPUB well 4\r\nwell\r\n")
            assert [one.payload for one in peer.deliveries()] == [b"well"]
        harm = HARM.search(self.server.log)
        assert harm is None, self.server.log[-3000:]


def connect_line(**options: object) -> str:
    return f"CONNECT {json.dumps({'verbose': False, 'pedantic': False, **options})}\r\n"
