"""WebSocket codec against the client half of `websockets`, and its two-step end."""

from __future__ import annotations

import os
import struct

import pytest

from penstock.server.config.options import WebsocketOptions
from penstock.server.net.codecs.contract import (
    CLIENT_CLOSED,
    READ_ERROR,
    CodecClosed,
    CodecError,
)
from penstock.server.net.codecs.upgrade import UpgradeRules
from penstock.server.net.codecs.websocket import (
    CLOSE_STATUSES,
    WebSocketCodec,
    build_acceptor,
    close_status,
)
from penstock.server.net.codecs.websocket_frames import CloseStatus
from support.transport_codecs import SPLITS, WebSocketClient, feed, frame, split, upgrade_request

MESSAGE = b"PUB a 5\r\nhello\r\n" * 3000
PING = 9
BINARY, CLOSE = 2, 8


def connected(
    how: str = "whole", *, compression: bool = False, **headers: str
) -> tuple[WebSocketCodec, WebSocketClient]:
    codec = WebSocketCodec(UpgradeRules(compression=compression))
    client = WebSocketClient(compression=compression, **headers)
    for piece in split(client.request(), how):
        assert codec.receive(piece) == b""
    client.receive(codec.outgoing())
    assert client.protocol.handshake_exc is None
    return codec, client


@pytest.mark.parametrize("how", SPLITS)
@pytest.mark.parametrize("compression", [False, True])
def test_both_directions_carry_stream_in_any_chunking(how: str, compression: bool) -> None:
    codec, client = connected(how, compression=compression)
    assert codec.established
    sent = client.send(MESSAGE) + client.send(b"PING\r\n")
    assert feed(codec, sent, how) == (MESSAGE + b"PING\r\n", None)
    for data in (b"PONG\r\n", MESSAGE, memoryview(MESSAGE)):
        assert client.messages(codec.encode(data)) == bytes(data)
    assert codec.encode(b"") == b""


@pytest.mark.parametrize("compression", [False, True])
@pytest.mark.parametrize(
    "agent", ["Mozilla/5.0 Firefox/1", "Mozilla/5.0 Version/15 Safari/600", "nats.js"]
)
def test_every_kind_of_client_can_read_what_it_gets(agent: str, compression: bool) -> None:
    codec, client = connected(compression=compression, User_Agent=agent)
    data = bytes(range(256)) * 200
    assert client.messages(codec.encode(data)) == data


def test_safari_gets_compressed_message_in_one_frame() -> None:
    data = os.urandom(20_000) + bytes(20_000)
    for agent, first_byte in (
        ("Mozilla/5.0 Firefox/1", 0x42),
        ("Mozilla/5.0 Version/15 Safari/600", 0xC2),
    ):
        codec, _ = connected(compression=True, User_Agent=agent)
        assert codec.encode(data)[0] == first_byte


def test_compressed_traffic_is_smaller() -> None:
    codec, _ = connected(compression=True)
    assert len(codec.encode(MESSAGE)) < len(MESSAGE) // 20


def test_nothing_is_established_before_request_is_complete() -> None:
    codec = WebSocketCodec(UpgradeRules())
    request = upgrade_request()
    assert codec.receive(request[:-1]) == b""
    assert not codec.established
    assert codec.upgrade is None
    assert codec.outgoing() == b""
    codec.receive(request[-1:])
    assert codec.established
    assert codec.upgrade is not None
    assert codec.outgoing().startswith(b"HTTP/1.1 101 ")
    assert codec.outgoing() == b""


def test_pings_are_answered_once() -> None:
    codec, _ = connected()
    codec.receive(frame(PING, b"one") + frame(PING, b"two"))
    assert codec.outgoing() == b"\x8a\x03one\x8a\x03two"
    assert codec.outgoing() == b""


def test_refused_upgrade_leaves_its_answer_to_send() -> None:
    codec = WebSocketCodec(UpgradeRules())
    with pytest.raises(CodecError) as caught:
        codec.receive(upgrade_request("POST / HTTP/1.1"))
    assert caught.value.reason == READ_ERROR
    assert caught.value.text == "websocket handshake error: request method must be GET"
    assert not codec.established
    assert codec.outgoing().startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
    assert codec.farewell(READ_ERROR) == b""
    assert codec.receive(b"more") == b""


def test_bytes_before_close_count_and_replies_leave_before_answer() -> None:
    codec, client = connected()
    sent = client.send(b"PING\r\n")
    client.protocol.send_close(1000, "bye")
    with pytest.raises(CodecClosed) as caught:
        codec.receive(sent + client.sent() + frame(BINARY, b"too late"))
    assert caught.value.received == b"PING\r\n"
    assert caught.value.reason == CLIENT_CLOSED
    last = codec.encode(b"PONG\r\n") + codec.farewell(caught.value.reason)
    assert last == b"\x82\x06PONG\r\n" + b"\x88\x05\x03\xe8bye"
    assert codec.farewell(CLIENT_CLOSED) == b""
    assert codec.encode(b"more") == b""
    assert codec.receive(frame(BINARY, b"more")) == b""


def test_violation_is_answered_with_its_name() -> None:
    codec, client = connected()
    with pytest.raises(CodecError) as caught:
        codec.receive(frame(BINARY, b"PING\r\n") + frame(0, b"stray"))
    assert caught.value.received == b"PING\r\n"
    assert (caught.value.text, caught.value.reason) == ("invalid continuation frame", READ_ERROR)
    client.receive(codec.farewell(READ_ERROR))
    assert client.close_received == (1002, "invalid continuation frame")


@pytest.mark.parametrize("reason", [*CLOSE_STATUSES, "No Responders Requires Headers"])
def test_farewell_names_reason_in_frame_client_understands(reason: str) -> None:
    codec, client = connected()
    client.receive(codec.farewell(reason))
    status = close_status(reason)
    # 1015 must not be sent; a frame without status reads as 1005.
    expected = (1005, "") if status == CloseStatus.TLS_HANDSHAKE else (int(status), reason)
    assert client.close_received == expected


def test_recorded_statuses_of_reference() -> None:
    recorded = {
        "Stale Connection": 1001,
        "Server Shutdown": 1001,
        "Bad Client Protocol Version": 1002,
        "Authentication Timeout": 1008,
        "Authentication Failure": 1008,
        "Maximum Control Line Exceeded": 1008,
        "Maximum Message Payload Exceeded": 1009,
        "No Responders Requires Headers": 1011,
    }
    assert {reason: close_status(reason) for reason in recorded} == recorded


def test_before_upgrade_there_is_nothing_to_report_in_farewell() -> None:
    codec = WebSocketCodec(UpgradeRules())
    codec.receive(b"GET / HT")
    assert codec.farewell("Server Shutdown") == b""


def test_close_after_bomb_waits_for_its_turn() -> None:
    codec, client = connected(compression=True)
    bomb = client.send(bytes(5_000_000))
    end = frame(CLOSE, struct.pack("!H", 1000))
    got, ended = feed(codec, bomb + end, "whole")
    assert isinstance(ended, CodecClosed)
    assert len(got) == 5_000_000
    assert not codec.pending


def test_listener_options_reach_codec() -> None:
    options = WebsocketOptions(
        port=1, compression=True, same_origin=True, allowed_origins=("https://x",)
    )
    acceptor = build_acceptor(options, secure=True)
    codec = acceptor.codec()
    codec.receive(upgrade_request(Host="x", Origin="https://x"))
    assert codec.established
    with pytest.raises(CodecError, match="origin not allowed"):
        acceptor.codec().receive(upgrade_request(Host="x", Origin="http://x"))
