"""Startup time of a server until it listens, Penstock and the reference.

    python benchmarks/start.py [ROUNDS]

Each round starts a fresh process of each, with and without streams. It measures seconds until the
port is known, and CPU seconds of the process by then; medians. The system's caches are warm.
"""

from __future__ import annotations

import sys
import time
from statistics import median

from penstock.bench.process_stats import cpu_seconds
from penstock.bench.server_process import ServerCommand, our_command, reference_command, running

ROUNDS = 15
KINDS: dict[str, str | None] = {"plain": None, "with JetStream": ""}


def start(command: ServerCommand, jetstream: str | None) -> tuple[float, float]:
    begun = time.perf_counter()
    with running(command, jetstream) as server:
        return time.perf_counter() - begun, cpu_seconds(server.pid)


def main(rounds: int) -> None:
    for kind, jetstream in KINDS.items():
        taken: dict[str, list[tuple[float, float]]] = {}
        for _ in range(rounds):
            for command in (our_command(), reference_command()):
                taken.setdefault(command.label, []).append(start(command, jetstream))
        for label, figures in taken.items():
            wall = median(seconds for seconds, _ in figures)
            cpu = median(seconds for _, seconds in figures)
            print(f"{label:14}{kind:16}{wall * 1e3:8.0f} ms, CPU {cpu * 1e3:6.0f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else ROUNDS)
