"""A process that writes to a store until it is killed: run as a program, it makes such processes.

Every line on standard input (a `Task` in JSON) makes one victim, a fork of this process, so that
a life costs no start of an interpreter. A victim appends, removes now and then, and syncs in
groups while it goes on appending; standard output says `pid N`, then `+FIRST LAST` and `-SEQ`
each only once it is durable, and `gone` when the victim is dead. What message a sequence holds is
decided by sequence and life, so the ledger is enough to check it byte for byte.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from random import Random
from typing import TYPE_CHECKING

from penstock.store.contract import Appended
from penstock.store.filestore import BLOCK_BYTES, FileStore
from penstock.store.io.disk import RealDisk

if TYPE_CHECKING:
    from collections.abc import Iterator

INCARNATION = 77
GROUP_MAX = 40
REMOVED_EVERY = 7
MESSAGES_MAX = 1_000_000
"""A victim that is not killed ends here."""


@dataclass(frozen=True)
class Task:
    """One life: where, which, and whether it really syncs (a test of the test)."""

    directory: str
    life: int
    block_bytes: int = BLOCK_BYTES
    honest: bool = True

    def line(self) -> str:
        return json.dumps(asdict(self)) + "\n"


def payload_of(seq: int, life: int) -> bytes:
    """What a message holds: its name, as often as fits a length drawn for it."""
    name = b"%d/%d " % (seq, life)
    return name * Random(f"{seq}/{life}").choice((1, 2, 10, 100))


@contextmanager
def open_store(directory: str, block_bytes: int = BLOCK_BYTES) -> Iterator[FileStore]:
    disk = RealDisk.at(directory, create=True)
    try:
        disk.lock()
        store = FileStore.open(
            disk, incarnation=INCARNATION, block_bytes=block_bytes, noise=os.urandom
        )
        yield store
        store.close()
    finally:
        disk.close()


def write_until_killed(task: Task) -> None:
    if not task.honest:
        os.fdatasync = os.fsync = lambda _fd: None  # type: ignore[assignment]
    chance = Random(task.life)
    with open_store(task.directory, task.block_bytes) as store, ThreadPoolExecutor(1) as syncer:
        ts_ns = store.state().last_ts_ns
        while (first := store.state().last_seq + 1) < MESSAGES_MAX:
            ts_ns += 1
            removed = _change(store, chance, task.life, ts_ns)
            work = store.pending_sync()
            assert work is not None
            last = store.state().last_seq
            running = syncer.submit(work.run)
            overtaking = chance.randrange(3)
            for _ in range(overtaking):  # while it runs; durable with the next one
                _append(store, task.life, ts_ns)
            running.result()
            store.synced(work)
            lines = [f"+{first} {last}"] + [f"-{seq}" for seq in removed]
            os.write(1, ("\n".join(lines) + "\n").encode())
            if overtaking:
                _settle(store)
                os.write(1, f"+{last + 1} {last + overtaking}\n".encode())


def _change(store: FileStore, chance: Random, life: int, ts_ns: int) -> list[int]:
    for _ in range(chance.randrange(1, GROUP_MAX)):
        _append(store, life, ts_ns)
    victim = chance.randrange(store.state().last_seq) // REMOVED_EVERY * REMOVED_EVERY
    return [victim] if victim and store.remove(victim) else []


def _append(store: FileStore, life: int, ts_ns: int) -> None:
    seq = store.state().last_seq + 1
    answer = store.append(f"s.{seq % 13}", b"", payload_of(seq, life), ts_ns)
    assert isinstance(answer, Appended)


def _settle(store: FileStore) -> None:
    while (work := store.pending_sync()) is not None:
        work.run()
        store.synced(work)


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.write(1, f"pid {os.getpid()}\n".encode())
            write_until_killed(Task(**json.loads(line)))
            os._exit(1)
        os.waitpid(pid, 0)
        os.write(1, b"gone\n")


if __name__ == "__main__":
    main()
