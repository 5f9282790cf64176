"""Hundreds of filters at once: the same messages as one by one, at no cost for each filter."""

from __future__ import annotations

import os
import random

import pytest

from penstock.store.contract import Limits, Missing
from penstock.store.memstore import MemStore
from penstock.subjects.match import match_literal

TOKENS = "abcdefgh"
MESSAGES = 400
SECOND = 1_000_000_000


def subject(rng: random.Random) -> str:
    return ".".join(rng.choice(TOKENS) for _ in range(rng.randint(1, 4)))


def pattern(rng: random.Random, *, wild: bool) -> str:
    tokens = subject(rng).split(".")
    if wild and rng.random() < 0.3:
        tokens[rng.randrange(len(tokens))] = "*"
    if wild and rng.random() < 0.1:
        tokens.append(">")
    return ".".join(tokens)


class Checked:
    """A store, and what it should answer for its filters."""

    def __init__(self, filters: tuple[str, ...], rng: random.Random) -> None:
        self.store = MemStore(Limits(), first_seq=1, seed=7, noise=os.urandom)
        self.filters = filters
        self.rng = rng

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.store.append(subject(self.rng), b"", b"x", SECOND)

    def check(self) -> None:
        last = self.store.state().last_seq
        wanted = [seq for seq in range(1, last + 1) if self._is_wanted(seq)]
        for start in range(1, last + 2, 7):
            later = [seq for seq in wanted if seq >= start]
            assert self.store.next_seq(self.filters, start) == (later[0] if later else 0)
            assert self.store.num_pending(start, self.filters) == len(later)

    def _is_wanted(self, seq: int) -> bool:
        record = self.store.load(seq)
        if isinstance(record, Missing):
            return False
        name = record.subject  # type: ignore[union-attr]
        return any(match_literal(name, each) for each in self.filters)


@pytest.mark.parametrize("wild", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_many_filters_find_what_each_of_them_would(seed: int, wild: bool) -> None:
    rng = random.Random(seed)
    filters = tuple({pattern(rng, wild=wild) for _ in range(120)})
    assert len(filters) > 64
    checked = Checked(filters, rng)
    checked.check()
    checked.publish(MESSAGES)
    checked.check()
    for seq in rng.sample(range(1, MESSAGES + 1), MESSAGES // 2):
        checked.store.remove(seq)
    checked.check()
    checked.publish(MESSAGES)  # some subjects are new, some were there before
    checked.check()


def test_filters_that_no_subject_can_match_count_for_nothing() -> None:
    store = MemStore(Limits(), first_seq=1, seed=7, noise=os.urandom)
    store.append("a.b", b"", b"x", SECOND)
    odd = ("a..b", ".a", "a.", "")
    filters = (*odd, *(f"n.{i}" for i in range(100)))
    assert store.next_seq(filters, 1) == 0
    assert store.num_pending(1, (*filters, "a.*")) == 1


def test_more_sets_of_filters_than_are_kept_are_counted_again() -> None:
    store = MemStore(Limits(), first_seq=1, seed=7, noise=os.urandom)
    for number in range(200):
        store.append(f"s.{number}", b"", b"x", SECOND)
    rows = [tuple(f"s.{(base + i) % 200}" for i in range(70)) for base in range(50)]
    for _ in range(2):
        for base, filters in enumerate(rows):
            assert store.num_pending(1, filters) == 70
            assert store.next_seq(filters, 1) == (1 if base > 130 or base == 0 else base + 1)
