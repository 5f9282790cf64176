"""Many messages taken out at once: all of them, no other, and one record for a whole span."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from penstock.store.index.block_images import blocks_of
from penstock.store.index.message_log import MessageLog
from penstock.store.index.removal_index import (
    newest_from,
    remove_one,
    slice_matching,
    slice_surplus,
    take_front,
    take_older,
    take_span,
)

if TYPE_CHECKING:
    from penstock.store.index.removal_index import Taken

MESSAGES = 60
SUBJECTS = ("a", "b", "a.b", "c.d")
gone_before = st.sets(st.integers(1, MESSAGES), max_size=40)
places = st.integers(0, MESSAGES + 3)


def logged(removed: set[int], *, durable: bool) -> MessageLog:
    log = MessageLog(durable=durable, block_bytes=600)
    for seq in range(1, MESSAGES + 1):
        log.append(SUBJECTS[seq % 4], b"", b"p" * (seq % 50), 10 * seq)
    for seq in removed:
        remove_one(log, seq, 1)
    return log


def live(log: MessageLog) -> dict[int, int]:
    """Sizes by sequence."""
    return {seq: log.size_at(seq) for seq in range(1, MESSAGES + 1) if log.size_at(seq)}


def check(log: MessageLog, taken: Taken, before: dict[int, int], wanted: set[int]) -> None:
    """Exactly the wanted went, and everything that counts agrees."""
    assert before.keys() - live(log).keys() == wanted
    assert (taken.msgs, taken.bytes) == (len(wanted), sum(before[seq] for seq in wanted))
    covered = {seq for first, last in taken.ranges for seq in range(first, last + 1)}
    assert wanted <= covered
    assert covered.isdisjoint(live(log))
    left = live(log)
    assert (log.msgs, log.total_size) == (len(left), sum(left.values()))
    assert log.first_seq == min(left, default=MESSAGES + 1)
    assert sum(state[2] for state in log.subject_states(">").values()) == len(left)
    for seq in left:
        assert log.load(seq) is not None


@given(gone_before, places, places, st.booleans())
def test_span(removed: set[int], first: int, last: int, durable: bool) -> None:
    log = logged(removed, durable=durable)
    before = live(log)
    taken = take_span(log, first, last, 5)
    check(log, taken, before, {seq for seq in before if first <= seq <= last})


@given(gone_before, places, st.integers(0, 700), st.integers(0, 70), st.booleans())
def test_old(removed: set[int], start: int, cutoff: int, at_most: int, durable: bool) -> None:
    log = logged(removed, durable=durable)
    before = live(log)
    taken = take_older(log, start, cutoff, at_most, 5)
    old = [seq for seq in before if seq >= start and 10 * seq <= cutoff]
    check(log, taken, before, set(old[:at_most]))


@given(gone_before, st.integers(-1, 70), st.integers(-1, 4000), st.integers(0, 70), st.booleans())
def test_oldest(
    removed: set[int], msgs_max: int, bytes_max: int, at_most: int, durable: bool
) -> None:
    log = logged(removed, durable=durable)
    before, wanted = live(log), set()
    left = dict(before)
    while left and (0 < msgs_max < len(left) or 0 < bytes_max < sum(left.values())):
        if len(wanted) == at_most:
            break
        wanted.add(min(left))
        del left[min(left)]
    check(log, take_front(log, msgs_max, bytes_max, at_most, 5), before, wanted)


def matched(before: dict[int, int], pattern: str, bound: int) -> list[int]:
    """Sequences below a bound that a pattern matches."""
    found = []
    for seq in sorted(before):
        subject = SUBJECTS[seq % 4]
        fits = pattern in (subject, ">") or (pattern == "a.*" and subject == "a.b")
        found += [seq] if fits and seq < bound else []
    return found


sliced = st.sampled_from([*SUBJECTS, "a.*", ">", "x", "a..b"])


@given(gone_before, sliced, places, places, st.integers(1, 70), st.integers(1, 70), st.booleans())
def test_slice_by_subject_continues_where_one_before_stopped(
    removed: set[int],
    pattern: str,
    start: int,
    bound: int,
    at_most: int,
    looks: int,
    few: bool,
) -> None:
    log = logged(removed, durable=True)
    log.subjects.few = 4096 if few else 0
    wanted = [seq for seq in matched(live(log), pattern, bound) if seq >= start]
    at, total = start, 0
    while at < bound:
        before = live(log)
        taken, following = slice_matching(log, pattern, at, bound, at_most, looks, 5)
        part = {seq for seq in wanted if at <= seq < following}
        assert len(part) <= at_most
        check(log, taken, before, part)
        assert following > at or not wanted
        at, total = following, total + taken.msgs
    assert total == len(wanted)


@given(gone_before, st.integers(1, 4), st.integers(1, 70), st.integers(1, 70))
def test_slices_of_surplus_leave_the_newest_of_each_subject(
    removed: set[int], kept: int, at_most: int, looks: int
) -> None:
    log = logged(removed, durable=False)
    before, at = live(log), 0
    spared = {seq for at in range(4) for seq in [s for s in before if s % 4 == at][-kept:]}
    while at < MESSAGES + 1:
        held = live(log)
        taken, at = slice_surplus(log, kept, at, MESSAGES + 1, at_most, looks, 5)
        assert taken.msgs <= at_most
        check(log, taken, held, set(held) - set(live(log)))
    assert set(live(log)) == spared


@given(gone_before, sliced, st.integers(1, 70), places, st.integers(1, 70))
def test_newest_are_counted_in_slices(
    removed: set[int], pattern: str, n: int, before: int, looks: int
) -> None:
    log = logged(removed, durable=False)
    wanted = matched(live(log), pattern, before)[-n:]
    at, missing = before, n
    while at and missing:
        at, missing = newest_from(log, pattern, missing, at, looks)
    assert missing == n - len(wanted)
    assert at == (wanted[0] if not missing else 0)


def test_span_leaves_one_record_however_long_it_is() -> None:
    log = logged(set(), durable=True)
    before = sum(block.records for block in blocks_of(log))
    taken = take_span(log, 0, MESSAGES, 5)
    assert taken.ranges == [(1, MESSAGES)]
    assert sum(block.records for block in blocks_of(log)) == before + 1
