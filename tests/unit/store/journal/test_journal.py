"""The journal as its owner sees it: turns, groups, room, erasure, upkeep, keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.records.journal_codec import PAGE_BYTES
from penstock.store.errors import DiskFull, StoreError
from penstock.store.format.encryption import ServerKey
from penstock.store.io.disk import RealDisk
from penstock.store.journal.journal import Journal
from penstock.store.journal.journal_types import (
    ERASE_NS,
    MARK_AFTER_NS,
    STATE_BYTES_MAX,
    JournalEntry,
)
from penstock.testing import damage
from penstock.testing.recording_disk import DiskCall, RecordingDisk, copy_of
from penstock.testing.sim_disk import SimDisk
from penstock.testing.sim_files import Choice, Contents, Lose
from support.journals import (
    KEY,
    SECRET,
    SEGMENT_BYTES,
    after_cut,
    data_of,
    keep_up,
    opened,
    sync,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


# -- turns


def test_one_write_and_one_sync_make_all_groups_durable() -> None:
    disk = RecordingDisk(SimDisk())
    journal = opened(disk, segment_bytes=64 * PAGE_BYTES)
    journal.append_entry(1, 1, b"the first turn begins a segment")
    sync(journal)
    for group in range(1000):
        journal.append_entry(group + 10, 1, b"x")
    work = journal.pending_sync(1)
    assert work is not None
    before = len(disk.events)
    work.run()
    journal.synced(work)
    calls = [event.call for event in disk.events[before:] if isinstance(event, DiskCall)]
    assert calls == ["pwrite", "fdatasync"]
    found = opened(copy_of(disk), segment_bytes=64 * PAGE_BYTES)
    assert len(found.groups()) == 1001


def test_synced_records_survive_and_unsynced_may_not(disk: SimDisk) -> None:
    journal = opened(disk)
    journal.append_entry(1, 1, b"one")
    sync(journal)
    journal.append_entry(1, 2, b"two")
    assert data_of(after_cut(disk), 1) == [b"one"]
    assert journal.durable_turn == 1
    sync(journal)
    assert data_of(after_cut(disk), 1) == [b"one", b"two"]
    assert journal.durable_turn == 2


def test_turn_over_two_segments_counts_wholly_or_not_at_all(disk: SimDisk) -> None:
    journal = opened(disk)
    for group in range(1, 5):
        journal.append_entry(group, 1, bytes(6000))
    work = journal.pending_sync(1)
    assert work is not None
    assert len(work.turns) == 2
    assert len({turn.segment.number for turn in work.turns}) == 2
    work.turns[0].write(disk, SEGMENT_BYTES)
    assert opened(disk.crash(Choice())).groups() == []
    work.run()
    assert opened(disk.crash(Choice())).groups() == [1, 2, 3, 4]


def test_lazy_turns_survive_the_process_and_later_sync_covers_them(disk: SimDisk) -> None:
    journal = opened(disk)
    for index in range(1, 8):
        journal.append_entry(1, index, bytes(5000))
        sync(journal, write_only=True)
    assert journal.durable_turn == 0
    assert opened(disk.crash(Choice())).span(1) == (1, 8)
    assert after_cut(disk).span(1) == (0, 0)
    assert sync(journal)
    assert after_cut(disk).span(1) == (1, 8)


def test_one_work_is_out_at_time(disk: SimDisk) -> None:
    journal = opened(disk)
    journal.append_entry(1, 1, b"one")
    work = journal.pending_sync(1)
    assert work is not None
    journal.append_entry(1, 2, b"two")
    assert journal.pending_sync(1) is None
    work.run()
    journal.synced(work)
    assert after_cut(disk).span(1) == (1, 2)
    sync(journal)
    assert after_cut(disk).span(1) == (1, 3)


def test_lazy_turn_does_not_count_without_the_segment_before(disk: SimDisk) -> None:
    """A power cut keeps the second segment and loses the first: its turns are torn."""

    class FirstFileLost(Choice):
        def page(self, contents: Contents, page: int, versions: list[bytes]) -> bytes:
            return versions[0 if contents is lost else -1]

    journal = opened(disk)
    for index in range(1, 6):
        journal.append_entry(1, index, bytes(5000))
        sync(journal, write_only=True)
    lost, kept = [disk.contents(name) for name in disk.files() if name.endswith(".seg")][:2]
    assert kept.pages
    left = disk.crash(FirstFileLost())
    found = opened(left)
    assert found.recovery.is_clean
    assert (found.recovery.turn, found.groups()) == (0, [])
    found.append_entry(1, 1, b"again")
    sync(found)
    found = after_cut(left)
    assert found.recovery.is_clean
    assert data_of(found, 1) == [b"again"]


def test_full_disk_is_tried_again(disk: SimDisk) -> None:
    journal = opened(disk)
    journal.append_entry(1, 1, b"one")
    work = journal.pending_sync(1)
    assert work is not None
    disk.set_capacity(PAGE_BYTES)
    with pytest.raises(DiskFull):
        work.run()
    disk.set_capacity(1 << 30)
    work.run()
    journal.synced(work)
    assert data_of(after_cut(disk), 1) == [b"one"]


def test_idle_journal_marks_its_last_turn_once(disk: SimDisk) -> None:
    """Damage to a turn that no later head calls durable would pass for a torn end."""
    journal = opened(disk)
    journal.append_entry(1, 1, b"one")
    sync(journal, 5)
    unmarked, marked = disk.crash(Lose()), disk
    assert journal.next_deadline_ns() == 5 + MARK_AFTER_NS
    assert not sync(journal, 4 + MARK_AFTER_NS)
    assert sync(journal, 5 + MARK_AFTER_NS)
    assert journal.next_deadline_ns() == 0
    assert not sync(journal, 9 * MARK_AFTER_NS)
    for tried, is_clean in ((unmarked, False), (marked.crash(Lose()), False)):
        [name] = [name for name in tried.files() if name.endswith(".seg")]
        damage.zero_page(tried, name, 1)
        assert opened(tried).recovery.is_clean == is_clean


# -- groups


def test_entries_have_consecutive_indexes(disk: SimDisk) -> None:
    journal = opened(disk)
    journal.append_entry(1, 5, b"any first index")
    for wrong in (5, 7, 4):
        with pytest.raises(ValueError, match="does not follow"):
            journal.append_entry(1, wrong, b"")
    with pytest.raises(ValueError, match="does not follow"):
        journal.append_entry(2, 0, b"")
    with pytest.raises(ValueError, match="does not follow"):
        journal.append_entry(2, 1, b"", kind=3)


def test_entries_and_state_in_one_call(disk: SimDisk) -> None:
    journal = opened(disk)
    entries = [JournalEntry(1, 3, 16, b"one"), JournalEntry(2, 4, 17, b"two")]
    journal.append(1, entries, b"term 4")
    assert journal.entries(1, 1, 9, 99) == entries
    sync(journal)
    found = after_cut(disk)
    assert found.entries(1, 1, 9, 99) == entries
    assert found.state(1) == b"term 4"


def test_read_is_bounded_but_returns_at_least_one(disk: SimDisk) -> None:
    journal = opened(disk)
    for index in range(1, 6):
        journal.append_entry(1, index, bytes(10))
    assert [one.index for one in journal.entries(1, 2, 6, 25)] == [2, 3]
    assert [one.index for one in journal.entries(1, 2, 6, 0)] == [2]
    assert [one.index for one in journal.entries(1, 0, 3, 999)] == [1, 2]
    assert journal.entries(2, 1, 9, 9) == []


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "encrypted"])
def test_entries_are_read_from_memory_and_from_files(disk: SimDisk, key: ServerKey | None) -> None:
    journal = opened(disk, key=key)
    written = [b"%d " % index * 900 for index in range(1, 5)]
    for index, data in enumerate(written, 1):
        journal.append_entry(1, index, data)
        if index < 3:
            sync(journal)
        if index == 3:
            work = journal.pending_sync(1)
    assert work is not None
    assert data_of(journal, 1) == written
    work.run()
    journal.synced(work)
    sync(journal)
    assert data_of(journal, 1) == written
    assert data_of(after_cut(disk, key=key), 1) == written


def test_cut_group_continues_at_the_index(disk: SimDisk) -> None:
    journal = opened(disk)
    for index in range(1, 5):
        journal.append_entry(1, index, b"old %d" % index)
    sync(journal)
    journal.cut(1, 3)
    journal.append_entry(1, 3, b"new 3")
    sync(journal)
    assert data_of(after_cut(disk), 1) == [b"old 1", b"old 2", b"new 3"]
    for wrong in (9, 0):
        with pytest.raises(ValueError, match="cut"):
            journal.cut(1, wrong)
    with pytest.raises(ValueError, match="cut"):
        journal.cut(2, 1)


def test_forgotten_group_is_unknown_and_may_begin_again(disk: SimDisk) -> None:
    journal = opened(disk)
    journal.append(1, [JournalEntry(1, 0, 16, b"x")], b"state")
    sync(journal)
    journal.forget(1)
    journal.forget(2)
    sync(journal)
    assert after_cut(disk).groups() == []
    journal.append_entry(1, 8, b"y")
    sync(journal)
    assert after_cut(disk).span(1) == (8, 9)


def test_group_continues_after_entries_that_were_written_elsewhere(disk: SimDisk) -> None:
    """A turn that goes directly to the blocks of a stream leaves a hole in its indexes."""
    journal = opened(disk)
    journal.append_entry(1, 1, b"one")
    journal.checkpointed(1, 6)
    with pytest.raises(ValueError, match="does not follow"):
        journal.append_entry(1, 2, b"")
    journal.append_entry(1, 7, b"seven")
    sync(journal)
    found = after_cut(disk)
    assert found.span(1) == (7, 8)
    assert found.recovery.is_clean


def test_state_is_bounded(disk: SimDisk) -> None:
    with pytest.raises(ValueError, match="at most"):
        opened(disk).put_state(1, bytes(STATE_BYTES_MAX + 1))


def test_record_that_no_turn_can_hold_is_refused(disk: SimDisk) -> None:
    journal = opened(disk)
    with pytest.raises(ValueError, match="too large"):
        journal.append_entry(1, 1, bytes(SEGMENT_BYTES))
    assert journal.groups() == []
    journal.append_entry(1, 1, bytes(SEGMENT_BYTES - 2 * PAGE_BYTES))


# -- opening


def test_another_incarnation_is_refused_and_nothing_is_written(disk: SimDisk) -> None:
    journal = opened(disk)
    journal.append_entry(1, 1, b"x")
    journal.close(1)
    with pytest.raises(StoreError, match="incarnation"):
        Journal.open(disk, incarnation=10, now_ns=0, noise=bytes)
    assert data_of(opened(disk), 1) == [b"x"]


def test_another_key_is_refused(disk: SimDisk) -> None:
    journal = opened(disk, key=KEY)
    journal.append_entry(1, 1, SECRET)
    journal.close(1)
    assert not any(SECRET in disk.read_small(name, 1 << 30) for name in disk.files())
    for key in (None, ServerKey("another")):
        with pytest.raises(StoreError, match=r"key"):
            opened(disk, key=key)
    found = opened(disk, key=ServerKey("new"), former=(KEY,))
    assert data_of(found, 1) == [SECRET]


def test_plain_journal_is_read_with_key_and_continues_encrypted(disk: SimDisk) -> None:
    journal = opened(disk)
    journal.append_entry(1, 1, b"plain")
    journal.close(1)
    journal = opened(disk, key=KEY)
    journal.append_entry(1, 2, SECRET)
    journal.close(1)
    assert not any(SECRET in disk.read_small(name, 1 << 30) for name in disk.files())
    assert data_of(opened(disk, key=KEY), 1) == [b"plain", SECRET]


@pytest.mark.parametrize("options", [{"segment_bytes": 5000}, {"segments_max": 1}])
def test_impossible_sizes_are_refused(disk: SimDisk, options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="segment"):
        opened(disk, **options)


def test_empty_journal_opens_again(disk: SimDisk) -> None:
    opened(disk).close(1)
    journal = opened(disk)
    assert (journal.recovery.turn, journal.groups(), journal.segments_used) == (0, [], 0)
    assert journal.pending_sync(1) is None
    assert journal.pending_upkeep() is None


def test_turns_are_numbered_on_after_all_segments_were_freed(disk: SimDisk) -> None:
    journal = opened(disk)
    journal.append_entry(1, 1, b"x")
    sync(journal)
    journal.checkpointed(1, 1)
    journal.erase(1, now_ns=0)
    for _ in range(3):
        sync(journal, ERASE_NS)
        keep_up(journal)
    assert journal.segments_used == 0
    turn = journal.durable_turn
    assert after_cut(disk).durable_turn == turn > 0


def test_it_works_on_real_disk(tmp_path: Path) -> None:
    disk = RealDisk.at(tmp_path)
    journal = opened(disk)
    for index in range(1, 9):
        journal.append_entry(1, index, b"%d" % index * 1000)
        journal.append_entry(2, index, b"%d" % index)
        sync(journal)
        keep_up(journal)
    journal.close(1)
    found = opened(disk)
    assert found.recovery.is_clean
    assert data_of(found, 1) == [b"%d" % index * 1000 for index in range(1, 9)]
    assert [one.group for one in found.replay()] == [1, 2] * 8
    found.close(1)
    disk.close()
