"""An account that a reload adds is recovered in slices, and its requests wait for the end."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import nats
import pytest

from penstock.server.jetstream import recovery_tasks
from penstock.server.server_app import Server

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.sockets

STREAMS = 20
AMY = "A { jetstream: enabled, users: [{user: amy, password: a}] }"
BOB = "B { jetstream: enabled, users: [{user: bob, password: b}] }"


def configured(directory: Path, *accounts: str) -> Path:
    file = directory / "server.conf"
    file.write_text(
        f'listen: "127.0.0.1:-1"\njetstream {{ store_dir: "{directory}/store" }}\n'
        f"accounts {{ {', '.join(accounts)} }}\n"
    )
    return file


async def fill(server: Server) -> None:
    client = await nats.connect(server.url, user="bob", password="b")
    for number in range(STREAMS):
        await client.jetstream().add_stream(name=f"S{number}", subjects=[f"s{number}"])
        await client.jetstream().publish(f"s{number}", b"kept")
    await client.close()


async def test_reload_recovers_new_account_stream_by_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery_tasks, "RECOVERY_BUDGET_NS", 0)
    file = configured(tmp_path, AMY, BOB)
    async with Server(config=file) as server:
        await fill(server)
    configured(tmp_path, AMY)
    async with Server(config=file) as server:
        runtime = server.service.jetstream
        assert runtime is not None
        configured(tmp_path, AMY, BOB)
        server.reload()
        account = runtime.accounts["B"]
        assert len(account.assets.hosts) == 0  # nothing is opened within the reload itself
        seen = set()
        while len(account.drivers) < STREAMS:
            seen.add((len(account.assets.hosts), len(account.drivers)))
            await asyncio.sleep(0)
        assert runtime.recoveries.slices >= 2 * STREAMS
        assert {hosts for hosts, _ in seen} >= set(range(1, STREAMS))
        assert {drivers for _, drivers in seen} >= set(range(1, STREAMS))


async def test_requests_wait_until_account_is_recovered(tmp_path: Path) -> None:
    file = configured(tmp_path, AMY, BOB)
    async with Server(config=file) as server:
        await fill(server)
    configured(tmp_path, AMY)
    async with Server(config=file) as server:
        runtime = server.service.jetstream
        assert runtime is not None
        held = []
        monkeypatched, runtime.recoveries._soon = runtime.recoveries._soon, held.append
        configured(tmp_path, AMY, BOB)
        server.reload()
        client = await nats.connect(server.url, user="bob", password="b")
        asked = [
            asyncio.create_task(client.request("$JS.API.STREAM.INFO.S7", b"", timeout=60)),
            asyncio.create_task(client.request("$JS.API.STREAM.NAMES", b"", timeout=60)),
        ]
        await client.flush()
        assert not any(task.done() for task in asked)
        runtime.recoveries._soon = monkeypatched
        monkeypatched(held.pop())
        info, names = [json.loads((await task).data) for task in asked]
        assert info["state"]["messages"] == 1
        assert names["total"] == STREAMS
        assert (await client.jetstream().publish("s7", b"more")).seq == 2
        await client.close()


async def test_server_that_stops_meanwhile_leaves_the_rest_as_it_is(tmp_path: Path) -> None:
    file = configured(tmp_path, AMY, BOB)
    async with Server(config=file) as server:
        await fill(server)
    configured(tmp_path, AMY)
    async with Server(config=file) as server:
        configured(tmp_path, AMY, BOB)
        server.reload()
    async with Server(config=file) as server:
        runtime = server.service.jetstream
        assert runtime is not None
        assert len(runtime.accounts["B"].assets.hosts) == STREAMS
