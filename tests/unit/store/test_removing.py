"""Many messages taken out at once: all of them, no other, and one record for a whole span."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from penstock.store.images import blocks_of
from penstock.store.log import MessageLog
from penstock.store.removing import remove_one, take_front, take_matching, take_older, take_span

if TYPE_CHECKING:
    from penstock.store.removing import Taken

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
def test_a_span(removed: set[int], first: int, last: int, durable: bool) -> None:
    log = logged(removed, durable=durable)
    before = live(log)
    taken = take_span(log, first, last, 5)
    check(log, taken, before, {seq for seq in before if first <= seq <= last})


@given(gone_before, places, st.integers(0, 700), st.integers(0, 70), st.booleans())
def test_the_old(removed: set[int], start: int, cutoff: int, at_most: int, durable: bool) -> None:
    log = logged(removed, durable=durable)
    before = live(log)
    taken = take_older(log, start, cutoff, at_most, 5)
    old = [seq for seq in before if seq >= start and 10 * seq <= cutoff]
    check(log, taken, before, set(old[:at_most]))


@given(gone_before, st.integers(-1, 70), st.integers(-1, 4000), st.booleans())
def test_the_oldest(removed: set[int], msgs_max: int, bytes_max: int, durable: bool) -> None:
    log = logged(removed, durable=durable)
    before, wanted = live(log), set()
    left = dict(before)
    while left and (0 < msgs_max < len(left) or 0 < bytes_max < sum(left.values())):
        wanted.add(min(left))
        del left[min(left)]
    check(log, take_front(log, msgs_max, bytes_max, 5), before, wanted)


@given(gone_before, st.sampled_from([*SUBJECTS, "a.*", ">", "x"]), places, st.integers(0, 4))
def test_those_of_subjects(removed: set[int], pattern: str, bound: int, spared: int) -> None:
    log = logged(removed, durable=True)
    before, wanted = live(log), set()
    for at, subject in enumerate(SUBJECTS):
        if pattern in (subject, ">") or (pattern == "a.*" and subject == "a.b"):
            held = [seq for seq in before if seq % 4 == at and seq < bound]
            wanted |= set(held[: len(held) - min(spared, len(held))])
    check(log, take_matching(log, pattern, bound, 5, spared=spared), before, wanted)


def test_a_span_leaves_one_record_however_long_it_is() -> None:
    log = logged(set(), durable=True)
    before = sum(block.records for block in blocks_of(log))
    taken = take_span(log, 0, MESSAGES, 5)
    assert taken.ranges == [(1, MESSAGES)]
    assert sum(block.records for block in blocks_of(log)) == before + 1
