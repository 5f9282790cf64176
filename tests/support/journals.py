"""Small journals for tests, and calls that their owner makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.records.journal_codec import PAGE_BYTES
from penstock.store.format.encryption import ServerKey
from penstock.store.journal.journal import Journal
from penstock.store.journal.journal_types import JournalFull
from penstock.testing.sim_files import Lose

if TYPE_CHECKING:
    from penstock.store.io.disk import Disk
    from penstock.testing.sim_disk import SimDisk

SEGMENT_BYTES = 6 * PAGE_BYTES
SEGMENTS_MAX = 6
SECRET = b"a secret that must leave the files"
KEY = ServerKey("secret")


def opened(disk: Disk, **options: Any) -> Journal:
    given = {"segment_bytes": SEGMENT_BYTES, "segments_max": SEGMENTS_MAX, **options}
    return Journal.open(disk, incarnation=9, now_ns=0, noise=lambda n: b"\x07" * n, **given)


def sync(journal: Journal, now_ns: int = 1, *, write_only: bool = False) -> bool:
    work = journal.pending_sync(now_ns, write_only=write_only)
    if work is None:
        return False
    work.run()
    journal.synced(work)
    return True


def keep_up(journal: Journal) -> int:
    works = 0
    while (work := journal.pending_upkeep()) is not None:
        work.run()
        journal.kept_up(work)
        works += 1
    return works


def fill(journal: Journal, group: int = 1, turns: int = 100, data: bytes = bytes(5000)) -> int:
    """Append and sync until the journal is full; return the last index."""
    index = journal.span(group)[1] or 1
    for _ in range(turns):
        try:
            journal.append_entry(group, index, data)
        except JournalFull:
            break
        sync(journal)
        index += 1
    return index - 1


def after_cut(disk: SimDisk, **options: Any) -> Journal:
    return opened(disk.crash(Lose()), **options)


def data_of(journal: Journal, group: int) -> list[bytes]:
    return [one.data for one in journal.entries(group, 0, 1 << 62, 1 << 30)]
