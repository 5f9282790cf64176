"""Very many queue groups on one subject are found by name, whatever order they come and go in."""

from __future__ import annotations

import random

from penstock.subjects.trie import SubList, Subscription

GROUPS = 20_000


def test_groups_are_found_and_dropped_by_name() -> None:
    """Searched one by one this takes minutes."""
    interest = SubList()
    members = [Subscription("a", f"q{n}", value=n) for n in range(GROUPS)]
    for one in members:
        interest.insert(one)
    second = Subscription("a", "q7", value=-1)
    interest.insert(second)
    sizes = sorted(len(group) for group in interest.match("a").queues)
    assert sizes == [1] * (GROUPS - 1) + [2]
    gone = random.Random(1).sample(members, GROUPS - 10)
    for one in gone:
        interest.remove(one)
    kept = {one.queue for one in members} - {one.queue for one in gone} | {"q7"}
    assert {group[0].queue for group in interest.match("a").queues} == kept
    for one in [*(set(members) - set(gone)), second]:
        interest.remove(one)
    assert len(interest) == 0
    assert interest.match("a").queues == []
