"""Cost of operations as a store grows: messages and subjects, memory, and opening it again.

Each point uses its own process, so that its memory can be measured: it fills a store, times each
operation over many calls, and closes. Further processes only open the store: after a clean close,
after a process that ended without one, and once without block images in memory, to measure the
index alone. Run as a program, this module is one such process. The store is filled in batches, as
the server's compiled lane does; single calls are timed afterwards.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from penstock.store.contract import Appended, Cold, Limits
from penstock.store.filestore import FileStore
from penstock.store.io.disk import RealDisk

if TYPE_CHECKING:
    from collections.abc import Callable

PAYLOAD = b"x" * 128
BATCH = 1000
SYNC_EVERY = 10_000
CALLS = 10_000
COLD_CALLS = 50
VICTIM = "victim"
VICTIM_EVERY = 10
MESSAGES = (100_000, 1_000_000, 10_000_000)
SUBJECTS = (1, 1_000, 1_000_000)
ROOT = Path(__file__).parents[2]


def points(messages_max: int) -> list[tuple[int, int]]:
    """Return (messages, subjects), smallest first."""
    return [(m, s) for m in MESSAGES for s in SUBJECTS if s <= m <= messages_max]


def grow(place: Path, messages_max: int, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    rows = []
    for messages, subjects in points(messages_max):
        tell(f"{messages:,} messages, {subjects:,} subjects")
        store = place / f"{messages}-{subjects}"
        row = _child("fill", store, messages, subjects)
        row |= {f"clean_{k}": v for k, v in _child("open", store, messages, subjects).items()}
        row |= {f"crash_{k}": v for k, v in _child("open", store, messages, subjects).items()}
        row |= _child("weigh", store, messages, subjects)
        rows.append({"messages": messages, "subjects": subjects, **row})
        shutil.rmtree(store)
    return rows


def _child(job: str, store: Path, messages: int, subjects: int) -> dict[str, Any]:
    words = ["-m", "benchmarks.storage.growth", job, str(store), str(messages), str(subjects)]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{job} {store.name}: {done.stderr.strip()}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


# -- one process


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def opened(place: Path, **options: Any) -> FileStore:
    disk = RealDisk.at(place, create=True)
    return FileStore.open(disk, incarnation=1, noise=os.urandom, **options)


def finish_load(store: FileStore) -> None:
    while (work := store.pending_sync()) is not None:
        work.run()
        store.synced(work)


class Filler:
    """A store of a given size, and the cost of its operations."""

    def __init__(self, place: Path, messages: int, subjects: int) -> None:
        self.place = place
        self.store = opened(place)
        self.messages = messages
        self.names = [f"s.{number}" for number in range(subjects)]
        self.chance = Random(messages + subjects)
        self.ts_ns = 0

    def fill(self) -> None:
        log = self.store.lane_parts()["log"]
        names = [name.encode() for name in self.names]
        for start in range(0, self.messages, BATCH):
            self.ts_ns += BATCH
            rows = [(names[at % len(names)], b"", PAYLOAD) for at in range(start, start + BATCH)]
            log.append_batch(rows, self.ts_ns)
            if (start + BATCH) % SYNC_EVERY == 0:
                finish_load(self.store)
        finish_load(self.store)

    def append(self, count: int, names: list[str] | None = None) -> None:
        names, store = names or self.names, self.store
        for at in range(count):
            self.ts_ns += 1
            answer = store.append(names[at % len(names)], b"", PAYLOAD, self.ts_ns)
            assert isinstance(answer, Appended)
            if at % BATCH == BATCH - 1:
                finish_load(store)
        finish_load(store)

    def load(self, seq: int) -> None:
        found = self.store.load(seq)
        if isinstance(found, Cold):
            work = self.store.fetch(found)
            work.run()
            self.store.fetched(work)
            found = self.store.load(seq)
        assert not isinstance(found, Cold)

    def costs(self) -> dict[str, float]:
        """Return nanoseconds of CPU per operation; for a purge, per removed message.

        CPU instead of wall time: after a large store is filled the kernel writes for seconds, and a
        sync that waits for it would count as a cost of the size. "Cold" means not in our memory,
        but in the kernel's: a read of the device costs about 100 µs of kernel CPU, and whether one
        is needed is chance.
        """
        os.sync()
        for file in self.place.iterdir():
            if file.is_file():
                file.read_bytes()
        store, chance = self.store, self.chance
        last = store.state().last_seq
        recent = [chance.randrange(last - BATCH, last) for _ in range(CALLS)]
        anywhere = [chance.randrange(1, last) for _ in range(COLD_CALLS)]
        named = [chance.choice(self.names) for _ in range(CALLS)]
        costs = {
            "append_ns": _nanoseconds(lambda: self.append(CALLS), CALLS),
            "load_ns": _nanoseconds(lambda: [self.load(seq) for seq in recent], CALLS),
            "load_cold_ns": _nanoseconds(lambda: [self.load(s) for s in anywhere], COLD_CALLS),
            "last_ns": _nanoseconds(lambda: [self.last(name) for name in named], CALLS),
        }
        store.set_limits(Limits(msgs_max=store.state().msgs))
        costs["append_and_trim_ns"] = _nanoseconds(lambda: self.append(CALLS), CALLS)
        store.set_limits(Limits())
        first = store.state().first_seq
        doomed = chance.sample(range(first, last), CALLS)
        costs["remove_ns"] = _nanoseconds(lambda: self.remove(doomed), CALLS)
        self.append(CALLS, [VICTIM, *self.names[: VICTIM_EVERY - 1]])
        gone = store.subject_states(VICTIM)[VICTIM].msgs
        costs["purge_subject_ns"] = _nanoseconds(lambda: store.purge(subject=VICTIM), gone)
        return costs

    def remove(self, sequences: list[int]) -> None:
        for seq in sequences:
            self.store.remove(seq)
        finish_load(self.store)

    def last(self, subject: str) -> None:
        found = self.store.load_last(subject)
        if isinstance(found, Cold):
            work = self.store.fetch(found)
            work.run()
            self.store.fetched(work)


def _nanoseconds(work: Callable[[], object], calls: int) -> float:
    begun = time.process_time_ns()
    work()
    return (time.process_time_ns() - begun) / calls


def _fill(place: Path, messages: int, subjects: int) -> dict[str, float]:
    filler = Filler(place, messages, subjects)
    begun = time.perf_counter()
    filler.fill()
    fill_s = time.perf_counter() - begun
    costs = filler.costs()
    begun = time.perf_counter()
    filler.store.close()
    return {"fill_s": fill_s, "close_s": time.perf_counter() - begun, **costs}


def _open(place: Path) -> dict[str, float]:
    """Open, write a little, and exit without a close, so that the next process finds a crash."""
    begun = time.perf_counter()
    store = opened(place)
    open_s = time.perf_counter() - begun
    state = store.state()
    store.append("s.0", b"", PAYLOAD, state.last_ts_ns)
    finish_load(store)
    return {"open_s": open_s, "msgs": state.msgs}


def _weigh(place: Path) -> dict[str, float]:
    before = resident_bytes()
    store = opened(place, warm_bytes_max=0)
    grown = resident_bytes() - before
    return {"index_bytes_per_message": grown / store.state().msgs}


def main(job: str, place: str, messages: str, subjects: str) -> None:
    if job == "fill":
        answer = _fill(Path(place), int(messages), int(subjects))
    else:
        answer = (_weigh if job == "weigh" else _open)(Path(place))
    print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
