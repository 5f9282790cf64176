"""The monitoring server against peers that are well-behaved, slow, silent, rude or too many."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from penstock.server.config.options import Authorization
from penstock.server.monitor import http_server
from penstock.server.monitor.page_table import Pages
from penstock.server.server_app import Server
from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.sockets

SHORT_S = 0.05


class Peer:
    """A raw HTTP client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, raw: bytes) -> None:
        self.writer.write(raw)

    async def response(self, *, head_only: bool = False) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                name.lower(): value
                for name, _, value in (line.partition(": ") for line in head[1:])
            }
            status = int(head[0].split()[1])
            if head_only:
                return status, headers, b""
            if headers.get("transfer-encoding") == "chunked":  # made in more than one slice
                return status, headers, await self._chunks()
            return status, headers, await self.reader.readexactly(int(headers["content-length"]))

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)
        return body

    async def get(self, target: str) -> tuple[int, dict[str, str], bytes]:
        self.send(f"GET {target} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
        return await self.response()

    async def is_cut_off(self) -> bool:
        async with asyncio.timeout(PATIENCE_SECONDS):
            try:
                return not await self.reader.read()
            except ConnectionError:
                return True


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(http_port=-1) as running:
        yield running


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator[Peer]:
    assert server.monitor_url is not None
    host, _, port = server.monitor_url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()


async def test_one_connection_serves_many_requests_and_counts_them(server: Server) -> None:
    async with connected(server) as peer:
        for _ in range(3):
            status, headers, body = await peer.get("/varz")
            assert (status, headers["content-type"]) == (200, "application/json")
            assert headers["access-control-allow-origin"] == "*"
        assert json.loads(body)["http_req_stats"] == {"/varz": 3}


async def test_requests_sent_ahead_are_answered_in_order(server: Server) -> None:
    async with connected(server) as peer:
        for path in ("/healthz", "/nope", "/healthz"):
            peer.send(f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
        answers = [(await peer.response())[0] for _ in range(3)]
    assert answers == [200, 404, 200]


async def test_request_may_come_byte_by_byte(server: Server) -> None:
    async with connected(server) as peer:
        for byte in b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n":
            peer.send(bytes([byte]))
            await peer.writer.drain()
        status, _, body = await peer.response()
    assert (status, body) == (200, b'{"status":"ok"}')


async def test_head_reports_length_and_sends_no_body(server: Server) -> None:
    async with connected(server) as peer:
        peer.send(b"HEAD /healthz HTTP/1.1\r\nHost: test\r\n\r\n")
        status, headers, _ = await peer.response(head_only=True)
        assert (status, headers["content-length"]) == (200, "15")
        assert (await peer.get("/healthz"))[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
async def test_only_get_and_head_are_allowed(server: Server, method: str) -> None:
    async with connected(server) as peer:
        peer.send(f"{method} /varz HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi".encode())
        status, headers, _ = await peer.response()
        assert (status, headers["allow"]) == (405, "GET, HEAD")
        assert (await peer.get("/healthz"))[0] == 200


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GARBAGE\r\n\r\n", 400),
        (b"GET /varz HTTP/1.1\r\n\r\n", 400),
        (b"GET /varz HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400),
        (b"GET /varz HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 2 * http_server.HEAD_BYTES_MAX, 431),
        (
            b"GET /varz HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n"
            + b"a" * 2 * http_server.BODY_BYTES_MAX,
            413,
        ),
    ],
)
async def test_invalid_request_is_refused_and_ends_connection(
    server: Server, raw: bytes, status: int
) -> None:
    async with connected(server) as peer:
        peer.send(raw)
        told, headers, _ = await peer.response()
        assert (told, headers["connection"]) == (status, "close")
        assert await peer.is_cut_off()


async def test_client_of_http_1_0_is_answered_and_let_go(server: Server) -> None:
    async with connected(server) as peer:
        peer.send(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert (await peer.response())[0] == 200
        assert await peer.is_cut_off()


async def test_silent_peer_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "IDLE_S_MAX", SHORT_S)
    async with connected(server) as peer:
        assert await peer.is_cut_off()


async def test_peer_that_never_finishes_its_request_is_cut_off(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_S_MAX", SHORT_S)
    async with connected(server) as peer:
        peer.send(b"GET /varz HTTP/1.1\r\nHost:")
        assert await peer.is_cut_off()


async def test_peer_that_never_reads_its_answer_is_cut_off(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "RESPONSE_S_MAX", SHORT_S)
    monitor = server._monitor
    assert monitor is not None
    async with connected(server) as peer:
        await peer.get("/healthz")
        conversations = set(monitor._conversations)
        peer.writer.transport.pause_reading()
        for _ in range(20_000):
            peer.send(b"GET /varz HTTP/1.1\r\nHost: a\r\n\r\n")
        _, unfinished = await asyncio.wait(conversations, timeout=PATIENCE_SECONDS)
        assert not unfinished


async def test_connections_beyond_bound_are_not_served(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 1)
    async with connected(server) as first:
        assert (await first.get("/healthz"))[0] == 200
        async with connected(server) as second:
            second.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await second.is_cut_off()
        assert (await first.get("/healthz"))[0] == 200


async def test_internal_error_is_logged_and_reported_without_traceback(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("private matter")

    monkeypatch.setattr(Pages, "answer", broken)
    async with connected(server) as peer:
        with caplog.at_level(logging.ERROR):
            status, _, body = await peer.get("/varz")
    assert (status, body) == (500, b"500 internal server error\n")
    assert "private matter" in caplog.text


async def test_stopped_server_lets_its_visitors_go() -> None:
    server = Server(http_port=-1)
    await server.start()
    async with connected(server) as peer:
        assert (await peer.get("/healthz"))[0] == 200
        await server.stop()
        assert await peer.is_cut_off()


async def test_base_path_moves_every_page() -> None:
    async with Server(http_port=-1, http_base_path="/nats") as server, connected(server) as peer:
        answers = {
            path: (await peer.get(path))[0] for path in ("/nats/varz", "/varz", "/nats", "/")
        }
    assert answers == {"/nats/varz": 200, "/varz": 404, "/nats": 200, "/": 404}


async def test_index_loads_nothing_from_elsewhere(server: Server) -> None:
    async with connected(server) as peer:
        _, headers, body = await peer.get("/")
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert b"http:" not in body
    assert b"https:" not in body


async def test_metrics_are_those_of_server(server: Server) -> None:
    async with connected(server) as peer:
        status, headers, body = await peer.get("/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert b"penstock_connections 0.0" in body
    assert b'penstock_account_connections{account="$G"} 0.0' in body


async def test_no_secret_is_ever_shown() -> None:
    secret = "do-not-show-this"
    authorization = Authorization(user="amy", password=secret)
    async with Server(http_port=-1, authorization=authorization) as server:
        nats_reader, nats_writer = await asyncio.open_connection("127.0.0.1", server.port)
        await nats_reader.readline()
        nats_writer.write(b'CONNECT {"user":"amy","pass":"%b"}\r\nPING\r\n' % secret.encode())
        await nats_reader.readuntil(b"PONG\r\n")
        async with connected(server) as peer:
            for path in Pages(server.service).paths:
                status, _, body = await peer.get(f"{path}?auth=1&subs=1&state=any")
                assert status in (200, 404)
                assert secret.encode() not in body, path
        nats_writer.close()
