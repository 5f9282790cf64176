"""Flipped bits and cuts of the files of folds in SQLite, LMDB and RocksDB, after an orderly close.

A process of its own opens each damaged copy, because an engine may crash. The fold must be refused,
or have the state it had; an older state must be reported, and the files kept. SQLite and LMDB have
no checksums of pages: there, a flipped bit may change entries unseen (docs/folds.md), but never the
cursor or origin. `test_damaged_files` covers the append log.

`python -m faults.test_fold_damage sqlite` (in tests/) tries every bit and every length.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import shutil
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.fold import FoldStoreError, SnapshotMeta
from penstock.fold.store.log_witnesses import Witness
from penstock.fold.store.rocks_database import TORN_SUFFIX
from support.folds import KINDS, at, contents, put

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.folds import Kind

LONG_ROUNDS = 40
KEYS, BATCH = 1_000, 100
PLACES = 40
"""Places tried in each file in one round."""
CHILD_SECONDS = 30
ENGINES = ("sqlite", "lmdb", "rocksdb")
UPDATES = [put(f"k.{n:04}", b"value %d" % n, n) for n in range(1, KEYS + 1)]
META = SnapshotMeta("KV_b@1+x", ("",), True, 4, None, (Witness(3, "k", 7),), "", "keys-only")
VERSIONS = {one.key: one.version for one in UPDATES}
VALUES = {one.key: one.value for one in UPDATES}
DUMB = ("LOG", "IDENTITY", "OPTIONS", "lock.mdb", "rocksdict-config.json")
"""Files that hold nothing of a fold: RocksDB's log, settings and identity, LMDB's reader table."""
ACCEPTED = {"refused", "same", "kept", "empty"}


def fill(kind: Kind, path: Path) -> None:
    with kind.open(path) as store:
        for start in range(0, KEYS, BATCH):
            batch = UPDATES[start : start + BATCH]
            store.apply(batch, at(batch[-1].revision), meta=META)


def judged(kind: Kind, path: Path) -> str:
    """Open a damaged fold and return what became of it."""
    try:
        with kind.open(path) as store:
            held, cursor, meta = contents(store), store.cursor.rank, store.meta
    except FoldStoreError:
        return "refused"
    if not held and not cursor and not store_was_kept(path):
        return "empty" if meta == SnapshotMeta() else "silent"
    if cursor % BATCH or (cursor and meta != META) or (cursor < KEYS and not store_was_kept(path)):
        return "silent"
    versions = {key: one.version for key, one in held.items()}
    if versions != dict(list(VERSIONS.items())[: max(cursor, len(held))]):
        return "data"
    if cursor < KEYS:
        return "kept"
    return "same" if {key: one.value for key, one in held.items()} == VALUES else "data"


def store_was_kept(path: Path) -> bool:
    return path.with_name(path.name + TORN_SUFFIX).exists()


def judged_apart(kind: Kind, path: Path) -> str:
    """Judge in a forked process; a crash or an endless loop of an engine is a verdict too."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.write(theirs, judged(kind, path).encode())
        os._exit(0)
    os.close(theirs)
    said = b"endless"
    if select.select([ours], [], [], CHILD_SECONDS)[0]:
        said = os.read(ours, 100)
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(ours)
    os.waitpid(pid, 0)
    return said.decode() or "crash"


def damages(data: bytes, count: int, chance: random.Random) -> Iterator[tuple[str, bytes]]:
    """Yield damaged copies: `count` flips and half as many cuts, or all of them."""
    bits, sizes = range(8 * len(data)), range(len(data))
    for place in bits if len(bits) <= count else chance.sample(bits, count):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        yield f"bit {place}", bytes(flipped)
    for size in sizes if len(sizes) <= count // 2 else chance.sample(sizes, count // 2):
        yield f"cut {size}", data[:size]


def swept(name: str, directory: Path, count: int, seed: int) -> Counter[str]:
    """Damage every file that matters in `count` places; return how often each verdict came."""
    kind, chance, seen = KINDS[name], random.Random(seed), Counter[str]()
    whole, tried = directory / "whole", directory / "tried"
    whole.mkdir()
    fill(kind, whole / "fold")
    files = [path.relative_to(whole) for path in sorted(whole.rglob("*")) if path.is_file()]
    for file in files:
        if file.name.startswith(DUMB):
            continue
        for place, data in damages((whole / file).read_bytes(), count, chance):
            shutil.rmtree(tried, ignore_errors=True)
            shutil.copytree(whole, tried)
            (tried / file).write_bytes(data)
            verdict = judged_apart(kind, tried / "fold")
            seen[verdict] += 1
            if verdict not in ACCEPTED:
                seen[f"{verdict}: {file} {place}"] += 1
    return seen


def wrong(name: str, seen: Counter[str]) -> list[str]:
    """Return the damages that were not noticed."""
    return [verdict for verdict in seen if ":" in verdict and not is_known(name, verdict)]


def is_known(name: str, verdict: str) -> bool:
    """A flipped bit in a page of data, which these engines do not checksum."""
    return (
        name in ("sqlite", "lmdb") and verdict.startswith(("data:", "crash:")) and "bit" in verdict
    )


@pytest.mark.parametrize("name", ENGINES)
def test_damage_to_files_of_engine_is_noticed(
    name: str, tmp_path: Path, rounds: int, tried: Counter[str]
) -> None:
    seen = swept(name, tmp_path, PLACES * rounds, seed=rounds)
    tried.update(
        {f"{name} files {verdict}": n for verdict, n in seen.items() if ":" not in verdict}
    )
    assert not wrong(name, seen), wrong(name, seen)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        for verdict, times in sorted(swept(sys.argv[1], Path(place), 1 << 40, seed=0).items()):
            print(times, verdict)
