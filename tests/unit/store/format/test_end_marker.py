"""The mark outside of the blocks: it tells that the end of a log is missing, and never lies."""

from __future__ import annotations

import pytest

from penstock.store.contract import Missing
from penstock.store.filestore import FileStore
from penstock.store.format.end_marker import END_FILE, End, EndMark
from penstock.testing import damage
from penstock.testing.sim_disk import DiskFault, SimDisk
from penstock.testing.sim_files import Choice, Lose

INCARNATION = 9
BLOCK_BYTES = 700


def opened(disk: SimDisk) -> FileStore:
    return FileStore.open(disk, incarnation=INCARNATION, noise=bytes, block_bytes=BLOCK_BYTES)


def closed_with(messages: int) -> SimDisk:
    disk = SimDisk()
    store = opened(disk)
    for seq in range(1, messages + 1):
        store.append("a", b"", b"%d" % seq * 20, seq)
    store.close()
    return disk


def newest(disk: SimDisk) -> str:
    numbers = [int(name.removesuffix(".blk")) for name in disk.files() if name.endswith(".blk")]
    return f"{max(numbers)}.blk"


def test_recorded_items_are_found() -> None:
    disk = SimDisk()
    mark = EndMark(disk, INCARNATION)
    assert mark.found == End()
    for place in ((1, 100), (2, 50)):
        mark.note(place, 7)
    mark.close()
    assert EndMark(disk.crash(Lose()), INCARNATION).found == End(2, 50, 7)


def test_lost_newest_block_is_reported_with_its_messages() -> None:
    disk = closed_with(30)
    damage.lose(disk, newest(disk))
    store = opened(disk)
    assert store.recovery.cut_short
    ((first, last),) = store.recovery.damaged
    assert last == store.state().last_seq == 30
    assert store.load(first) is Missing.DAMAGED


@pytest.mark.parametrize("lost_bytes", range(8, 120, 8))
def test_truncated_newest_block_is_reported_wherever_it_is_cut(lost_bytes: int) -> None:
    disk = closed_with(30)
    name = newest(disk)
    damage.cut(disk, name, disk.contents(name).size - lost_bytes)
    assert opened(disk).recovery.cut_short


def test_all_blocks_lost_is_reported() -> None:
    disk = closed_with(30)
    for name in [name for name in disk.files() if name.endswith(".blk")]:
        damage.lose(disk, name)
    assert opened(disk).recovery.damaged == ((1, 30),)


def test_numbers_of_lost_blocks_are_not_used_again() -> None:
    disk = closed_with(30)
    lost = newest(disk)
    damage.lose(disk, lost)
    store = opened(disk)
    store.append("a", b"", b"more", 99)
    store.close()
    assert lost not in disk.files()


def test_store_does_without_it() -> None:
    disk = closed_with(30)
    damage.lose(disk, END_FILE)
    store = opened(disk)
    assert store.recovery.damaged == ()
    assert store.state().msgs == 30
    damaged = closed_with(30)
    for page in (0, 1):
        damage.zero_page(damaged, END_FILE, page)
    again = opened(damaged)
    assert again.state().msgs == 30
    again.append("a", b"", b"more", 99)
    again.close()
    assert EndMark(damaged.crash(Choice()), INCARNATION).found.seq == 31


def test_note_that_cannot_be_written_costs_nothing_else() -> None:
    disk = SimDisk()
    mark = EndMark(disk, INCARNATION)
    disk.fail_nth(1, DiskFault.ENOSPC, for_ever=True)
    mark.note((1, 100), 7)
    disk.heal()
    assert EndMark(disk, INCARNATION).found == End()


def test_log_that_was_truncated_is_not_called_cut_short() -> None:
    disk = closed_with(30)
    store = opened(disk)
    store.truncate(10)
    work = store.pending_sync()
    assert work is not None
    work.run()
    store.synced(work)
    again = opened(disk.crash(Lose()))
    assert not again.recovery.cut_short
    assert again.recovery.damaged == ()
    assert again.state().last_seq == 10
