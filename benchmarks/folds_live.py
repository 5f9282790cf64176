"""Speed of folds over a live bucket: load, resume and follow, on Penstock and the reference.

    python -m benchmarks.folds_live --json out/folds.json      # a million keys, some minutes
    python -m benchmarks.folds_live --quick                    # fifty thousand keys, a quick check

Keys of 23 bytes in random order, values of 100 random bytes, one bucket per server. Every fold runs
in its own process, so CPU time and memory are its own; nats-py's watch reads a twentieth of the
keys in the same run. Each fold must end with exactly the keys and the cursor of the bucket.
`tools/folds_page.py` fills docs/benchmarks.md from the file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import resource
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.bench.process_stats import cpu_seconds, filesystem
from penstock.bench.server_process import our_command, reference_command, running

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.bench.server_process import RunningServer

JSON_VERSION = 1
KEYS = 1_000_000
QUICK_KEYS = 50_000
VALUE_BYTES = 100
GROUPS = 20
"""nats-py reads one group of keys out of this many."""
DELTA = 1_000
FOLLOWED_SHARE = 5
"""Fraction of the keys that is written again while a fold follows."""
CHUNK = 10_000
STORES = ("append-log", "sqlite", "lmdb", "rocksdb")
NATS_PY = "nats-py watch"
BUCKET = "bench"
CHILD_SECONDS_MAX = 300


@dataclass(frozen=True)
class Figure:
    """One measurement of one process; CPU seconds of the process, and of the server meanwhile."""

    server: str
    store: str
    work: str
    count: int
    seconds: float
    cpu: float
    server_cpu: float
    rss_before: int
    rss_peak: int


# -- writing, over a plain socket


def key_of(number: int) -> str:
    return f"node.r{number % GROUPS:02d}.{number:014d}"


class Writer:
    """Writes puts and waits for the ack of the last of each chunk: a server drops excess
    messages."""

    def __init__(self, host: str, port: int) -> None:
        self._chance = random.Random(1)
        self._values = [self._chance.randbytes(VALUE_BYTES) for _ in range(CHUNK)]
        self._wire = socket.create_connection((host, port))
        self._wire.sendall(b'CONNECT {"verbose":false}\r\nSUB acks 1\r\n')

    def put(self, numbers: list[int]) -> None:
        for first in range(0, len(numbers), CHUNK):
            chunk = numbers[first : first + CHUNK]
            head = f"PUB $KV.{BUCKET}."
            lines = [
                f"{head}{key_of(number)} {VALUE_BYTES}\r\n".encode() + value + b"\r\n"
                for number, value in zip(chunk[:-1], self._values, strict=False)
            ]
            last = f"{head}{key_of(chunk[-1])} acks {VALUE_BYTES}\r\n".encode()
            self._wire.sendall(b"".join((*lines, last, self._values[-1], b"\r\n")))
            self._heard()

    def _heard(self) -> None:
        heard = b""
        while b'"seq":' not in heard:
            piece = self._wire.recv(65536)
            if not piece:
                raise SystemExit("the server closed the connection")
            heard = heard[-8:] + piece

    def close(self) -> None:
        self._wire.close()


# -- child process


async def fold_child(work: str, url: str, store: str, path: str, target: int) -> dict[str, Any]:
    """Open a fold and wait until it has everything; to follow, wait for the line `go` first."""
    from penstock.fold import Fold

    before = resident()
    begun = clocks()
    async with Fold.open(f"{url}/{BUCKET}", path, backend=store) as fold:
        await fold.ready()
        if work == "follow":
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            begun = clocks()
        await fold.wait_for(target)
        ended = clocks()
        return told(begun, ended, before, fold.count())


async def nats_py_child(url: str) -> dict[str, Any]:
    """Do the same with the client library alone: a dict, without a disk."""
    import nats

    client = await nats.connect(url)
    bucket = await client.jetstream().key_value(BUCKET)
    before, begun = resident(), clocks()
    held: dict[str, bytes] = {}
    watcher = await bucket.watch("node.r00.>")
    async for entry in watcher:
        if entry is None:  # end of the initial values
            break
        held[entry.key] = entry.value or b""
    ended = clocks()
    await watcher.stop()  # type: ignore[no-untyped-call]
    await client.close()
    return told(begun, ended, before, len(held))


def clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def told(
    begun: tuple[float, float], ended: tuple[float, float], before: int, count: int
) -> dict[str, Any]:
    return {
        "seconds": ended[0] - begun[0],
        "cpu": ended[1] - begun[1],
        "rss_before": before,
        "rss_peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "entries": count,
    }


# -- one server


class Bench:
    """All folds of one server's bucket."""

    def __init__(self, server: RunningServer, keys: int, directory: Path) -> None:
        self._server = server
        self._keys = keys
        self._directory = directory
        host, port = server.endpoint.host, server.endpoint.port
        self._url = f"nats://{host}:{port}"
        self._writer = Writer(host, port)
        self._last = 0
        self.figures: list[Figure] = []

    async def make_bucket(self) -> None:
        from penstock.kv import BucketConfig, NatsConfig, NatsConnection

        async with NatsConnection(NatsConfig.of(self._url)) as connection:
            await connection.bucket(BUCKET, BucketConfig())

    def put(self, numbers: list[int]) -> None:
        self._writer.put(numbers)
        self._last += len(numbers)

    def run(self, stores: Iterable[str]) -> list[Figure]:
        asyncio.run(self.make_bucket())
        numbers = list(range(self._keys))
        random.Random(2).shuffle(numbers)
        self.put(numbers)
        for store in stores:
            self._measure("hydrate", store, self._keys)
        self._measure("hydrate", NATS_PY, len(range(0, self._keys, GROUPS)))
        self.put(numbers[:DELTA])
        for store in stores:
            self._measure("resume", store, DELTA)
        for store in stores:
            self._measure("follow", store, self._keys // FOLLOWED_SHARE)
        self._writer.close()
        return self.figures

    def _measure(self, work: str, store: str, count: int) -> None:
        target = self._last + (count if work == "follow" else 0)
        path = str(self._directory / store)
        words = [sys.executable, "-m", "benchmarks.folds_live", "--child", work]
        child = subprocess.Popen(
            [*words, self._url, store, path, str(target)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        server_cpu = cpu_seconds(self._server.pid)
        try:
            if work == "follow" and _next_line(child) == b"ready\n":
                server_cpu = cpu_seconds(self._server.pid)
                self._follow(child, count)
            out, _ = child.communicate(timeout=CHILD_SECONDS_MAX)
        finally:
            child.kill()  # a fold waits for its server indefinitely
            child.wait()
        if child.returncode:
            raise SystemExit(f"{work} of {store} on {self._server.label} failed")
        answer = json.loads(out)
        entries = answer.pop("entries")
        wanted = count if store == NATS_PY else self._keys
        if entries != wanted:
            raise SystemExit(f"{work} of {store}: {entries} keys, not {wanted}")
        server_cpu = cpu_seconds(self._server.pid) - server_cpu
        figure = Figure(self._server.label, store, work, count, server_cpu=server_cpu, **answer)
        self.figures.append(figure)
        show(figure)

    def _follow(self, child: subprocess.Popen[bytes], count: int) -> None:
        assert child.stdin is not None
        child.stdin.write(b"go\n")
        child.stdin.flush()
        self.put([number % self._keys for number in range(count)])


def _next_line(child: subprocess.Popen[bytes]) -> bytes:
    assert child.stdout is not None
    return child.stdout.readline()


def show(one: Figure) -> None:
    rates = f"{one.count / one.cpu / 1e3:8.1f} k/CPU-s {one.count / one.seconds / 1e3:8.1f} k/s"
    rest = f"{one.seconds:6.2f} s, server {one.server_cpu:5.2f} CPU-s"
    memory = f"RSS {one.rss_before >> 20} -> {one.rss_peak >> 20} MiB"
    print(f"{one.server:12} {one.work:8} {one.store:14} {rates} {rest}, {memory}", flush=True)


def main() -> int:
    options = _parser().parse_args()
    if options.child:
        return child_main(options.child)
    keys = QUICK_KEYS if options.quick else options.keys
    stores = options.stores.split(",")
    figures: list[Figure] = []
    for command in (our_command(), reference_command()):
        with (
            running(command, jetstream="") as server,
            tempfile.TemporaryDirectory(dir=options.place) as directory,
        ):
            figures += Bench(server, keys, Path(directory)).run(stores)
            kind = filesystem(directory)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(answer_of(figures, keys, kind), indent=1) + "\n")
    return 0


def child_main(words: list[str]) -> int:
    work, url, store, path, target = words
    if store == NATS_PY:
        answer = asyncio.run(nats_py_child(url))
    else:
        answer = asyncio.run(fold_child(work, url, store, path, int(target)))
    print(json.dumps(answer))
    return 0


def answer_of(figures: list[Figure], keys: int, kind: str) -> dict[str, Any]:
    return {
        "version": JSON_VERSION,
        "taken": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "architecture": platform.machine(),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "filesystem": kind,
        },
        "keys": keys,
        "value_bytes": VALUE_BYTES,
        "figures": [asdict(one) for one in figures],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--quick", action="store_true", help="few keys")
    parser.add_argument("--stores", default=",".join(STORES))
    parser.add_argument("--place", help="directory on the file system to measure")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
