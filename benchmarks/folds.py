"""Speed of each fold store: load, change, read and copy many small entries.

    python -m benchmarks.folds [--keys 1000000] [--stores append-log,sqlite,lmdb,rocksdb]

Keys of 23 bytes in random order, values of 100 random bytes, the cursor in the same commit as each
batch. Batches have the size the store requests for a first load, and 1,000 entries after it. Each
figure is given per second of CPU time of the process, all threads, and per second of wall time: on
a shared machine the first is more stable.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.fold import (
    AppendLogSnapshot,
    LmdbSnapshot,
    MemorySnapshot,
    RocksDbSnapshot,
    SqliteSnapshot,
)
from penstock.kv.kv_types import KvUpdate, Op, WatchCursor

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.fold import SnapshotStore

STORES: dict[str, type[SnapshotStore]] = {
    "memory": MemorySnapshot,
    "append-log": AppendLogSnapshot,
    "sqlite": SqliteSnapshot,
    "lmdb": LmdbSnapshot,
    "rocksdb": RocksDbSnapshot,
}
BATCH = 1_000
VALUE_BYTES = 100
CHURNED = 200_000
READS = 100_000


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def measured(label: str, count: int, work: Callable[[], object]) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    rates = f"{count / cpu / 1e3:9.0f} k per CPU s {count / wall / 1e3:9.0f} k/s"
    print(f"  {label:24}{rates}   {wall:.2f} s", flush=True)


class Load:
    """The entries, created before the measurement."""

    def __init__(self, keys: int) -> None:
        self.chance = random.Random(1)
        self.keys = [f"node.region.{number:011d}" for number in range(keys)]
        self.chance.shuffle(self.keys)
        self.values = [self.chance.randbytes(VALUE_BYTES) for _ in range(BATCH)]
        self.first = self._updates(self.keys)
        again = [self.chance.choice(self.keys) for _ in range(CHURNED)]
        self.changed = self._updates(again, len(self.keys))
        self.asked = [self.chance.choice(self.keys) for _ in range(READS)]

    def _updates(self, keys: list[str], revision: int = 0) -> list[KvUpdate]:
        return [
            KvUpdate(Op.PUT, key, self.values[at % BATCH], revision + at + 1)
            for at, key in enumerate(keys)
        ]


def apply_all(store: SnapshotStore, updates: list[KvUpdate], size: int = BATCH) -> None:
    for at in range(0, len(updates), size):
        batch = updates[at : at + size]
        store.apply(batch, WatchCursor.of(batch[-1].revision))


def run(name: str, load: Load, directory: Path) -> None:
    kind, count = STORES[name], len(load.keys)
    print(name)
    before = resident_mib()
    with kind.open(directory / "fold") as store:
        measured("first load", count, lambda: apply_all(store, load.first, kind.hydrate_batch))
        measured("overwrite", CHURNED, lambda: apply_all(store, load.changed))
        measured("settle", count, store.finish_load)
        measured("get", READS, lambda: [store.get(key) for key in load.asked])
        measured(
            "get_many(100)",
            READS,
            lambda: [store.get_many(load.asked[at : at + 100]) for at in range(0, READS, 100)],
        )
        measured("range of all", count, lambda: sum(1 for _ in store.range()))
        files = [one for one in directory.rglob("*") if one.is_file()]
        disk = sum(one.stat().st_size for one in files) / 2**20
        print(f"  resident +{resident_mib() - before:.0f} MiB, disk {disk:.0f} MiB")
        measured(
            "export as append log",
            count,
            lambda: store.export_to(directory / "artifact", form="append-log"),
        )
    if name != "memory":
        measured("open, after overwrites", count, lambda: kind.open(directory / "fold").close())
        measured("open", count, lambda: kind.open(directory / "fold").close())
    measured(
        "import of append log",
        count,
        lambda: kind.import_from(directory / "artifact", directory / "imported").close(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--stores", default=",".join(STORES))
    parser.add_argument("--directory", default=None, help="where stores are made")
    options = parser.parse_args()
    load = Load(options.keys)
    for name in options.stores.split(","):
        directory = Path(tempfile.mkdtemp(dir=options.directory))
        try:
            run(name, load, directory)
        finally:
            shutil.rmtree(directory)


if __name__ == "__main__":
    main()
