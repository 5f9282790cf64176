"""The websocket listener: an HTTP upgrade, then the same protocol as a stream of bytes."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from support.claims import SHOP, Realm, user_token
from support.patience import PATIENCE_SECONDS
from support.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.servers import Implementation, ServerPool, ServerUnderTest, Starter
    from support.tls import Certificates


PLAIN = 'websocket { host: "127.0.0.1", port: -1, no_tls: true }\n'
CAREFUL = 'websocket { host: "127.0.0.1", port: -1, no_tls: true, same_origin: true }\n'
COMPRESSED = 'websocket { host: "127.0.0.1", port: -1, no_tls: true, compression: true }\n'
UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


class Frames:
    """A websocket read as the stream of bytes it carries."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self._received = b""

    def line(self) -> bytes:
        while b"\r\n" not in self._received:
            data = self.socket.recv(PATIENCE_SECONDS)
            assert isinstance(data, bytes), "the server sends binary messages"
            self._received += data
        line, _, self._received = self._received.partition(b"\r\n")
        if line == b"PING":
            self.socket.send(b"PONG\r\n")
            return self.line()
        return line

    def until_closed(self) -> None:
        while True:
            self.line()

    def expect(self, *lines: bytes) -> None:
        assert [self.line() for _ in lines] == list(lines)


@pytest.fixture
def server_with_websocket(pool: ServerPool, implementation: Implementation) -> ServerUnderTest:
    return pool.get(implementation, PLAIN)


@pytest.fixture
def frames(server_with_websocket: ServerUnderTest) -> Iterator[Frames]:
    """An open websocket whose greeting has been read."""
    with connect(server_with_websocket.websocket_url, compression=None) as socket:
        opened = Frames(socket)
        assert opened.line().startswith(b"INFO {")
        yield opened


def test_greeting_is_binary_message(server_with_websocket: ServerUnderTest) -> None:
    with connect(server_with_websocket.websocket_url, compression=None) as socket:
        greeting = socket.recv(PATIENCE_SECONDS)
        assert isinstance(greeting, bytes)
        assert greeting.startswith(b"INFO {")


def test_protocol_runs_inside_binary_messages(frames: Frames) -> None:
    frames.socket.send(b'CONNECT {"verbose":false}\r\nSUB foo 1\r\nPUB foo 2\r\nhi\r\nPING\r\n')
    frames.expect(b"MSG foo 1 2", b"hi", b"PONG")


def test_text_messages_are_taken(frames: Frames) -> None:
    frames.socket.send('CONNECT {"verbose":false}\r\nPING\r\n')
    frames.expect(b"PONG")


def test_messages_need_not_end_at_line_ends(frames: Frames) -> None:
    for byte in b'CONNECT {"verbose":false}\r\nSUB foo 1\r\nPUB foo 2\r\nhi\r\nPING\r\n':
        frames.socket.send(bytes([byte]))
    frames.expect(b"MSG foo 1 2", b"hi", b"PONG")


def test_fragmented_message_is_one_stream(frames: Frames) -> None:
    frames.socket.send([b'CONNECT {"verbose":fal', b"se}\r\nPI", b"NG\r\n"])
    frames.expect(b"PONG")


def test_websocket_ping_gets_pong(frames: Frames) -> None:
    assert frames.socket.ping(b"hello").wait(PATIENCE_SECONDS)


def test_large_message_passes_both_ways(frames: Frames) -> None:
    body = b"0123456789abcdef" * 16384
    frames.socket.send(b'CONNECT {"verbose":false}\r\nSUB big 1\r\n')
    frames.socket.send(b"PUB big %d\r\n%b\r\nPING\r\n" % (len(body), body))
    frames.expect(b"MSG big 1 %d" % len(body), body, b"PONG")


def test_plain_and_websocket_clients_hear_each_other(
    server_with_websocket: ServerUnderTest, frames: Frames
) -> None:
    frames.socket.send(b'CONNECT {"verbose":false}\r\nSUB to.web 1\r\nPING\r\n')
    frames.expect(b"PONG")
    with Wire(server_with_websocket.address) as wire:
        wire.connect()
        wire.send("SUB to.wire 1\r\nPUB to.web 2\r\nhi\r\n")
        wire.expect_quiet()
        frames.expect(b"MSG to.web 1 2", b"hi")
        frames.socket.send(b"PUB to.wire 2\r\nyo\r\n")
        wire.expect("MSG to.wire 1 2", "yo")


def test_protocol_error_closes(frames: Frames) -> None:
    frames.socket.send(b"BOGUS\r\n")
    with pytest.raises(ConnectionClosed):
        frames.until_closed()


def test_close_frame_is_answered(frames: Frames) -> None:
    frames.socket.close()
    assert frames.socket.close_code == 1000


def test_shutdown_closes_with_going_away(start: Starter) -> None:
    server = start(PLAIN)
    with connect(server.websocket_url, compression=None) as socket:
        frames = Frames(socket)
        frames.line()
        server.process.terminate()
        with pytest.raises(ConnectionClosed):
            frames.line()
        assert socket.close_code == 1001


def _status(server: ServerUnderTest, method: str = "GET", **headers: str) -> int:
    address = server.websocket_url.partition("//")[2]
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_SECONDS)
    try:
        connection.request(method, "/", headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_full_upgrade_is_taken(server_with_websocket: ServerUnderTest) -> None:
    assert _status(server_with_websocket, **UPGRADE) == 101


@pytest.mark.parametrize("missing", sorted(UPGRADE))
def test_incomplete_upgrade_is_refused(
    server_with_websocket: ServerUnderTest, missing: str
) -> None:
    headers = {name: value for name, value in UPGRADE.items() if name != missing}
    assert _status(server_with_websocket, **headers) == 400


def test_another_websocket_version_is_refused(server_with_websocket: ServerUnderTest) -> None:
    assert _status(server_with_websocket, **{**UPGRADE, "Sec-WebSocket-Version": "12"}) == 400


def test_only_get_may_upgrade(server_with_websocket: ServerUnderTest) -> None:
    assert _status(server_with_websocket, "POST", **UPGRADE) == 405


def test_foreign_origin_is_refused_if_configured(
    pool: ServerPool, implementation: Implementation
) -> None:
    server = pool.get(implementation, CAREFUL)
    with pytest.raises(InvalidStatus) as refusal:
        connect(server.websocket_url, origin=Origin("http://elsewhere.example"))
    assert refusal.value.response.status_code == 403


@pytest.mark.parametrize(
    ("scheme", "status"), [("http", 101), ("https", 403), ("ws", 403), ("HTTP", 101)]
)
def test_same_origin_requires_the_same_scheme(
    pool: ServerPool, implementation: Implementation, scheme: str, status: int
) -> None:
    server = pool.get(implementation, CAREFUL)
    address = server.websocket_url.partition("//")[2]
    assert _status(server, **UPGRADE, Origin=f"{scheme}://{address}") == status


def test_compression_is_used_when_both_want_it(
    pool: ServerPool, implementation: Implementation
) -> None:
    server = pool.get(implementation, COMPRESSED)
    with connect(server.websocket_url) as socket:
        assert socket.protocol.extensions
        frames = Frames(socket)
        frames.line()
        body = b"x" * 10_000
        socket.send(b'CONNECT {"verbose":false}\r\nSUB foo 1\r\n')
        socket.send(b"PUB foo %d\r\n%b\r\n" % (len(body), body))
        frames.expect(b"MSG foo 1 %d" % len(body), body)


def test_compression_is_not_offered_unless_configured(
    server_with_websocket: ServerUnderTest,
) -> None:
    with connect(server_with_websocket.websocket_url) as socket:
        assert not socket.protocol.extensions


def test_optional_client_certificates_are_used(start: Starter, certificates: Certificates) -> None:
    server = start(f"{PLAIN.rstrip()[:-1]}, {certificates.block()} }}\n")
    assert server.websocket_url.startswith("wss://127.0.0.1:")
    server.wait_for_log(r"Listening for websocket clients on wss://127\.0\.0\.1:\d+")
    assert "Websocket not configured with TLS" not in server.log
    context = certificates.context()
    with connect(server.websocket_url, compression=None, ssl=context) as socket:
        opened = Frames(socket)
        assert json.loads(opened.line()[5:])["tls_required"] is True
        socket.send(b'CONNECT {"verbose":false}\r\nPING\r\n')
        opened.expect(b"PONG")


NAMED = "token_cookie: t, user_cookie: u, pass_cookie: p"
COOKIES = [
    (f"{NAMED} }}\nauthorization {{ token: open }}\n", "t=open", "t=shut"),
    (f"{NAMED} }}\nauthorization {{ user: amy, password: a }}\n", "u=amy; p=a", "u=amy; p=b"),
    (
        f"jwt_cookie: j }}\n{Realm().add(SHOP).config()}",
        f"j={user_token(SHOP, bearer_token=True)}",
        f"j={user_token(SHOP)}",
    ),
]


@pytest.mark.parametrize(("config", "right", "wrong"), COOKIES, ids=["token", "user", "jwt"])
def test_cookie_logs_in(
    pool: ServerPool, implementation: Implementation, config: str, right: str, wrong: str
) -> None:
    server = pool.get(implementation, f"{PLAIN.rstrip()[:-1]}, {config}")
    for cookie, answer in ((right, b"PONG"), (wrong, b"-ERR 'Authorization Violation'")):
        headers = {"Cookie": cookie}
        with connect(server.websocket_url, compression=None, additional_headers=headers) as socket:
            opened = Frames(socket)
            assert opened.line().startswith(b"INFO {")
            socket.send(b'CONNECT {"verbose":false}\r\nPING\r\n')
            assert opened.line() == answer
