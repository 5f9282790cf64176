"""The message log, held to a dict."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from models.subjects import matches
from penstock.store.index.message_log import MessageLog, MessageRecord
from penstock.store.index.removal_index import erase_one, remove_one

SUBJECTS = st.sampled_from(["a", "b", "a.b", "a.c", "a.b.c", "b.c", "a.b.d"])
FILTERS = st.sampled_from(["a", "a.*", "a.>", "*.b", ">", "*", "b.c", "x.y", "*.*.c"])


class Logs(RuleBasedStateMachine):
    """Small blocks, so that every rule meets their edges."""

    @initialize(
        durable=st.booleans(),
        few=st.sampled_from([0, 2, 4096]),
        plant_slice=st.sampled_from([1, 3, 16384]),
    )
    def start(self, durable: bool, few: int, plant_slice: int) -> None:
        self.log = MessageLog(durable=durable, block_bytes=600)
        self.log.subjects.few = few
        self.log.subjects.plant_slice = plant_slice
        self.model: dict[int, MessageRecord] = {}
        self.last = 0
        self.clock = 0

    @rule(
        subject=SUBJECTS,
        payload=st.binary(max_size=90),
        gap=st.sampled_from([0, 0, 0, 1, 7, 5000]),
        n=st.integers(1, 6),
    )
    def append(self, subject: str, payload: bytes, gap: int, n: int) -> None:
        for _ in range(n):
            self.clock += 10
            seq = self.last + 1 + gap
            got = self.log.append(subject, b"H", payload, self.clock, seq=seq if gap else 0)
            assert got == seq
            self.model[seq] = MessageRecord(seq, self.clock, subject, b"H", payload)
            self.last = seq

    @rule(n=st.integers(1, 30))
    def skip(self, n: int) -> None:
        self.last += n
        self.log.skip(self.last, self.clock)

    @rule(place=st.floats(0, 1), n=st.integers(1, 5), erase=st.booleans())
    def remove(self, place: float, n: int, erase: bool) -> None:
        live = sorted(self.model)
        start = int(place * len(live))
        for seq in live[start : start + n]:
            if erase:
                assert erase_one(self.log, seq, bytes) is not None
            else:
                assert remove_one(self.log, seq, self.clock) > 0
            assert remove_one(self.log, seq, self.clock) == 0
            del self.model[seq]

    @rule()
    def drop(self) -> None:
        self.log.drop_dead_blocks()

    @rule(filters=st.lists(FILTERS, max_size=3, unique=True), start=st.integers(0, 6000))
    def ask(self, filters: list[str], start: int) -> None:
        found = [
            seq
            for seq, msg in sorted(self.model.items())
            if seq >= start and (not filters or any(matches(msg.subject, f) for f in filters))
        ]
        assert self.log.load(self.log.next_seq(tuple(filters), start)) == (
            self.model[found[0]] if found else None
        )
        assert self.log.num_pending(start, tuple(filters), last=self.last) == len(found)

    @rule(ts=st.integers(0, 3000))
    def ask_time(self, ts: int) -> None:
        later = [seq for seq, msg in sorted(self.model.items()) if msg.ts_ns >= ts]
        assert self.log.seq_at_time(ts) == (later[0] if later else 0)

    @rule(pattern=FILTERS)
    def ask_subjects(self, pattern: str) -> None:
        states: dict[str, tuple[int, int, int]] = {}
        for seq, msg in sorted(self.model.items()):
            if matches(msg.subject, pattern):
                first, _, count = states.get(msg.subject, (seq, 0, 0))
                states[msg.subject] = (first, seq, count + 1)
        assert self.log.subject_states(pattern) == states
        for subject, state in states.items():
            assert self.log.subject_state(subject) == state
            assert self.log.last_of(subject) == state[1]

    @invariant()
    def everything_is_there(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.msgs == len(self.model)
        assert self.log.last_seq == self.last
        for seq, msg in self.model.items():
            assert self.log.load(seq) == msg
        assert self.log.first_seq == (min(self.model) if self.model else self.last + 1)

    @invariant()
    def what_is_gone_is_known(self) -> None:
        if not hasattr(self, "log") or not self.model:
            return
        gone = {seq for seq in range(min(self.model), self.last + 1) if seq not in self.model}
        ranges = self.log.deleted_ranges()
        assert {seq for first, last in ranges for seq in range(first, last + 1)} == gone


TestLogs = Logs.TestCase
TestLogs.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_matches_are_found_near_and_far() -> None:
    log = MessageLog(durable=False, block_bytes=600)
    for number in range(1, 101):
        log.append(f"far.{number}", b"", b"", number)
    log.append("wanted.1.x", b"", b"", 101)
    for filters in (("wanted.>",), ("wanted.*.x",), ("none.*", "*.1.x"), ("wanted.1.x",)):
        assert log.next_seq(filters, 1) == log.next_seq(filters, 99) == 101
    assert log.next_seq(("far.*", "wanted.>"), 40) == 40
    for filters in (("wanted.*",), ("wanted.1.x.>",), ("wanted.>.x",), ("wanted..x",)):
        assert log.next_seq(filters, 1) == log.next_seq(filters, 101) == 0


def test_num_pending_is_equal_counted_from_end_and_start() -> None:
    log = MessageLog(durable=False, block_bytes=600)
    for number in range(1, 101):
        log.append(f"{'odd' if number % 2 else 'even'}.{number}", b"", b"", number)
    remove_one(log, 97, 0)
    for filters in (("odd.*",), ("odd.>", "odd.99"), ("*.99", "even.>")):
        counts = [log.num_pending(start, filters, last=100) for start in range(1, 103)]
        for start, count in enumerate(counts[:-1], 1):
            found = log.next_seq(filters, start) == start
            assert count - counts[start] == found, (filters, start)
        assert counts[-1] == log.num_pending(101, filters, last=2**63) == 0
