"""The wheel of deadlines, held to a dict that is looked through."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.store.index import deadline_wheel
from penstock.store.index.deadline_wheel import (
    DEADLINE_NS_MAX,
    SLOT_ENTRIES_MAX,
    SLOT_NS,
    DeadlineWheel,
)

SECOND = SLOT_NS
# Few enough to meet in slots, and with all the edges of a slot.
OFFSETS = (0, 1, 2, 5, SECOND // 2, SECOND - 1)
SLOTS = 10
offsets = st.sampled_from(OFFSETS)
times = st.builds(lambda slot, at: slot * SECOND + at, st.integers(0, SLOTS - 1), offsets)
seqs = st.integers(0, 60)
entries = st.dictionaries(seqs, times, max_size=40)


class Wheels(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.wheel = DeadlineWheel()
        self.model: dict[int, int] = {}
        self.next = 100

    @rule(deadline=times, n=st.integers(1, 6))
    def add_as_appends_do(self, deadline: int, n: int) -> None:
        for seq in range(self.next, self.next + n):
            self.wheel.add(seq, deadline)
            self.model[seq] = deadline
        self.next += n

    @rule(seq=seqs, deadline=times)
    def add_in_any_order(self, seq: int, deadline: int) -> None:
        if seq in self.model:
            assert self.wheel.remove(seq, self.model[seq])
        self.wheel.add(seq, deadline)
        self.model[seq] = deadline

    @rule(place=st.floats(0, 0.999))
    def remove(self, place: float) -> None:
        if self.model:
            seq = sorted(self.model)[int(place * len(self.model))]
            assert self.wheel.remove(seq, self.model.pop(seq))

    @rule(seq=seqs, deadline=times)
    def remove_what_is_not_there(self, seq: int, deadline: int) -> None:
        if self.model.get(seq) != deadline:
            assert not self.wheel.remove(seq, deadline)

    @rule(now=times, at_most=st.none() | st.integers(0, 5))
    def expire(self, now: int, at_most: int | None) -> None:
        due = sorted((at, seq) for seq, at in self.model.items() if at <= now)[:at_most]
        assert self.wheel.expire(now, at_most=at_most) == [seq for _, seq in due]
        for _, seq in due:
            del self.model[seq]

    @rule()
    def through_bytes(self) -> None:
        encoded = self.wheel.encode()
        self.wheel = DeadlineWheel.decode(encoded)
        assert self.wheel.encode() == encoded

    @invariant()
    def knows_how_many_and_when(self) -> None:
        assert len(self.wheel) == len(self.model)
        first = min(self.model.values(), default=None)
        wakes = self.wheel.next_deadline_ns()
        if first is None:
            assert wakes is None
        else:
            assert wakes is not None
            assert first - SECOND < wakes <= first

    @invariant()
    def counts_its_empty_slots(self) -> None:
        starts = [slot.start_ns for slot in self.wheel._leaves()]
        assert self.wheel._idle == len(self.wheel._heap) - len(starts)
        assert set(starts) <= set(self.wheel._heap)


TestWheels = Wheels.TestCase
TestWheels.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


class SplitWheels(Wheels):
    """With slots so small that most of them are split, down to a nanosecond."""

    def __init__(self) -> None:
        super().__init__()
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(deadline_wheel, "SLOT_ENTRIES_MAX", 3)

    def teardown(self) -> None:
        self._patch.undo()


TestSplitWheels = SplitWheels.TestCase
TestSplitWheels.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


def test_no_more_than_slot_is_sorted_however_many_fall_due_in_second() -> None:
    wheel = DeadlineWheel()
    count = 10 * SLOT_ENTRIES_MAX
    for seq in range(count):
        wheel.add(seq, SECOND + (seq * 7919) % SECOND // 4)
    gone: list[int] = []
    while wheel:
        due = wheel.expire(2 * SECOND, at_most=1000)
        assert len(wheel._front) <= SLOT_ENTRIES_MAX
        gone += due
    assert sorted(gone, key=lambda seq: ((seq * 7919) % SECOND // 4, seq)) == gone
    assert (len(gone), len(set(gone))) == (count, count)
    assert wheel._seconds == {}


@given(entries)
def test_wakeups_meet_every_deadline_with_one_extra_per_slot_at_most(
    due: dict[int, int],
) -> None:
    wheel = DeadlineWheel()
    for seq in sorted(due):
        wheel.add(seq, due[seq])
    wakes = 0
    while (now := wheel.next_deadline_ns()) is not None:
        wakes += 1
        for seq in wheel.expire(now):
            assert due.pop(seq) == now
    assert due == {}
    assert wakes <= SLOTS * (1 + len(OFFSETS))


def test_sequence_is_not_taken_twice_in_its_second() -> None:
    wheel = DeadlineWheel()
    wheel.add(7, SECOND)
    with pytest.raises(ValueError, match="already"):
        wheel.add(7, SECOND + 5)
    assert wheel.expire(SECOND - 1) == []
    assert wheel.expire(SECOND) == [7]


@pytest.mark.parametrize(
    ("seq", "deadline"), [(-1, 0), (2**64, 0), (1, -1), (1, DEADLINE_NS_MAX + 1)]
)
def test_oversized_input_is_refused(seq: int, deadline: int) -> None:
    wheel = DeadlineWheel()
    with pytest.raises(ValueError, match="out of range"):
        wheel.add(seq, deadline)
    assert len(wheel) == 0


def test_last_possible_moment_can_be_waited_for() -> None:
    wheel = DeadlineWheel()
    wheel.add(2**64 - 1, DEADLINE_NS_MAX)
    wheel = DeadlineWheel.decode(wheel.encode())
    assert wheel.expire(DEADLINE_NS_MAX - 1) == []
    assert wheel.expire(DEADLINE_NS_MAX) == [2**64 - 1]


def test_deadlines_forgotten_in_time_leave_nothing_behind() -> None:
    wheel = DeadlineWheel()
    for seq in range(20_000):
        wheel.add(seq, (seq + 100) * SECOND)
        if seq >= 10:
            assert wheel.remove(seq - 10, (seq + 90) * SECOND)
    assert len(wheel) == 10
    assert len(wheel._seconds) < 200
    assert len(wheel._heap) < 200
    for seq in range(20_000, 40_000):
        wheel.add(seq, 30_000 * SECOND)
        assert wheel.remove(seq, 30_000 * SECOND)
    assert len(wheel._seconds[30_000 * SECOND].seqs) < 10


def test_front_that_is_used_up_does_not_grow() -> None:
    wheel = DeadlineWheel()
    for seq in range(5_000):
        wheel.add(seq, seq)
        assert wheel.expire(seq) == [seq]
    assert len(wheel._front) < 500


@given(st.binary(max_size=40))
def test_decode_refuses_or_takes_bytes_that_encode_would_write(data: bytes) -> None:
    try:
        wheel = DeadlineWheel.decode(data)
    except ValueError:
        return
    assert wheel.encode() == data


@given(entries)
def test_decode_refuses_every_cut_and_every_tail(due: dict[int, int]) -> None:
    wheel = DeadlineWheel()
    for seq, deadline in due.items():
        wheel.add(seq, deadline)
    whole = wheel.encode()
    for cut in range(len(whole)):
        with pytest.raises(ValueError, match=r"."):
            DeadlineWheel.decode(whole[:cut])
    with pytest.raises(ValueError, match="behind the last slot"):
        DeadlineWheel.decode(whole + b"\0")


def test_decode_takes_no_more_messages_than_allowed() -> None:
    wheel = DeadlineWheel()
    for seq in range(6):
        wheel.add(seq, seq // 2 * SECOND)
    data = wheel.encode()
    assert len(DeadlineWheel.decode(data, entries_max=6)) == 6
    with pytest.raises(ValueError, match="too many"):
        DeadlineWheel.decode(data, entries_max=5)
