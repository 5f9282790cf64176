"""Which consumers of a stream hear of new messages, and in which portions they are woken."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from penstock.jetstream.host.wakeups import REPORTS_MAX, WAKES_AT_ONCE, Wakeups
from penstock.store.memstore import MemStore

if TYPE_CHECKING:
    from penstock.jetstream.consumers.consumer import Consumer


@dataclass
class Heard:
    """A consumer that records what it hears."""

    name: str
    has_lane: bool = False
    seqs: list[int] = field(default_factory=list)
    some: int = 0

    def stored(self, seq: int, subject: str, now_ns: int) -> bool:
        self.seqs.append(seq)
        return True

    def stored_some(self) -> bool:
        self.some += 1
        return True


def waking(count: int, *, has_lane: bool = False) -> tuple[Wakeups, list[Heard]]:
    heard = [Heard(str(i), has_lane) for i in range(count)]
    return Wakeups(cast("dict[str, Consumer]", {each.name: each for each in heard})), heard


def stored(wakeups: Wakeups, count: int) -> MemStore:
    store = MemStore()
    for _ in range(count):
        store.append("a", b"", b"", 1)
    wakeups.stored((seq, "a") for seq in range(1, count + 1))
    return store


def test_few_messages_are_reported_one_by_one() -> None:
    wakeups, heard = waking(2)
    wakeups.announce(stored(wakeups, 3), 1)
    assert [each.seqs for each in heard] == [[1, 2, 3], [1, 2, 3]]


def test_many_messages_for_many_consumers_are_reported_at_once() -> None:
    wakeups, heard = waking(REPORTS_MAX // 10)
    wakeups.announce(stored(wakeups, 11), 1)
    assert {(tuple(each.seqs), each.some) for each in heard} == {((), 1)}
    assert wakeups.is_busy


@pytest.mark.parametrize("has_lane", [False, True])
def test_consumers_are_woken_in_portions_and_in_order(has_lane: bool) -> None:
    wakeups, heard = waking(WAKES_AT_ONCE + 2, has_lane=has_lane)
    wakeups.add_all()
    first = list(wakeups.take_ready())
    assert wakeups.is_busy
    second = list(wakeups.take_ready())
    assert not wakeups.is_busy
    assert len(first) == (0 if has_lane else WAKES_AT_ONCE)
    direct = []
    while (consumer := wakeups.take_direct()) is not None:
        direct.append(consumer)
    assert [each.name for each in (*first, *second, *direct)] == [each.name for each in heard]
    assert not wakeups.has_direct


def test_forgotten_consumer_is_not_woken() -> None:
    wakeups, _ = waking(2)
    wakeups.add_all()
    wakeups.forget("0")
    assert [each.name for each in wakeups.take_ready()] == ["1"]
