"""The command line in tests: run in this process, or as one that can be stopped.

`cli` runs a whole command line against the server under test and gives what it printed and its
exit code. Contexts of the current user are out of reach: each test has a directory and an
environment of its own.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import signal
import subprocess
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cli import main as entry
from penstock.cli.server_target import VARIABLES
from support.assets import unique
from support.patience import PATIENCE_SECONDS
from support.servers import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.servers import Implementation, ServerPool, ServerUnderTest

__all__ = ["Cli", "Ran", "cli", "command_line", "jetstream_server", "name"]

STORE_FLAGS = ("-js", "-sd", "store")

_anchored: set[int] = set()


@dataclass(frozen=True)
class Ran:
    """What a command line came to."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def lines(self) -> list[Any]:
        """A document for each line."""
        return [json.loads(line) for line in self.out.splitlines()]


class Streaming:
    """A command line in a process of its own, until it is stopped."""

    def __init__(self, arguments: list[str], errors: Path) -> None:
        self.errors = errors
        command = [sys.executable, "-W", "ignore", "-m", "penstock", *arguments]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)

    def wait_for(self, text: str) -> None:
        """Until it has said so on the side."""
        until(
            lambda: text in self.errors.read_text(), text, PATIENCE_SECONDS, self.errors.read_text
        )

    def read_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode()

    def stop(self, number: signal.Signals = signal.SIGINT) -> Ran:
        self.process.send_signal(number)
        return self.end()

    def end(self) -> Ran:
        """What it came to, now that it has ended."""
        out, _ = self.process.communicate(timeout=PATIENCE_SECONDS)
        return Ran(self.process.returncode, out, self.errors.read_text())

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class Cli:
    """`penstock` on a command line, with a server as its default."""

    def __init__(self, directory: Path, server: ServerUnderTest | None = None) -> None:
        self.directory = directory
        self.server = server
        self._streaming: list[Streaming] = []

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Ran:
        """Run it here and now."""
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        source = io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
        before, sys.argv, sys.stdin = (sys.argv, sys.stdin), ["penstock", *arguments], source
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = entry.main()
        finally:
            sys.argv, sys.stdin = before
        out.flush()
        assert isinstance(out.buffer, io.BytesIO)
        return Ran(code, out.buffer.getvalue(), err.getvalue())

    def done(self, *arguments: str, stdin: bytes = b"") -> Ran:
        """Run it; it must end well."""
        ran = self(*arguments, stdin=stdin)
        assert ran.code == 0, ran.err
        return ran

    def refused(self, *arguments: str, code: int = 1) -> str:
        """Run it; it must fail with one line, which is returned."""
        ran = self(*arguments)
        assert ran.code == code, (ran.out, ran.err)
        assert len(ran.err.splitlines()) == 1, ran.err
        return ran.err.strip()

    def start(self, *arguments: str) -> Streaming:
        """Run it beside us."""
        errors = self.directory / f"streaming-{len(self._streaming)}.err"
        self._streaming.append(Streaming(list(arguments), errors))
        return self._streaming[-1]

    def close(self) -> None:
        for one in self._streaming:
            one.kill()


@pytest.fixture
def command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """The command line with nothing configured and no server."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    cli = Cli(tmp_path)
    yield cli
    cli.close()
    with warnings.catch_warnings():
        # The client library leaves sockets of refused connections to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def jetstream_server(pool: ServerPool, implementation: Implementation) -> ServerUnderTest:
    """The shared server with JetStream."""
    return pool.get(implementation, flags=STORE_FLAGS)


@pytest.fixture
def cli(
    command_line: Cli, jetstream_server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> Cli:
    """The command line, talking to the server under test; its streams outlive the test."""
    monkeypatch.setenv("NATS_URL", jetstream_server.url)
    command_line.server = jetstream_server
    if jetstream_server.pid not in _anchored:
        # With its last stream the reference removes a directory in the background.
        command_line.done("stream", "add", "ANCHOR")
        _anchored.add(jetstream_server.pid)
    return command_line


@pytest.fixture
def name() -> str:
    """A name for a stream or bucket that no other test has."""
    return unique("CLI")
