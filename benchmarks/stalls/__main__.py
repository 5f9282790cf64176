"""How long one client can delay another: the worst PING round trip during heavy operations.

    python -m benchmarks.stalls                          # every operation, ours and the reference
    python -m benchmarks.stalls --only 'purge*' --rounds 3
    python -m benchmarks.stalls --json out/stalls.json --chart out/stalls.svg

Each operation runs against a fresh server. Meanwhile a client of another account, in its own
process, sends one PING after another; the row shows its worst round trip. With several rounds that
is the median of the rounds' worst. A row passes if ours is at most 50 ms or three times the
reference's, whichever is larger; the exit code is 1 if a row does not pass.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.stalls import (
    api_operations,
    hostile_operations,
    network_operations,
    store_operations,
)
from benchmarks.stalls.chart import render
from benchmarks.stalls.operation import OPERATIONS
from benchmarks.stalls.site import start

from penstock.bench.bench_error import BenchError
from penstock.bench.server_process import our_command, reference_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.stalls.operation import Operation
    from benchmarks.stalls.site import Site

    from penstock.bench.server_process import ServerCommand

PARTS = (api_operations, store_operations, network_operations, hostile_operations)
BAR_MS = 50.0
BAR_FACTOR = 3.0
MS = 1_000_000


@dataclass(slots=True)
class Row:
    """The worst round trips of one operation, in milliseconds, one figure per round."""

    name: str
    ours: list[float] = field(default_factory=list)
    reference: list[float] = field(default_factory=list)

    @property
    def bar(self) -> float:
        return max(BAR_MS, BAR_FACTOR * middle(self.reference))

    @property
    def passes(self) -> bool:
        return not self.ours or middle(self.ours) <= self.bar


def middle(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


class Prober:
    """The uninvolved client, as a child process."""

    def __init__(self, site: Site) -> None:
        host, port = site.address
        self._child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.stalls.prober", host, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._expect("ready")

    def _line(self) -> str:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise BenchError("the prober ended: the server closed its connection, or died")
        return line.strip()

    def _expect(self, word: str) -> None:
        if self._line() != word:
            raise BenchError("the prober speaks out of turn")

    def _say(self, command: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(command + "\n")
        self._child.stdin.flush()

    def reset(self) -> None:
        self._say("reset")
        self._expect("reset")

    def read(self) -> float:
        """Return the worst round trip in milliseconds since the last reset."""
        self._say("read")
        worst, _count = self._line().split()
        return int(worst) / MS

    def close(self) -> None:
        self._child.kill()
        self._child.communicate()


@contextlib.contextmanager
def probed(site: Site) -> Iterator[Prober]:
    prober = Prober(site)
    try:
        yield prober
    finally:
        prober.close()


def measure(command: ServerCommand, operation: Operation) -> float:
    """Return the prober's worst round trip during the operation, in milliseconds."""
    with start(command) as site, probed(site) as prober:
        steps = operation.run(site)
        next(steps)
        prober.reset()
        try:
            next(steps, None)
        except BenchError as error:  # a server may refuse or be too slow; log it and continue
            print(f"{operation.name}: {command.label}: {error}", flush=True)
        finally:
            steps.close()
        return prober.read()


def run(arguments: argparse.Namespace) -> list[Row]:
    wanted = [each for each in OPERATIONS if fnmatch.fnmatch(each.name, arguments.only)]
    if not wanted:
        raise BenchError(f"no operation is called {arguments.only}")
    commands = {"ours": our_command(arguments.ours_cmd)}
    if not arguments.alone:
        commands["reference"] = reference_command(arguments.reference_cmd)
    rows = []
    print(f"{'operation':64} {'ours':>10} {'reference':>10}   bar", flush=True)
    for operation in wanted:
        row = Row(operation.name)
        for _ in range(arguments.rounds):
            for side, command in commands.items():
                values = row.ours if side == "ours" else row.reference
                try:
                    values.append(measure(command, operation))
                except BenchError as error:
                    print(f"{operation.name}: {command.label}: {error}", flush=True)
                    values.append(float("inf"))
        rows.append(row)
        show(row)
    return rows


def show(row: Row) -> None:
    ours, reference = middle(row.ours), middle(row.reference)
    verdict = "" if row.passes else "  ABOVE THE BAR"
    print(f"{row.name:64} {ours:8.1f}ms {reference:8.1f}ms {row.bar:5.0f}ms{verdict}", flush=True)


def as_json(rows: list[Row], arguments: argparse.Namespace) -> str:
    return json.dumps(
        {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
            "python": platform.python_version(),
            "rounds": arguments.rounds,
            "rows": [
                {
                    "operation": row.name,
                    "ours_ms": row.ours,
                    "reference_ms": row.reference,
                    "bar_ms": row.bar,
                    "passes": row.passes,
                }
                for row in rows
            ],
        },
        indent=1,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*", metavar="PATTERN", help="operations by name")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="without the reference")
    parser.add_argument("--ours-cmd")
    parser.add_argument("--reference-cmd")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--chart", type=Path)
    arguments = parser.parse_args()
    try:
        rows = run(arguments)
    except BenchError as error:
        print(f"stalls: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(as_json(rows, arguments))
    if arguments.chart:
        arguments.chart.parent.mkdir(parents=True, exist_ok=True)
        figures = [(row.name, middle(row.ours), middle(row.reference)) for row in rows]
        arguments.chart.write_text(render(figures, BAR_MS))
    failed = [row.name for row in rows if not row.passes]
    print(f"{len(rows) - len(failed)} of {len(rows)} operations within the bar")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
