"""Listeners that are bound to every address: both families, and where each is shown."""

from __future__ import annotations

import json
import re
import urllib.request
from typing import TYPE_CHECKING

import pytest

from support.servers import until
from support.wire import Wire

if TYPE_CHECKING:
    from support.servers import ServerUnderTest, Starter


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_unspecified_address_listens_on_both_families(start: Starter, host: str) -> None:
    server = start("", "-a", host, "-m", "-1")
    shown = f"[{host}]" if ":" in host else host
    server.wait_for_log(rf"Listening for client connections on {re.escape(shown)}:{server.port}\n")
    listed = json.loads(server.ports_path.read_text())
    ours = {f"nats://127.0.0.1:{server.port}", f"nats://[::1]:{server.port}"}
    assert ours <= set(listed["nats"])
    assert listed["nats"][0] == f"nats://127.0.0.1:{server.port}"
    assert len(listed["monitoring"]) == len(listed["nats"])
    for peer in ("127.0.0.1", "::1"):
        with Wire((peer, server.port)) as wire:
            wire.connect()
            assert (wire.info["host"], wire.info["client_ip"]) == (host, peer)
            with urllib.request.urlopen(f"{server.http_url}/connz") as page:
                assert [one["ip"] for one in json.load(page)["connections"]] == [peer]
        until(lambda: _connections(server) == 0, "the client is closed")
    with urllib.request.urlopen(f"{listed['monitoring'][1]}/varz") as page:
        assert json.load(page)["host"] == host


def _connections(server: ServerUnderTest) -> int:
    with urllib.request.urlopen(f"{server.http_url}/connz") as page:
        return len(json.load(page)["connections"])
