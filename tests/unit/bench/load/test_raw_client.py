"""Connections: what a URL means, and that every failure is a sentence."""

import json
import socket
from collections.abc import Callable
from threading import Event
from typing import Protocol

import pytest

from penstock.bench.bench_error import BenchError
from penstock.bench.load import load_generator
from penstock.bench.load.raw_client import ServerEndpoint, deadline_after, open_client
from penstock.bench.measurement import check_exact

pytestmark = pytest.mark.sockets


class Script(Protocol):
    endpoint: ServerEndpoint
    heard: bytearray
    over: Event


ScriptedServer = Callable[[bytes], Script]


def connect_options(url: str) -> dict[str, object]:
    line = ServerEndpoint.parse(url).connect_line()
    options = json.loads(line.removeprefix(b"CONNECT "))
    assert isinstance(options, dict)
    return options


def test_url_may_leave_out_scheme_and_port() -> None:
    assert ServerEndpoint.parse("example.org") == ServerEndpoint("example.org", 4222)
    assert ServerEndpoint.parse("nats://[::1]:5") == ServerEndpoint("::1", 5)


def test_credentials_of_url_become_token_or_user() -> None:
    assert connect_options("nats://s%40cret@h")["auth_token"] == "s@cret"
    assert connect_options("nats://me:pw@h")["user"] == "me"
    assert connect_options("nats://me:pw@h")["pass"] == "pw"


@pytest.mark.parametrize("url", ["http://h", "nats://", "nats://h:999999", "nats://h:x"])
def test_url_that_cannot_be_measured_is_refused(url: str) -> None:
    with pytest.raises(BenchError):
        ServerEndpoint.parse(url)


def test_missing_server_is_reported_with_its_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
    with pytest.raises(BenchError, match=rf"cannot connect to 127.0.0.1:{port}"):
        open_client(ServerEndpoint(host, port))


def test_error_of_server_is_reported_with_its_text(scripted: ScriptedServer) -> None:
    script = scripted(b"-ERR 'Stale Connection'\r\n")
    with open_client(script.endpoint) as client, pytest.raises(BenchError, match="Stale Conn"):
        client.flush(deadline_after(10))


def test_closed_connection_is_reported_as_lost(scripted: ScriptedServer) -> None:
    script = scripted(b"")
    with open_client(script.endpoint) as client, pytest.raises(BenchError, match="connection lost"):
        client.flush(deadline_after(10))


def test_receiver_gives_up_at_its_deadline(scripted: ScriptedServer) -> None:
    with open_client(scripted(b"").endpoint) as client:
        tally = load_generator.Tally(1)
        with pytest.raises(BenchError, match="not finished in time"):
            load_generator.collect(client.fd, client.scanner, tally, load_generator.monotonic_ns())


def test_receiver_stops_at_expected_count_and_answers_pings(
    scripted: ScriptedServer,
) -> None:
    script = scripted(b"MSG a 1 2\r\nok\r\nPING\r\nMSG a 1 0\r\n\r\n")
    tally = load_generator.Tally(2)
    with open_client(script.endpoint) as client:
        client.sock.sendall(b"go")
        start_ns, end_ns = load_generator.collect(
            client.fd, client.scanner, tally, deadline_after(10)
        )
    assert start_ns <= end_ns
    assert tally.count == 2
    assert script.over.wait(10)
    assert script.heard == b"PONG\r\n"


def test_receiver_that_loses_its_server_reports_how_far_it_came(scripted: ScriptedServer) -> None:
    script = scripted(b"MSG a 1 0\r\n\r\n")
    with open_client(script.endpoint) as client:
        client.sock.sendall(b"go")
        with pytest.raises(BenchError, match="after 1 messages"):
            load_generator.collect(
                client.fd, client.scanner, load_generator.Tally(5), deadline_after(10)
            )


def test_delivery_too_many_fails_run(scripted: ScriptedServer) -> None:
    script = scripted(b"MSG a 1 0\r\n\r\n" * 2 + b"PONG\r\n")
    with (
        open_client(script.endpoint) as client,
        pytest.raises(BenchError, match="1 deliveries expected, 2 counted"),
    ):
        check_exact([client], 1, deadline_after(10))


def test_deliveries_out_of_order_fail_run(scripted: ScriptedServer) -> None:
    script = scripted(b"".join(b"MSG a 1 8\r\n%08d\r\n" % n for n in (0, 2, 1)) + b"PONG\r\n")
    with open_client(script.endpoint) as client:
        client.scanner.expect_stamps(3)
        with pytest.raises(BenchError, match="2 of 3 deliveries were out of order"):
            check_exact([client], 3, deadline_after(10))
