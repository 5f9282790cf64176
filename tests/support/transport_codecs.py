"""The other side of each codec, without IO: a TLS client, a WebSocket client, and ways to feed.

The clients are other people's code (OpenSSL's client half, `websockets`), so that agreement with
them says something. `Splitter` cuts a byte string whole, into single bytes, or at random places.
"""

from __future__ import annotations

import contextlib
import random
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from penstock.server.config.options import TlsOptions
from penstock.server.net.codecs.contract import CodecEnd
from penstock.server.net.codecs.tls_codec import TlsAcceptor, build_acceptor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.server.net.codecs.contract import TransportCodec
    from support.certs import Authority

SPLITS = ("whole", "bytes", "random")
KEY = "dGhlIHNhbXBsZSBub25jZQ=="


def split(data: bytes, how: str, seed: int = 7) -> Iterator[bytes]:
    """The same bytes in pieces; `how` is one of SPLITS."""
    if how == "whole":
        yield data
        return
    rng = random.Random(seed)
    at = 0
    while at < len(data):
        step = 1 if how == "bytes" else rng.choice((1, 2, 5, 13, 100, 1000, 5000))
        yield data[at : at + step]
        at += step


def feed(codec: TransportCodec, data: bytes, how: str) -> tuple[bytes, CodecEnd | None]:
    """All NATS bytes a codec gives for `data`, and how it ended, if it did."""
    out = bytearray()
    for piece in split(data, how):
        try:
            out += codec.receive(piece)
            while codec.pending:
                out += codec.receive(b"")
        except CodecEnd as end:
            return bytes(out + end.received), end
    return bytes(out), None


@dataclass(frozen=True)
class Pki:
    """One authority, one server, one client, in files."""

    directory: Path
    authority: Authority
    ca_file: str
    server: tuple[str, str]
    client: tuple[str, str]

    def options(self, **more: object) -> TlsOptions:
        settings: dict[str, object] = {
            "cert_file": self.server[0],
            "key_file": self.server[1],
            "ca_file": self.ca_file,
        }
        return TlsOptions(**{**settings, **more})  # type: ignore[arg-type]

    def acceptor(self, **more: object) -> TlsAcceptor:
        return build_acceptor(self.options(**more))

    def client_context(self, *, with_certificate: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca_file)
        if with_certificate:
            context.load_cert_chain(*self.client)
        return context


class TlsClient:
    """OpenSSL's client half over memory."""

    def __init__(self, context: ssl.SSLContext, name: str = "localhost") -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_hostname=name)

    def shake_hands(self, codec: TransportCodec, how: str = "whole") -> None:
        """Runs both sides until the client is done, then hands over its last flight."""
        while not self._step():
            for piece in split(self._out.read(), how):
                assert codec.receive(piece) == b""
            self._in.write(codec.outgoing())
        for piece in split(self._out.read(), how):
            assert codec.receive(piece) == b""
        self._in.write(codec.outgoing())

    def _step(self) -> bool:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def write(self, data: bytes) -> bytes:
        if data:
            self.tls.write(data)
        return self._out.read()

    def close(self) -> bytes:
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self._out.read()

    def read(self, data: bytes) -> bytes:
        self._in.write(data)
        parts = []
        while True:
            try:
                part = self.tls.read(65536)
            except ssl.SSLWantReadError:
                return b"".join(parts)
            if not part:
                return b"".join(parts)
            parts.append(part)


def upgrade_request(
    line: str = "GET / HTTP/1.1",
    *extra: str,
    drop: tuple[str, ...] = (),
    eol: str = "\r\n",
    **replaced: str,
) -> bytes:
    """A good upgrade request, with headers dropped, replaced (`_` for `-`) or added."""
    headers = {
        "Host": "127.0.0.1",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
    }
    for name in drop:
        del headers[name]
    headers.update({name.replace("_", "-"): value for name, value in replaced.items()})
    lines = [line, *(f"{name}: {value}" for name, value in headers.items()), *extra, "", ""]
    return eol.join(lines).encode("latin-1")


def frame(opcode: int, payload: bytes, *, fin: bool = True, rsv1: bool = False) -> bytes:
    """A masked frame, as a client sends it."""
    raw = bytearray(Frame(Opcode(opcode), payload, fin).serialize(mask=True))
    if rsv1:
        raw[0] |= 0x40
    return bytes(raw)


class WebSocketClient:
    """The client half of `websockets`."""

    def __init__(self, *, compression: bool = False, **headers: str) -> None:
        extensions = [ClientPerMessageDeflateFactory()] if compression else None
        self.protocol = ClientProtocol(
            parse_uri("ws://localhost/"), extensions=extensions, max_size=None
        )
        self._headers = headers

    def request(self) -> bytes:
        request = self.protocol.connect()
        for name, value in self._headers.items():
            request.headers[name.replace("_", "-")] = value
        self.protocol.send_request(request)
        return self.sent()

    def sent(self) -> bytes:
        return b"".join(self.protocol.data_to_send())

    def receive(self, data: bytes) -> list[Any]:
        self.protocol.receive_data(data)
        return self.protocol.events_received()

    def messages(self, data: bytes) -> bytes:
        """The bytes carried by the data frames in `data`."""
        frames = self.receive(data)
        return b"".join(bytes(f.data) for f in frames if f.opcode in (0, 1, 2))

    @property
    def close_received(self) -> tuple[int, str]:
        """Status and reason of the close frame that came."""
        close = self.protocol.close_rcvd
        assert close is not None
        return int(close.code), close.reason

    def send(self, data: bytes) -> bytes:
        self.protocol.send_binary(data)
        return self.sent()
