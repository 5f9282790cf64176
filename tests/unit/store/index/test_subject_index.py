"""Patterns are answered alike by the trie, by looking at every subject, and by tallies."""

from __future__ import annotations

from random import Random

import pytest

from models.subjects import matches
from penstock.store.index.message_log import MessageLog
from penstock.store.index.removal_index import remove_one, slice_matching, take_front, take_span

ALL = 2**63
SMALL_BLOCK = 2000
PATTERNS = [
    "a.*",
    "a.>",
    "*.1",
    "*.1.>",
    "*.*",
    "*.*.*",
    "b.*.3",
    "b.>",
    "c.2.>",
    "*",
    "none.*",
    "a.>.b",
    "*.2.3",
    "b.1.*",
]


class Pair:
    """A log and, beside it, a dict of its messages."""

    def __init__(self, seed: int, *, few: int, plant_slice: int) -> None:
        self.chance = Random(seed)
        self.log = MessageLog(durable=False, block_bytes=SMALL_BLOCK)
        self.log.subjects.few = few
        self.log.subjects.plant_slice = plant_slice
        self.model: dict[int, str] = {}

    def subject(self) -> str:
        chance = self.chance
        tokens = [chance.choice("abc"), str(chance.randrange(40)), str(chance.randrange(5))]
        if chance.random() < 0.02:
            return "a..b"  # can be stored, and no pattern finds it
        return ".".join(tokens[: chance.choice((1, 2, 2, 3, 3, 3))])

    def change(self) -> None:
        chance, log = self.chance, self.log
        what = chance.random()
        live = sorted(self.model)
        if what < 0.8 or not live:
            for _ in range(chance.randrange(1, 40)):
                subject = self.subject()
                self.model[log.append(subject, b"", b"", 1)] = subject
        elif what < 0.9:
            for seq in chance.sample(live, min(len(live), 20)):
                assert remove_one(log, seq, 1)
                del self.model[seq]
        elif what < 0.94:
            take_front(log, max(1, len(live) - 30), 0, len(live), 1)
            self.keep(set(live[-max(1, len(live) - 30) :]))
        elif what < 0.98:
            pattern = chance.choice(PATTERNS)
            bound = chance.choice(live)
            slice_matching(log, pattern, 0, bound, len(live), bound, 1)
            self.keep({s for s in live if s >= bound or not fits(self.model[s], [pattern])})
        else:
            first = chance.choice([0, live[0], chance.choice(live)])
            take_span(log, first, log.last_seq, 1)
            self.keep({s for s in live if s < first})

    def keep(self, spared: set[int]) -> None:
        self.model = {seq: subject for seq, subject in self.model.items() if seq in spared}

    def compare(self) -> None:
        log, chance = self.log, self.chance
        filters = tuple(chance.sample(PATTERNS, chance.choice((1, 1, 2, 5))))
        if chance.random() < 0.2:  # more than are tried one by one
            filters += (*(f"b.{i}.*" for i in range(20)), "c.2", "a.1")
        start = chance.randrange(0, log.last_seq + 2)
        last = chance.choice((log.last_seq, ALL, chance.randrange(0, log.last_seq + 2)))
        wanted = [seq for seq in sorted(self.model) if fits(self.model[seq], filters)]
        inside = [seq for seq in wanted if start <= seq <= last]
        assert log.num_pending(start, filters, last=last) == len(inside)
        assert log.next_seq(filters, start) == next((s for s in wanted if s >= start), 0)
        before = [s for s in sorted(self.model) if s <= last and fits(self.model[s], filters[:1])]
        assert log.last_match(filters[0], last) == (before[-1] if before else 0)
        lasts = {self.model[seq]: seq for seq in wanted if seq <= last}
        assert list(log.last_of_each(filters, last)) == sorted(lasts.values())
        firsts = [min(s for s in wanted if self.model[s] == name) for name in lasts]
        later = [seq for seq in firsts if seq >= start]
        assert last < log.last_seq or log.first_since(filters, start) == min(later, default=0)
        states = log.subject_states(filters[0])
        assert sorted(states) == sorted({s for s in self.model.values() if fits(s, filters[:1])})
        assert log.num_pending(1, filters, last=ALL, last_per_subject=True) == len(
            {self.model[seq] for seq in wanted}
        )


def fits(subject: str, filters: tuple[str, ...] | list[str]) -> bool:
    return ".." not in subject and any(">." not in f and matches(subject, f) for f in filters)


@pytest.mark.parametrize("few", [0, 3, 4096], ids=["tallies", "some of each", "trie"])
@pytest.mark.parametrize("plant_slice", [1, 50, 16384])
def test_however_patterns_are_answered_answers_are_those_of_dict(
    few: int, plant_slice: int
) -> None:
    for seed in range(2):
        pair = Pair(seed, few=few, plant_slice=plant_slice)
        for _ in range(40):
            pair.change()
            for _ in range(3):
                pair.compare()


def test_tally_counts_what_is_appended_and_removed_after_it_was_made() -> None:
    log = MessageLog(durable=False)
    log.subjects.few = 0
    for number in range(1, 1001):
        log.append(f"a.{number % 10}", b"", b"", 1)
    assert log.num_pending(1, ("a.*",), last=ALL) == 1000
    log.append("a.new", b"", b"", 1)
    log.append("b.new", b"", b"", 1)
    remove_one(log, 500, 1)
    assert log.num_pending(1, ("a.*",), last=ALL) == 1000
    take_span(log, 0, ALL, 1)
    assert log.num_pending(1, ("a.*",), last=ALL) == log.next_seq(("a.*",), 1) == 0
    for number in range(300):
        log.append(f"a.{number}", b"", b"", 1)
    assert log.num_pending(1, ("a.*",), last=ALL) == 300


def test_number_of_forgotten_subject_goes_to_another_that_is_checked_again() -> None:
    log = MessageLog(durable=False)
    log.subjects.few = 0
    gone = log.append("a.1", b"", b"", 1)
    for _ in range(300):
        log.append("c", b"", b"", 1)
    assert log.num_pending(1, ("a.*",), last=ALL) == 1
    remove_one(log, gone, 1)
    log.append("b.1", b"", b"", 1)
    assert log.num_pending(1, ("a.*",), last=ALL) == 0
    assert log.num_pending(1, ("b.*",), last=ALL) == 1
