"""When a server says it is well."""

from __future__ import annotations

import asyncio

import pytest

from penstock.server.config.options import Options, WebsocketOptions
from penstock.server.monitor.healthz import HealthOptions, healthz
from penstock.server.server_state import ServerState


@pytest.fixture
async def service() -> ServerState:
    return ServerState(Options(), asyncio.get_running_loop())


async def test_server_that_serves_is_well(service: ServerState) -> None:
    status, health = healthz(service, HealthOptions())
    assert (status, health.status, health.error) == (200, "ok", "")


async def test_lame_duck_is_not_ready_for_connections() -> None:
    options = Options(websocket=WebsocketOptions(port=-1, no_tls=True))
    service = ServerState(options, asyncio.get_running_loop())
    service.lame_duck = True
    status, health = healthz(service, HealthOptions())
    assert (status, health.status) == (500, "error")
    assert health.error == "failed to be ready for connections after 1ms: websocket, server"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (HealthOptions(stream="s"), '"account" must not be empty when checking stream health'),
        (HealthOptions(consumer="c"), '"stream" must not be empty when checking consumer health'),
    ],
)
async def test_question_without_its_context_is_bad(
    service: ServerState, options: HealthOptions, text: str
) -> None:
    status, health = healthz(service, options)
    assert (status, health.error) == (400, text)


async def test_details_put_error_in_list(service: ServerState) -> None:
    status, health = healthz(service, HealthOptions(stream="s", details=True))
    assert (status, health.error) == (400, "")
    assert [error.type for error in health.errors] == ["BAD_REQUEST"]
