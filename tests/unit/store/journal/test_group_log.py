"""The index of one group: consecutive entries, cuts, floors, and gaps after damage."""

from __future__ import annotations

from penstock.store.journal.group_log import PLACE_BITS, GroupLog
from penstock.store.journal.journal_types import GAP_MAX


def log_of(*indexes: int, segment: int = 2) -> GroupLog:
    log = GroupLog()
    for index in indexes:
        log.replay(index, segment << PLACE_BITS | index)
    return log


def span(log: GroupLog) -> tuple[int, int]:
    return log.first, log.next


def test_first_entry_may_have_any_index() -> None:
    assert span(log_of(7, 8, 9)) == (7, 10)
    assert span(GroupLog()) == (0, 0)


def test_cut_removes_entries_from_its_index_on() -> None:
    log = log_of(7, 8, 9)
    log.cut(9)
    assert span(log) == (7, 9)
    log.cut(12)
    assert span(log) == (7, 9)
    log.cut(5)
    assert span(log) == (5, 5)


def test_floor_removes_entries_up_to_its_index() -> None:
    log = log_of(7, 8, 9)
    log.drop(7)
    assert span(log) == (8, 10)
    log.drop(3)
    assert span(log) == (8, 10)
    log.drop(20)
    assert span(log) == (21, 21)
    assert log.oldest_segment == 0


def test_entry_replaces_those_from_its_index_on() -> None:
    log = log_of(7, 8, 9, 8)
    assert span(log) == (7, 9)
    assert log.gaps() == []


def test_missing_entries_are_gaps() -> None:
    log = log_of(7, 10, 11, 13)
    assert log.gaps() == [(8, 9), (12, 12)]
    assert span(log) == (7, 14)
    log.drop(8)
    assert log.gaps() == [(9, 9), (12, 12)]
    assert log.oldest_segment == 2


def test_huge_gap_begins_the_group_again() -> None:
    log = log_of(7, 9 + GAP_MAX)
    assert span(log) == (9 + GAP_MAX, 10 + GAP_MAX)
    assert log.gaps() == []
