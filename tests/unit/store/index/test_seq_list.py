"""The sequences of a subject, held to a plain sorted list."""

from __future__ import annotations

import bisect
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.store.index.seq_list import SequenceList


class Lists(RuleBasedStateMachine):
    """Grows through all three forms of the list, and shrinks again."""

    @initialize(n=st.sampled_from([0, 1, 2, 3, 200, 256, 257, 600, 1500]))
    def fill(self, n: int) -> None:
        self.model = list(range(1, 2 * n + 1, 2))
        self.seqs = SequenceList()
        for seq in self.model:
            self.seqs.push(seq)

    @rule(gap=st.integers(1, 5), n=st.integers(1, 40))
    def push(self, gap: int, n: int) -> None:
        for _ in range(n):
            seq = (self.model[-1] if self.model else 0) + gap
            self.model.append(seq)
            self.seqs.push(seq)

    @rule(place=st.floats(0, 1), n=st.integers(1, 300))
    def remove_run(self, place: float, n: int) -> None:
        start = int(place * len(self.model))
        for seq in self.model[start : start + n]:
            assert self.seqs.remove(seq)
        del self.model[start : start + n]

    @rule(seq=st.integers(1, 4000))
    def remove_absent(self, seq: int) -> None:
        if seq not in self.model:
            assert not self.seqs.remove(seq)

    @rule(seq=st.integers(0, 4000))
    def ask(self, seq: int) -> None:
        at = bisect.bisect_left(self.model, seq)
        assert self.seqs.count_from(seq) == len(self.model) - at
        assert self.seqs.at_least(seq) == (self.model[at] if at < len(self.model) else 0)
        before = bisect.bisect_right(self.model, seq)
        assert self.seqs.at_most(seq) == (self.model[before - 1] if before else 0)

    @rule(place=st.floats(0, 1, exclude_max=True))
    def ask_for_one_that_is_there(self, place: float) -> None:
        if self.model:
            index = int(place * len(self.model))
            seq = self.model[index]
            assert self.seqs.at_least(seq) == self.seqs.at_most(seq) == seq
            assert self.seqs.count_from(seq) == len(self.model) - index

    @invariant()
    def ends_agree(self) -> None:
        if hasattr(self, "model"):
            assert len(self.seqs) == len(self.model)
            assert self.seqs.first() == (self.model[0] if self.model else 0)
            assert self.seqs.last() == (self.model[-1] if self.model else 0)


TestLists = Lists.TestCase
TestLists.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_sequence_is_found_however_unevenly_they_lie() -> None:
    chance = Random(1)
    for spread in (1, 3, 12):  # from neighbours to leaps that no guess foresees
        model = [1]
        while len(model) < 30_000:
            model.append(model[-1] + 1 + int(chance.random() ** spread * 10**spread))
        seqs = SequenceList()
        for seq in model:
            seqs.push(seq)
        for seq in chance.sample(model, 20_000):
            assert seqs.remove(seq)
            assert not seqs.remove(seq)
            model.pop(bisect.bisect_left(model, seq))
            probe = seq + chance.randrange(-5, 6)
            at = bisect.bisect_left(model, probe)
            assert seqs.at_least(probe) == (model[at] if at < len(model) else 0)
