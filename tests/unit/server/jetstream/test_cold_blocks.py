"""A block that cannot be read is tried again after a pause, and its waiters continue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import nats
import pytest

from penstock.server.jetstream.stream_driver import READ_RETRY_S
from penstock.server.server_app import Server
from penstock.store.contract import Cold
from penstock.store.filestore import FileStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from penstock.server.jetstream.stream_driver import StreamDriver

pytestmark = pytest.mark.sockets

SECONDS_MAX = 10
COLD = Cold(1)


class Reading:
    """Reads a block, unless the disk fails."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def run(self) -> None:
        self._disk.tries += 1
        if self._disk.fails:
            raise OSError("input/output error")


class Disk:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails = False
        self.tries = 0
        monkeypatch.setattr(FileStore, "fetch", lambda _store, _cold: Reading(self))
        monkeypatch.setattr(FileStore, "fetched", lambda _store, _work: None)


class Timers:
    """The event loop of an edge, whose timers go off when a test says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.due: asyncio.Queue[tuple[float, Callable[[], None]]] = asyncio.Queue()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_later(self, delay: float, call: Callable[..., None], *args: object) -> None:
        if delay == READ_RETRY_S and args == (COLD,):
            self.due.put_nowait((delay, lambda: call(*args)))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
async def driver(tmp_path: Path, disk: Disk) -> AsyncIterator[StreamDriver]:
    async with Server(jetstream=True, store_dir=str(tmp_path)) as server:
        client = await nats.connect(server.url)
        await client.jetstream().add_stream(name="S", subjects=["s"])
        runtime = server.service.jetstream
        assert runtime is not None
        [driver] = runtime.accounts["$G"].drivers
        yield driver
        await client.close()


async def test_block_that_fails_is_asked_for_again_later(
    driver: StreamDriver, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers = Timers(asyncio.get_running_loop())
    monkeypatch.setattr(driver._runtime, "loop", timers)
    disk.fails = True
    read = asyncio.Event()
    driver.fetch(COLD, read.set)
    async with asyncio.timeout(SECONDS_MAX):
        _, again = await timers.due.get()
        assert (disk.tries, read.is_set()) == (1, False)
        disk.fails = False
        again()
        await read.wait()
    assert disk.tries == 2
    assert timers.due.empty()


async def test_stream_that_goes_meanwhile_is_let_go_of(
    driver: StreamDriver, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers = Timers(asyncio.get_running_loop())
    monkeypatch.setattr(driver._runtime, "loop", timers)
    closed: list[str] = []
    monkeypatch.setattr(driver.host, "let_go", lambda: closed.append("files"))
    disk.fails = True
    driver.fetch(COLD)
    async with asyncio.timeout(SECONDS_MAX):
        _, again = await timers.due.get()
    driver.host.close()
    driver.let_go()
    assert closed == [], "a reader may still use it"
    again()
    driver._runtime.committer.close()  # waits for the disk thread that closes them
    assert closed == ["files"]
    assert disk.tries == 1
