"""Room in a journal: segments that are full, held back, freed, used again, and erased."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.records.journal_codec import PAGE_BYTES
from penstock.store.journal.journal_types import (
    ERASE_NS,
    SPARES_MAX,
)
from penstock.testing.sim_disk import SimDisk
from penstock.testing.sim_files import Choice
from support.journals import (
    KEY,
    SECRET,
    SEGMENT_BYTES,
    SEGMENTS_MAX,
    after_cut,
    data_of,
    fill,
    keep_up,
    opened,
    sync,
)

if TYPE_CHECKING:
    from penstock.store.format.encryption import ServerKey

    pass


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


# -- room


def test_full_journal_refuses_and_checkpoint_makes_room(disk: SimDisk) -> None:
    journal = opened(disk)
    last = fill(journal)
    assert journal.segments_used == SEGMENTS_MAX
    assert journal.span(1) == (1, last + 1)
    while journal.segments_used > SEGMENTS_MAX // 2:
        assert journal.holding_back(1) == [1]
        journal.checkpointed(1, journal.span(1)[0])
        sync(journal)
        keep_up(journal)
    assert journal.holding_back(1) == []
    assert fill(journal) > last
    assert after_cut(disk).recovery.is_clean


def test_no_segment_is_freed_before_the_floor_is_durable(disk: SimDisk) -> None:
    journal = opened(disk)
    last = fill(journal)
    journal.checkpointed(1, last)
    assert keep_up(journal) <= 1
    assert journal.segments_used == SEGMENTS_MAX
    sync(journal)
    keep_up(journal)
    assert journal.segments_used <= 2  # the last, and one for the floor if it is full


def test_states_do_not_keep_old_segments(disk: SimDisk) -> None:
    journal = opened(disk)
    for group in range(2, 20):
        journal.put_state(group, b"term %d" % group)
    last = fill(journal)
    journal.checkpointed(1, last)
    for _ in range(3):
        sync(journal)
        keep_up(journal)
    assert journal.segments_used <= SEGMENTS_MAX // 2
    found = after_cut(disk)
    assert [found.state(group) for group in range(2, 20)] == [b"term %d" % n for n in range(2, 20)]


def test_slice_of_the_groups_that_hold_segment_is_named(disk: SimDisk) -> None:
    journal = opened(disk)
    for group in range(100, 200):
        journal.append_entry(group, 1, b"x")
    fill(journal)
    named = journal.holding_back(1, at_most=7)
    assert len(set(named)) == 7
    for group in named:
        journal.checkpointed(group, 1)
    assert set(named) & set(journal.holding_back(1, at_most=200)) <= {1}  # it has more entries


def test_files_are_used_again_and_few_spare_ones_are_kept(disk: SimDisk) -> None:
    journal = opened(disk)
    for _ in range(6):
        last = fill(journal)
        journal.checkpointed(1, last)
        sync(journal)
        keep_up(journal)
    files = [name for name in disk.files() if name.endswith(".seg")]
    assert len(files) <= journal.segments_used + SPARES_MAX
    assert all(disk.contents(name).size == SEGMENT_BYTES for name in files)


def test_next_file_is_prepared_before_it_is_needed(disk: SimDisk) -> None:
    journal = opened(disk)
    journal.append_entry(1, 1, bytes(SEGMENT_BYTES // 2))
    sync(journal)
    assert keep_up(journal) == 1
    journal.append_entry(1, 2, bytes(SEGMENT_BYTES // 2))
    work = journal.pending_sync(1)
    assert work is not None
    assert not work.is_long


def test_sync_that_begins_segment_waits_for_upkeep_with_the_anchor(disk: SimDisk) -> None:
    journal = opened(disk)
    last = fill(journal, turns=6)
    journal.checkpointed(1, last)
    journal.append_entry(2, 1, b"takes the floor along")
    sync(journal)
    upkeep = journal.pending_upkeep()
    assert upkeep is not None
    assert upkeep.anchored is not None
    journal.append_entry(1, last + 1, bytes(SEGMENT_BYTES - 2 * PAGE_BYTES))
    journal.append_entry(1, last + 2, bytes(SEGMENT_BYTES - 2 * PAGE_BYTES))
    assert journal.pending_sync(1) is None
    upkeep.run()
    journal.kept_up(upkeep)
    assert sync(journal)
    assert after_cut(disk).span(1) == (last + 1, last + 3)


# -- erasure


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "encrypted"])
def test_erased_bytes_leave_within_the_bound(disk: SimDisk, key: ServerKey | None) -> None:
    journal = opened(disk, key=key)
    journal.append_entry(1, 1, SECRET)
    journal.append_entry(2, 1, b"another group, in the way")
    sync(journal)
    journal.checkpointed(1, 1)
    journal.erase(1, now_ns=10)
    before = set(disk.files())
    assert not journal.is_erased
    assert journal.next_deadline_ns() <= 10 + ERASE_NS
    assert journal.holding_back(9 + ERASE_NS) == []
    assert journal.holding_back(10 + ERASE_NS) == [2]
    journal.checkpointed(2, 1)
    for _ in range(3):
        sync(journal, 10 + ERASE_NS)
        keep_up(journal)
    assert journal.is_erased
    assert not any(SECRET in disk.read_small(name, 1 << 30) for name in disk.files())
    assert not {name for name in before if name.endswith(".seg")} & set(disk.files())
    journal.append_entry(2, 2, b"goes on")
    sync(journal)
    assert data_of(after_cut(disk, key=key), 2) == [b"goes on"]


def test_bytes_in_free_files_and_after_the_end_of_reused_ones_are_erased(disk: SimDisk) -> None:
    journal = opened(disk)
    journal.append_entry(7, 1, bytes(2 * PAGE_BYTES))
    journal.append_entry(7, 2, SECRET * 100)
    last = fill(journal)
    journal.checkpointed(7, 2)
    journal.checkpointed(1, last)
    sync(journal)
    keep_up(journal)
    begun = journal.segments_used
    while journal.segments_used == begun:
        last += 1
        journal.append_entry(1, last, bytes(PAGE_BYTES // 2))
        sync(journal)
    assert any(SECRET in disk.read_small(name, 1 << 30) for name in disk.files())
    journal.erase(7, now_ns=10)
    for _ in range(4):
        for group in journal.holding_back(10 + ERASE_NS):
            journal.checkpointed(group, journal.span(group)[1] - 1)
        sync(journal, 10 + ERASE_NS)
        keep_up(journal)
    assert journal.is_erased
    assert not any(SECRET in disk.read_small(name, 1 << 30) for name in disk.files())


def test_erase_of_group_that_no_file_knows_costs_nothing(disk: SimDisk) -> None:
    journal = opened(disk)
    journal.append_entry(1, 1, b"x")
    sync(journal)
    journal.erase(2, now_ns=10)
    assert journal.is_erased
    assert journal.holding_back(10 + ERASE_NS) == []


def test_after_restart_every_file_is_replaced_in_time(disk: SimDisk) -> None:
    """An erase may have been under way."""
    journal = opened(disk)
    journal.append_entry(1, 1, SECRET)
    sync(journal)
    journal = after = opened(disk.crash(Choice()))
    assert not journal.is_erased
    assert after.holding_back(ERASE_NS) == [1]
