"""The journal beside one file and one sync per group: records per second and CPU per turn.

    python -m benchmarks.journal_log [--place DIRECTORY] [--rounds 3] [--json FILE]

A turn appends one entry of PAYLOAD_BYTES to each of a number of groups and makes them durable, with
real syncs: with the journal by one write and one sync, otherwise by a write and a sync for each
group's file, into preallocated zeros. Both take turns within a round. Figures are medians over the
rounds. The last table is the cost of packing alone: the compiled buffer beside the naive model in
tests/models, without and with the bookkeeping of the journal.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from penstock.records.journal_codec import KIND_ENTRY, PAGE_BYTES, SegmentKeys, TurnBuffer
from penstock.store.io.disk import RealDisk
from penstock.store.journal.journal import Journal

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from models.journal import record

if TYPE_CHECKING:
    from collections.abc import Callable

PAYLOAD_BYTES = 200
GROUPS = (1, 10, 100, 1000)
SECONDS = 2.0
TURNS_MIN = 3
PACKED = 20_000
CHECKPOINT_EVERY = 64
"""Turns after which the groups that hold a segment back are checkpointed."""


@dataclass(frozen=True)
class Figure:
    """One way to write turns of a number of groups."""

    kind: str
    groups: int
    turns: int
    records_per_second: float
    wall_us_per_turn: float
    cpu_us_per_turn: float


def measure(kind: str, groups: int, turn: Callable[[int], None]) -> Figure:
    turn(1)  # creates the files
    turn(2)
    begun, cpu, turns = time.perf_counter(), time.process_time(), 0
    while turns < TURNS_MIN or time.perf_counter() - begun < SECONDS:
        turn(3 + turns)
        turns += 1
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    return Figure(
        kind,
        groups,
        turns,
        turns * groups / seconds,
        seconds / turns * 1e6,
        cpu / turns * 1e6,
    )


def with_journal(place: Path, groups: int) -> Figure:
    disk = RealDisk.at(place / "journal", create=True)
    journal = Journal.open(disk, incarnation=1, now_ns=0, noise=os.urandom)
    payload = os.urandom(PAYLOAD_BYTES)

    def turn(index: int) -> None:
        append = journal.append_entry
        for group in range(groups):
            append(group, index, payload)
        work = journal.pending_sync(index)
        assert work is not None
        work.run()
        journal.synced(work)
        if index % CHECKPOINT_EVERY == 0:
            for group in journal.holding_back(index, groups):
                journal.checkpointed(group, index - 1)
            upkeep = journal.pending_upkeep()
            if upkeep is not None:
                upkeep.run()
                journal.kept_up(upkeep)

    figure = measure("journal", groups, turn)
    journal.close(0)
    disk.close()
    return figure


def with_files(place: Path, groups: int) -> Figure:
    disk = RealDisk.at(place / "files", create=True)
    files = [disk.create(f"{group}") for group in range(groups)]
    for file in files:
        disk.preallocate(file, 64 * PAGE_BYTES)
        disk.fdatasync(file)
    disk.sync_dir()
    payload = os.urandom(PAYLOAD_BYTES)
    keys = SegmentKeys(1, 1)
    ends = [0] * groups

    def turn(index: int) -> None:
        for group, file in enumerate(files):
            buffer = TurnBuffer(keys, 0, 1 << 20)
            buffer.put(KIND_ENTRY, group, index, 0, payload)
            data = memoryview(buffer.data)[: buffer.used]
            at = ends[group] if ends[group] + len(data) < 64 * PAGE_BYTES else 0
            disk.pwrite(file, data, at)
            disk.fdatasync(file)
            ends[group] = at + len(data)

    figure = measure("file each", groups, turn)
    for file in files:
        disk.close_file(file)
    disk.close()
    return figure


def packing() -> dict[str, float]:
    """Return nanoseconds per record."""
    payload, keys = os.urandom(PAYLOAD_BYTES), SegmentKeys(1, 1)
    disk_place = tempfile.TemporaryDirectory()
    disk = RealDisk.at(disk_place.name)
    journal = Journal.open(disk, incarnation=1, now_ns=0, noise=os.urandom)

    def compiled() -> None:
        buffer = TurnBuffer(keys, 0, 1 << 26)
        for index in range(1, PACKED):
            buffer.put(KIND_ENTRY, 1, index, 0, payload)

    def naive() -> None:
        out = bytearray()
        for index in range(1, PACKED):
            out += record(1, 1, len(out), KIND_ENTRY, 1, index, 0, payload)

    def whole() -> None:
        for group in range(1, PACKED):
            journal.append_entry(group, journal.span(group)[1] or 1, payload)

    found = {}
    for name, work in (("compiled", compiled), ("naive", naive), ("journal", whole)):
        best = min(_seconds(work) for _ in range(3))
        found[name] = best / PACKED * 1e9
    disk_place.cleanup()
    return found


def _seconds(work: Callable[[], None]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def middle(figures: list[Figure]) -> Figure:
    first = figures[0]
    return Figure(
        first.kind,
        first.groups,
        sum(one.turns for one in figures),
        median(one.records_per_second for one in figures),
        median(one.wall_us_per_turn for one in figures),
        median(one.cpu_us_per_turn for one in figures),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--place", type=Path, default=None, help="a directory on the disk to test")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    rows: list[Figure] = []
    print("groups  kind        records/s   µs/turn   CPU µs/turn   CPU µs/record")
    for groups in GROUPS:
        runs: dict[str, list[Figure]] = {"journal": [], "file each": []}
        for _ in range(args.rounds):
            for way in (with_journal, with_files):
                with tempfile.TemporaryDirectory(dir=args.place) as place:
                    figure = way(Path(place), groups)
                runs[figure.kind].append(figure)
        for figures in runs.values():
            row = middle(figures)
            rows.append(row)
            print(
                f"{row.groups:6}  {row.kind:10}{row.records_per_second:11,.0f}"
                f"{row.wall_us_per_turn:10,.0f}{row.cpu_us_per_turn:14,.0f}"
                f"{row.cpu_us_per_turn / groups:16.2f}"
            )
    packed = packing()
    print("\nns per record:", ", ".join(f"{name} {ns:,.0f}" for name, ns in packed.items()))
    if args.json:
        text = json.dumps({"turns": [asdict(row) for row in rows], "packing_ns": packed}, indent=1)
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
