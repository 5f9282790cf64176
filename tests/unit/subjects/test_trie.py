"""The subscription list under churn, collisions and misuse; its answers are tested elsewhere."""

from __future__ import annotations

import gc
import os
import random

import pytest

from penstock.subjects.trie import InvalidSubject, SubList, Subscription

MIB = 1 << 20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MANY = 100_000


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * PAGE_BYTES


@pytest.fixture(params=[True, False], ids=["cached", "uncached"])
def sublist(request: pytest.FixtureRequest) -> SubList:
    return SubList(seed=7, cache=request.param)


def life(sublist: SubList, count: int, dice: random.Random) -> None:
    """Inserts, asks, removes everything in another order."""
    made = [Subscription(f"life.{n % 97}.{n}.{'*' if n % 5 else 'x'}") for n in range(count)]
    for one in made:
        sublist.insert(one)
    for n in range(0, count, 50):
        for _ in range(3):
            assert len(sublist.match(f"life.{n % 97}.{n}.x").plain) == 1
    dice.shuffle(made)
    for one in made:
        sublist.remove(one)


@pytest.mark.resident
def test_memory_of_100_000_subscriptions_is_released(sublist: SubList) -> None:
    dice = random.Random(3)
    life(sublist, MANY, dice)
    gc.collect()
    before = resident_bytes()
    for _ in range(3):
        life(sublist, MANY, dice)
        assert len(sublist) == 0
        assert sublist.all() == []
        assert not sublist.has_interest("life.1.1.x")
    gc.collect()
    assert resident_bytes() - before < 8 * MIB


@pytest.mark.resident
def test_remembered_matches_do_not_grow_without_bound() -> None:
    sublist = SubList(seed=1)
    for n in range(1000):
        sublist.insert(Subscription("wide.>", value=n))
    before = resident_bytes()
    for n in range(100_000):
        for _ in range(2):
            sublist.has_interest(f"wide.{n}")
    for n in range(20_000):
        for _ in range(2):
            sublist.match(f"wide.{n}")
    assert sublist.stats().num_cache <= 32_768
    assert resident_bytes() - before < 200 * MIB
    # A change makes what is remembered worthless; it must not be kept for ever either.
    extra = Subscription("wide.*")
    sublist.insert(extra)
    assert len(sublist.match("wide.1").plain) == 1001
    sublist.remove(extra)
    assert len(sublist.match("wide.1").plain) == 1000


def test_subscription_is_in_one_list_once(sublist: SubList) -> None:
    one = Subscription("a")
    sublist.insert(one)
    with pytest.raises(ValueError, match="already"):
        sublist.insert(one)
    with pytest.raises(KeyError):
        SubList().remove(one)
    sublist.remove(one)
    with pytest.raises(KeyError):
        sublist.remove(one)
    sublist.insert(one)
    assert sublist.match("a").plain == [one]


def test_list_that_goes_away_lets_go_of_its_subscriptions() -> None:
    kept = Subscription("a", value="mine")
    first, second = SubList(), SubList()
    first.insert(kept)
    del first
    second.insert(kept)
    assert second.match("a").plain == [kept]


@pytest.mark.parametrize("subject", ["", ".", "a.", ".a", "a..b", ">.a", "a.>.b"])
def test_invalid_pattern_is_refused_and_leaves_nothing(sublist: SubList, subject: str) -> None:
    with pytest.raises(InvalidSubject):
        sublist.insert(Subscription(subject))
    assert len(sublist) == 0
    assert sublist.reverse_match(subject) == []
    assert sublist.match(subject).plain == []


@pytest.mark.parametrize("size", [1, 255, 256, 65_000, 65_535, 65_536, 70_000, 200_000])
def test_long_tokens_are_matched_or_refused_never_mixed_up(sublist: SubList, size: int) -> None:
    subject = "long." + "t" * size
    one = Subscription(subject)
    try:
        sublist.insert(one)
    except InvalidSubject:
        assert size > 65_000
        assert len(sublist) == 0
        return
    assert sublist.match(subject).plain == [one]
    assert sublist.match(subject[:-1]).plain == []
    assert sublist.match(subject + "t").plain == []
    sublist.remove(one)
    assert sublist.all() == []


def test_very_deep_patterns_are_walked_without_running_out_of_stack(sublist: SubList) -> None:
    depth = 30_000
    made = [
        Subscription(".".join(["*"] * depth)),
        Subscription(".".join(["a"] * depth)),
        Subscription(".".join(["*"] * (depth - 1) + [">"])),
    ]
    for one in made:
        sublist.insert(one)
    subject = ".".join(["a"] * depth)
    assert len(sublist.match(subject).plain) == 3
    assert sublist.has_interest(subject)
    assert len(sublist.reverse_match(">")) == 3
    assert len(sublist.reverse_match(subject)) == 3
    assert len(sublist.all()) == 3
    sublist.remove(made[0])
    assert len(sublist) == 2
    del sublist


def test_bytes_that_are_no_text_are_names_like_any_other(sublist: SubList) -> None:
    odd = b"caf\xe9.\xff\xfe.\x00".decode("utf-8", "surrogateescape")
    one = Subscription(odd, "q\udcff")
    sublist.insert(one)
    assert sublist.match(odd).queues == [[one]]
    assert sublist.all() == [one]
