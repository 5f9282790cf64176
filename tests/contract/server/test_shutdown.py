"""The end of a server as its clients see it: at once, or after a lame duck's grace."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from support.patience import PATIENCE_SECONDS
from support.servers import until
from support.wire import Wire

if TYPE_CHECKING:
    from support.servers import Starter

LAME_DUCK = 'lame_duck_duration: "30s"\nlame_duck_grace_period: "{}"\n'
PATIENT = LAME_DUCK.format("20s")
HASTY = LAME_DUCK.format("50ms")


def _modern(address: tuple[str, int]) -> Wire:
    wire = Wire(address)
    wire.send('CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
    wire.expect("PONG")
    wire.expect_info()
    return wire


def test_lame_duck_mode_notifies_clients(start: Starter) -> None:
    server = start(PATIENT)
    with _modern(server.address) as wire:
        server.send_signal(signal.SIGUSR2)
        told = wire.expect_info()
        assert told["ldm"] is True
        assert told["server_id"] == wire.info["server_id"]
        assert "connect_info" not in told


def test_lame_duck_mode_does_not_notify_old_clients(start: Starter) -> None:
    server = start(PATIENT)
    with _modern(server.address) as modern, Wire(server.address) as old:
        old.connect()
        server.send_signal(signal.SIGUSR2)
        modern.expect_info()
        old.expect_quiet()


def test_lame_duck_server_still_serves(start: Starter) -> None:
    server = start(PATIENT)
    with _modern(server.address) as wire:
        server.send_signal(signal.SIGUSR2)
        wire.expect_info()
        wire.send("SUB foo 1\r\nPUB foo 2\r\nhi\r\n")
        wire.expect("MSG foo 1 2", "hi")


def test_lame_duck_server_accepts_no_new_clients(start: Starter) -> None:
    server = start(PATIENT)
    with _modern(server.address) as wire:
        server.send_signal(signal.SIGUSR2)
        wire.expect_info()
        with pytest.raises(ConnectionRefusedError):
            Wire(server.address)


def test_lame_duck_server_closes_its_clients_and_exits_with_0(start: Starter) -> None:
    server = start(HASTY)
    with _modern(server.address) as wire:
        server.send_signal(signal.SIGUSR2)
        wire.expect_info()
        wire.expect_closed()
    assert server.process.wait(PATIENCE_SECONDS) == 0


def test_lame_duck_server_without_clients_exits_at_once(start: Starter) -> None:
    server = start(PATIENT)
    server.send_signal(signal.SIGUSR2)
    assert server.process.wait(PATIENCE_SECONDS) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_shutdown_closes_clients_without_error_line(start: Starter, number: signal.Signals) -> None:
    server = start()
    with _modern(server.address) as wire:
        server.send_signal(number)
        wire.expect_closed()


def test_messages_delivered_before_shutdown_arrive(start: Starter) -> None:
    server = start()
    with Wire(server.address) as subscriber, Wire(server.address) as publisher:
        subscriber.connect()
        subscriber.send("SUB foo 1\r\n")
        subscriber.expect_quiet()
        publisher.connect()
        publisher.send("PUB foo 1000\r\n" + "x" * 1000 + "\r\n")
        publisher.expect_quiet()
        server.send_signal(signal.SIGTERM)
        subscriber.expect("MSG foo 1 1000", "x" * 1000)
        subscriber.expect_closed()


def test_kill_closes_client_connections(start: Starter) -> None:
    server = start()
    with Wire(server.address) as wire:
        wire.connect()
        server.kill()
        wire.expect_closed()
    until(lambda: not server.alive, "the process ended")
