"""Many streams and consumers on one server: the cost of each, and whether anything slows down.

    python -m benchmarks.assets --json out/assets.json   # 10,000 and 100,000, both servers
    python -m benchmarks.assets --streams 500 --consumers 1000 --only penstock

Servers run with their defaults: Penstock has everything on disk before it replies, the reference
syncs later. Streams have one subject each, consumers are durable, pull, with acks; nothing is
published. `tools/assets_page.py` fills the table of docs/benchmarks.md from the file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.bench.bench_error import BenchError
from penstock.bench.load.asset_control import open_control
from penstock.bench.load.raw_client import ServerEndpoint
from penstock.bench.load.request_wave import ask_all
from penstock.bench.process_stats import cpu_seconds, filesystem, rss_bytes
from penstock.bench.server_process import our_command, reference_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.bench.load.asset_control import Control
    from penstock.bench.server_process import ServerCommand

JSON_VERSION = 1
STREAMS, CONSUMERS = 10_000, 100_000
QUESTIONS = 100
IDLE_S = 5.0
READY_S = 900.0
STOP_S = 60.0
POLL_S = 0.01

Json = dict[str, Any]


class Server:
    """A server over one directory, across several restarts."""

    def __init__(self, command: ServerCommand, folder: Path) -> None:
        self._command = command
        self._folder = folder
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, streams: int) -> tuple[ServerEndpoint, float]:
        """Start the server; return its address, and the seconds until it knew all its streams."""
        began = time.monotonic()
        flags = ["-js", "-sd", str(self._folder / "store"), "-a", "127.0.0.1", "-p", "-1"]
        with (self._folder / "log").open("ab") as log:
            self._child = subprocess.Popen(
                [*self._command.argv, *flags, "--ports_file_dir", str(self._folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        while True:
            endpoint = self._endpoint()
            if endpoint is not None and _known(endpoint) == streams:
                return endpoint, time.monotonic() - began
            if time.monotonic() > began + READY_S or self._child.poll() is not None:
                raise BenchError(f"{self._command.label} does not come up")
            time.sleep(POLL_S)

    def _endpoint(self) -> ServerEndpoint | None:
        try:
            ports = json.loads((self._folder / f"nats-server_{self.pid}.ports").read_text())
        except (OSError, ValueError):
            return None
        return ServerEndpoint.parse(ports["nats"][0])

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def stop(self) -> float | None:
        """Return the seconds of an orderly shutdown; None if it had to be killed."""
        assert self._child is not None
        began = time.monotonic()
        self._child.terminate()
        try:
            self._child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return None
        return time.monotonic() - began

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    @property
    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def _known(endpoint: ServerEndpoint) -> int:
    try:
        with open_control(endpoint) as control:
            return int(control.ask("$JS.API.STREAM.NAMES")["total"])
    except (BenchError, OSError):
        return -1


def measure(command: ServerCommand, streams: int, consumers: int, place: str | None) -> Json:
    with tempfile.TemporaryDirectory(prefix="penstock-assets-", dir=place) as name:
        server = Server(command, Path(name))
        try:
            return _measure(server, streams, consumers, Path(name))
        finally:
            server.kill()


def _measure(server: Server, streams: int, consumers: int, folder: Path) -> Json:
    endpoint, start_s = server.start(0)
    figures: Json = {"start_s": start_s, "start_rss": rss_bytes(server.pid)}
    figures["streams"] = ask_all(endpoint, list(_streams(streams)))
    figures["streams_rss"] = rss_bytes(server.pid)
    figures["consumers"] = ask_all(endpoint, list(_consumers(streams, consumers)))
    figures["consumers_rss"] = rss_bytes(server.pid)
    with open_control(endpoint) as control:
        figures["answers_ms"] = {
            what: _latency(control, subject) for what, subject in _questions(streams).items()
        }
    figures["open_files"] = server.open_files
    before = cpu_seconds(server.pid)
    time.sleep(IDLE_S)
    figures["idle_cpu"] = (cpu_seconds(server.pid) - before) / IDLE_S
    figures["disk_bytes"] = sum(
        entry.stat().st_blocks * 512 for entry in folder.rglob("*") if entry.is_file()
    )
    figures["stop_s"] = server.stop()
    figures["restart_s"] = server.start(streams)[1]
    figures["restart_rss"] = rss_bytes(server.pid)
    return figures


def _streams(count: int) -> Iterator[tuple[str, Json]]:
    for number in range(count):
        name = f"S{number}"
        yield f"$JS.API.STREAM.CREATE.{name}", {"name": name, "subjects": [f"orders.{number}.>"]}


def _consumers(streams: int, count: int) -> Iterator[tuple[str, Json]]:
    for number in range(count):
        stream, name = f"S{number % streams}", f"C{number // streams}"
        config = {"durable_name": name, "ack_policy": "explicit"}
        yield (
            f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{name}",
            {"stream_name": stream, "config": config},
        )


def _questions(streams: int) -> dict[str, str]:
    one = f"S{streams // 2}"
    return {
        "STREAM.INFO": f"$JS.API.STREAM.INFO.{one}",
        "STREAM.NAMES": "$JS.API.STREAM.NAMES",
        "STREAM.LIST": "$JS.API.STREAM.LIST",
        "CONSUMER.INFO": f"$JS.API.CONSUMER.INFO.{one}.C0",
        "CONSUMER.LIST": f"$JS.API.CONSUMER.LIST.{one}",
        "INFO": "$JS.API.INFO",
    }


def _latency(control: Control, subject: str) -> Json:
    took = []
    for _ in range(QUESTIONS):
        began = time.perf_counter()
        control.ask(subject)
        took.append((time.perf_counter() - began) * 1000)
    took.sort()
    return {"median": took[len(took) // 2], "max": took[-1]}


def main() -> int:
    options = _parser().parse_args()
    commands = [our_command(options.ours_cmd), reference_command(options.reference_cmd)]
    wanted = [each for each in commands if options.only in ("", each.label)]
    answer: Json = {
        "version": JSON_VERSION,
        "taken": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "file_system": filesystem(options.place or tempfile.gettempdir()),
        },
        "streams": options.streams,
        "consumers": options.consumers,
        "servers": {},
    }
    for each in wanted:
        figures = measure(each, options.streams, options.consumers, options.place)
        answer["servers"][each.label] = figures
        print(each.label, json.dumps(figures), flush=True)
        if options.json:  # write partial results: the next server may take long
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(answer, indent=1) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.assets", description=__doc__)
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--consumers", type=int, default=CONSUMERS)
    parser.add_argument("--only", default="", help="penstock or nats-server")
    parser.add_argument("--ours-cmd")
    parser.add_argument("--reference-cmd")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--place", help="directory on the file system to measure")
    return parser


if __name__ == "__main__":
    sys.exit(main())
