"""Monitoring of servers in special states: behind TLS, going away, without their port."""

from __future__ import annotations

import re
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from support.monitor import fetch
from support.servers import LOOPBACK, ServerStartError, until
from support.wire import Wire

if TYPE_CHECKING:
    from support.servers import Starter
    from support.tls import Certificates


def test_tls_connection_shows_its_certificate_on_request(
    start: Starter, certificates: Certificates
) -> None:
    server = start("http_port: -1\n" + certificates.verifying("verify: true"))
    with Wire(server.address) as wire:
        wire.upgrade(certificates.context(certificates.with_name))
        wire.connect()
        plain = fetch(f"{server.http_url}/connz").json["connections"][0]
        asked = fetch(f"{server.http_url}/connz?auth=1").json["connections"][0]
    assert plain["tls_version"] == "1.3"
    assert plain["tls_cipher_suite"].startswith("TLS_")
    assert "tls_peer_certs" not in plain
    shown = asked["tls_peer_certs"][0]  # the reference shows what else the client sent
    assert list(shown) == ["subject", "spki_sha256", "cert_sha256"]
    assert shown["subject"] == "CN=bob"


def test_lame_duck_is_not_healthy(start: Starter) -> None:
    server = start('http_port: -1\nlame_duck_grace_period: "20s"\nlame_duck_duration: "60s"\n')
    with Wire(server.address) as wire:
        wire.connect()
        url = f"{server.http_url}/healthz"
        assert fetch(url).status == 200
        server.send_signal(signal.SIGUSR2)
        until(lambda: fetch(url).status == 500, "an unhealthy server")
        assert fetch(url).json == {
            "status": "error",
            "error": "failed to be ready for connections after 1ms: server",
        }


def test_occupied_monitoring_port_prevents_the_start(start: Starter) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerStartError, match="can't listen to the monitor port"):
            start(f"http_port: {port}\n")


def test_varz_shows_client_port_that_was_bound(start: Starter) -> None:
    server = start("", "-m", "-1")
    varz = fetch(f"{server.http_url}/varz").json
    assert (varz["port"], varz["http_host"]) == (server.port, LOOPBACK)
    assert varz["config_digest"] == ""


def test_varz_shows_the_other_ports_that_were_bound(start: Starter) -> None:
    server = start(
        """
        http_port: -1
        websocket { host: 127.0.0.1, port: -1, no_tls: true }
        cluster { name: c, host: 127.0.0.1, port: -1 }
        """
    )
    varz = fetch(f"{server.http_url}/varz").json
    assert varz["websocket"]["port"] == int(server.websocket_url.rpartition(":")[2])
    assert varz["cluster"]["cluster_port"] > 0
    assert list(varz["cluster"]) == [
        "name",
        "addr",
        "cluster_port",
        "auth_timeout",
        "tls_timeout",
        "pool_size",
    ]


def test_varz_shows_advertised_address(start: Starter) -> None:
    server = start('http_port: -1\nclient_advertise: "nats.example:99"\n')
    varz = fetch(f"{server.http_url}/varz").json
    assert (varz["host"], varz["port"]) == ("nats.example", 99)


def test_stacks_name_function_and_no_secret(start: Starter) -> None:
    server = start("http_port: -1\nauthorization { user: amy, password: amy-secret }\n")
    with Wire(server.address) as wire:
        wire.connect(user="amy", **{"pass": "amy-secret"})
        before = fetch(f"{server.http_url}/varz").json["http_req_stats"]
        stacks = fetch(f"{server.http_url}/stacksz")
        after = fetch(f"{server.http_url}/varz").json["http_req_stats"]
    assert stacks.status == 200
    assert re.search(r"stacksz", stacks.text, re.IGNORECASE)
    assert re.search(r"^(thread|goroutine) \d+ \[", stacks.text)
    assert "amy" not in stacks.text
    assert {**before, "/varz": before["/varz"] + 1} == after, "it is not counted"
