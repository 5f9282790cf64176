"""Messages that are not in memory: they are asked for, and nothing is decided without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.effects import Fetch
from penstock.store.contract import Cold
from penstock.store.memstore import MemStore
from support.consumer_stage import SECOND, Stage, pull_config

if TYPE_CHECKING:
    from penstock.store.contract import MessageRecord, Missing


class Frozen(MemStore):
    """A store some of whose messages must be fetched first."""

    cold: frozenset[int] = frozenset()

    def load(self, seq: int, **how: bool) -> MessageRecord | Missing | Cold:
        return Cold(1) if seq in self.cold else super().load(seq, **how)


def frozen(messages: int, *cold: int) -> Stage:
    store = Frozen()
    for _ in range(messages):
        store.append("a", b"", b"", 1)
    store.cold = frozenset(cold)
    return Stage(pull_config(), store=store)


def thaw(stage: Stage) -> None:
    assert isinstance(stage.store, Frozen)
    stage.store.cold = frozenset()
    stage.take(stage.consumer.wake(stage.now_ns))


def test_delivery_waits_for_cold_message() -> None:
    stage = frozen(3, 2)
    stage.pull("3")
    assert stage.sent[1:] == [Fetch(Cold(1))]
    assert stage.seqs() == [1]
    thaw(stage)
    assert stage.seqs() == [2, 3]


def test_cold_message_is_not_the_end_of_stream() -> None:
    stage = frozen(1, 1)
    stage.pull('{"batch":1,"no_wait":true}')
    assert stage.sent == [Fetch(Cold(1))]
    stage.sent.clear()
    thaw(stage)
    assert stage.seqs() == [1]


def test_redelivery_waits_for_cold_message_and_keeps_its_place() -> None:
    stage = frozen(2)
    stage.pull("2")
    stage.deliveries()
    assert isinstance(stage.store, Frozen)
    stage.store.cold = frozenset({1})
    stage.pull("9")
    stage.pass_time(30 * SECOND)
    assert stage.sent == [Fetch(Cold(1))]
    stage.sent.clear()
    thaw(stage)
    assert stage.seqs() == [1, 2]
