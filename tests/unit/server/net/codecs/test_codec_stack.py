"""Codec stacks such as wss: WebSocket frames inside TLS records, ended from either layer."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from penstock.server.config.options import WebsocketOptions
from penstock.server.net.codecs.codec_stack import SecureWebSocketAcceptor, StackedCodec
from penstock.server.net.codecs.contract import (
    CLIENT_CLOSED,
    READ_ERROR,
    RECEIVE_BYTES_MAX,
    TLS_HANDSHAKE_FAILURE,
    CodecClosed,
    CodecEnd,
    CodecError,
    TransportCodec,
)
from penstock.server.net.codecs.websocket import build_acceptor
from support.transport_codecs import (
    SPLITS,
    TlsClient,
    WebSocketClient,
    feed,
    frame,
    split,
    upgrade_request,
)

if TYPE_CHECKING:
    from penstock.server.net.codecs.tls_codec import TlsCodec
    from penstock.server.net.codecs.websocket import WebSocketCodec
    from support.transport_codecs import Pki

MESSAGE = b"PUB a 5\r\nhello\r\n" * 3000


class Client:
    """A WebSocket client inside a TLS client."""

    def __init__(self, pki: Pki, *, compression: bool = True) -> None:
        self.tls = TlsClient(pki.client_context(with_certificate=True))
        self.websocket = WebSocketClient(compression=compression)


def make_codec(pki: Pki) -> StackedCodec[TlsCodec, WebSocketCodec]:
    options = WebsocketOptions(port=1, compression=True)
    acceptor = SecureWebSocketAcceptor(
        pki.acceptor(verify=True), build_acceptor(options, secure=True)
    )
    return acceptor.codec()


def connected(
    pki: Pki, how: str = "whole"
) -> tuple[StackedCodec[TlsCodec, WebSocketCodec], Client]:
    codec, client = make_codec(pki), Client(pki)
    client.tls.shake_hands(codec, how)
    assert not codec.established
    for piece in split(client.tls.write(client.websocket.request()), how):
        assert codec.receive(piece) == b""
    client.websocket.receive(client.tls.read(codec.outgoing()))
    assert codec.established
    return codec, client


@pytest.mark.parametrize("how", SPLITS)
def test_both_directions_carry_stream_in_any_chunking(pki: Pki, how: str) -> None:
    codec, client = connected(pki, how)
    sent = client.tls.write(client.websocket.send(MESSAGE))
    assert feed(codec, sent, how) == (MESSAGE, None)
    assert client.websocket.messages(client.tls.read(codec.encode(MESSAGE))) == MESSAGE


def test_both_layers_can_be_asked(pki: Pki) -> None:
    codec, _ = connected(pki)
    assert codec.lower.version == "1.3"
    assert codec.lower.peer_der is not None
    assert codec.upper.upgrade is not None
    assert codec.upper.upgrade.path == "/"


def test_failed_handshake_below_is_the_end(pki: Pki) -> None:
    codec = make_codec(pki)
    with pytest.raises(CodecError) as caught:
        codec.receive(upgrade_request())
    assert caught.value.reason == TLS_HANDSHAKE_FAILURE
    codec.farewell(TLS_HANDSHAKE_FAILURE)
    assert not codec.established


def test_refused_upgrade_is_answered_through_tls(pki: Pki) -> None:
    codec, client = make_codec(pki), Client(pki)
    client.tls.shake_hands(codec)
    with pytest.raises(CodecError) as caught:
        codec.receive(client.tls.write(upgrade_request("POST / HTTP/1.1")))
    assert caught.value.reason == READ_ERROR
    answer = client.tls.read(codec.outgoing() + codec.farewell(READ_ERROR))
    assert answer.startswith(b"HTTP/1.1 405 ")


def test_close_frame_ends_both_layers_in_order(pki: Pki) -> None:
    codec, client = connected(pki)
    client.websocket.protocol.send_close(1000, "bye")
    frames = client.websocket.sent()
    with pytest.raises(CodecClosed) as caught:
        codec.receive(client.tls.write(frame(2, b"PING\r\n") + frames))
    assert caught.value.received == b"PING\r\n"
    last = codec.encode(b"PONG\r\n") + codec.farewell(caught.value.reason)
    client.websocket.receive(client.tls.read(last))
    assert client.websocket.close_received == (1000, "bye")
    assert client.tls.tls.read(10) == b"", "close_notify"
    assert codec.farewell(CLIENT_CLOSED) == b""


def test_our_farewell_goes_through_both_layers(pki: Pki) -> None:
    codec, client = connected(pki)
    client.websocket.receive(client.tls.read(codec.farewell("Server Shutdown")))
    assert client.websocket.close_received == (1001, "Server Shutdown")


def packed(data: bytes) -> bytes:
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    deflated = (engine.compress(data) + engine.flush(zlib.Z_SYNC_FLUSH))[:-4]
    return frame(2, deflated, rsv1=True)


def drained(codec: TransportCodec, data: bytes) -> tuple[list[int], CodecEnd | None]:
    """Sizes of the portions, and the end."""
    sizes: list[int] = []
    try:
        sizes.append(len(codec.receive(data)))
        while codec.pending:
            sizes.append(len(codec.receive(b"")))
    except CodecEnd as end:
        return [*sizes, len(end.received)], end
    return sizes, None


def test_end_below_waits_until_bomb_above_is_drained(pki: Pki) -> None:
    codec, client = connected(pki)
    size = 5 * RECEIVE_BYTES_MAX
    sizes, end = drained(codec, client.tls.write(packed(bytes(size))) + client.tls.close())
    assert isinstance(end, CodecClosed)
    assert sum(sizes) == size
    assert max(sizes) <= RECEIVE_BYTES_MAX
    assert codec.receive(b"") == b""


def test_one_end_is_reported_when_both_layers_end_in_one_chunk(pki: Pki) -> None:
    codec, client = connected(pki)
    records = client.tls.write(frame(2, b"PING\r\n") + frame(8, b"")) + client.tls.close()
    sizes, end = drained(codec, records)
    assert isinstance(end, CodecClosed)
    assert sizes == [6]
    assert codec.receive(b"") == b""
    codec.farewell(CLIENT_CLOSED)
