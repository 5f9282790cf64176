"""File stores under test: made with small blocks, driven as the edge would, looked at on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.store.contract import Appended, Cold, MessageRecord
from penstock.store.filestore import FileStore

if TYPE_CHECKING:
    from penstock.store.io.disk import Disk
    from penstock.testing.sim_disk import SimDisk

INCARNATION = 9
BLOCK_BYTES = 700
FILE_BYTES_MAX = 1 << 26
FETCHES_MAX = 3


def opened(disk: Disk, **options: Any) -> FileStore:
    given = {"block_bytes": BLOCK_BYTES, "incarnation": INCARNATION, "noise": noisy, **options}
    return FileStore.open(disk, **given)


def noisy(n: int) -> bytes:
    """Noise that is the same every time."""
    return (b"\xa5\x5a\x3c" * (n // 3 + 1))[:n]


def fill(store: FileStore, n: int, *, subjects: int = 3, payload_bytes: int = 40) -> list[int]:
    """So many messages; their payloads name their sequences."""
    seqs = []
    for _ in range(n):
        seq = store.state().last_seq + 1
        answer = store.append(f"s.{seq % subjects}", b"", payload(seq, payload_bytes), seq)
        assert isinstance(answer, Appended)
        seqs.append(answer.seq)
    return seqs


def payload(seq: int, n: int = 40) -> bytes:
    return (b"<message %06d>" % seq * (n // 16 + 1))[:n]


def sync(store: FileStore) -> None:
    while (work := store.pending_sync()) is not None:
        work.run()
        store.synced(work)


def compact(store: FileStore) -> int:
    """Rewrite what can be; return how many blocks that were."""
    done = 0
    while (work := store.pending_compaction()) is not None:
        work.run()
        store.compacted(work)
        sync(store)
        done += 1
    return done


def warmed(store: FileStore, ask: Any) -> Any:
    """The answer, with what is cold fetched."""
    for _ in range(FETCHES_MAX):
        answer = ask()
        if not isinstance(answer, Cold):
            return answer
        work = store.fetch(answer)
        work.run()
        store.fetched(work)
    raise AssertionError("a fetched block is still cold")


def contents(store: FileStore) -> dict[int, bytes]:
    """Payloads by sequence, of everything, be it durable or not."""
    found: dict[int, bytes] = {}
    start = 0
    while True:
        at = start
        msg = warmed(store, lambda at=at: store.next_match((), at, unsynced=True))
        if not isinstance(msg, MessageRecord):
            return found
        found[msg.seq] = msg.payload
        start = msg.seq + 1


def files(disk: SimDisk, suffix: str = ".blk") -> dict[str, bytes]:
    names = [name for name in disk.files() if name.endswith(suffix)]
    return {name: disk.read_small(name, FILE_BYTES_MAX) for name in names}
