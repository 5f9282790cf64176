"""Any life of a consumer, restarts and power cuts in it, held against a witness.

What was acknowledged never comes again, what was not is never lost, deliveries come in order and
are counted right, and the floor never passes a message that is not acked. Each mutant breaks one
rule of the machine, and the witness must see it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.consumer_observer import Witness
from penstock.api.ack_protocol import parse_ack_subject
from penstock.api.consumer_config import AckPolicy
from penstock.base.effects import Advise, Deliver
from penstock.jetstream.consumers.ack_deadlines import AckDeadlines
from penstock.jetstream.consumers.cursor import Cursor
from penstock.jetstream.consumers.state.consumer_deltas import ConsumerState
from penstock.jetstream.consumers.state.state_files import ConsumerStateStore
from penstock.testing.sim_disk import SimDisk
from penstock.testing.sim_files import Lose
from support.consumer_stage import SECOND, Stage, pull_config

if TYPE_CHECKING:
    from penstock.api.consumer_config import ConsumerConfig

NAME, INCARNATION = "C", 3
SUBJECTS = ("a", "b", "c.d")
LIVES = 300

CONFIGS = [
    pull_config(),
    pull_config(filter_subject="a", max_ack_pending=3),
    pull_config(filter_subjects=("a", "c.*"), backoff=(SECOND, 9 * SECOND), max_deliver=4),
    pull_config(ack_policy=AckPolicy.ALL, filter_subject="c.>"),
    pull_config(max_deliver=1),
]

steps = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 99)),
    st.tuples(st.just("pull"), st.integers(1, 5)),
    st.tuples(st.just("ack"), st.integers(0, 99)),
    st.tuples(st.just("refuse"), st.integers(0, 99)),
    st.tuples(st.just("delay"), st.integers(0, 99)),
    st.tuples(st.just("progress"), st.integers(0, 99)),
    st.tuples(st.just("wait"), st.integers(1, 40)),
    st.tuples(st.just("remove"), st.integers(0, 99)),
    st.tuples(st.just("purge"), st.integers(0, 99)),
    st.tuples(st.just("sync"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("cut"), st.just(0)),
)
KINDS = ("publish", "pull", "ack", "refuse", "delay", "progress", "wait", "remove", "purge")


class Life:
    """A consumer whose state is on a disk, and the witness of what it does."""

    def __init__(self, cfg: ConsumerConfig) -> None:
        self.cfg = cfg
        self.disk = SimDisk()
        self.log = ConsumerStateStore.create(self.disk, NAME, incarnation=INCARNATION)
        self.stage = Stage(cfg, log=self.log)
        self.log.sync_all()
        self.witness = Witness(cfg.filters or (">",))
        self.deliveries: list[Deliver] = []

    def do(self, step: str, number: int) -> None:
        getattr(self, step)(number)
        self._watch()
        self._agree()

    # -- steps

    def publish(self, number: int) -> None:
        subject = SUBJECTS[number % len(SUBJECTS)]
        # It may be delivered at once, so the witness must know before.
        self.witness.live[self.stage.store.state().last_seq + 1] = subject
        self.stage.publish(subject)

    def pull(self, number: int) -> None:
        self.stage.pull(str(number))

    def ack(self, number: int) -> None:
        delivery = self._some_delivery(number)
        if delivery is None:
            return
        seq = _seq(delivery)
        if self.cfg.ack_policy is AckPolicy.ALL:
            self.witness.acked_through(seq)
        else:
            self.witness.acked(seq)
        self.stage.ack(delivery, b"+TERM" if number % 5 == 0 else b"+ACK")

    def refuse(self, number: int) -> None:
        self._answer(number, b"-NAK")

    def delay(self, number: int) -> None:
        self._answer(number, b"-NAK %ds" % (number % 50))

    def progress(self, number: int) -> None:
        self._answer(number, b"+WPI")

    def wait(self, number: int) -> None:
        self.stage.pass_time(number * SECOND)

    def remove(self, number: int) -> None:
        live = sorted(self.witness.live)
        if live:
            seq = live[number % len(live)]
            self.witness.removed(seq)
            self.stage.remove(seq)

    def purge(self, number: int) -> None:
        bound = number % (self.stage.store.state().last_seq + 2)
        for seq in [s for s in self.witness.live if s < bound]:
            self.witness.removed(seq)
        self.stage.purge(before_seq=bound)

    def sync(self, _: int) -> None:
        self.log.sync_all()
        self.witness.sync()

    def restart(self, _: int) -> None:
        self.log.close()
        self.witness.sync()
        self._reopen()

    def cut(self, _: int) -> None:
        self.disk = self.disk.crash(Lose())
        self.witness.cut()
        self.deliveries = [d for d in self.deliveries if _seq(d) in self.witness.known.out]
        self._reopen()

    def _reopen(self) -> None:
        self.log, _ = ConsumerStateStore.open(self.disk, NAME, incarnation=INCARNATION)
        self.stage = Stage(
            self.cfg,
            log=self.log,
            store=self.stage.store,
            recovered=True,
            now_ns=self.stage.now_ns,
        )

    def _answer(self, number: int, payload: bytes) -> None:
        delivery = self._some_delivery(number)
        if delivery is not None:
            self.stage.ack(delivery, payload)

    def _some_delivery(self, number: int) -> Deliver | None:
        return self.deliveries[number % len(self.deliveries)] if self.deliveries else None

    # -- laws

    def _watch(self) -> None:
        looked, self.stage.sent = self.stage.sent, []
        for effect in looked:
            if isinstance(effect, Deliver):
                ref = parse_ack_subject(effect.reply)
                assert ref is not None
                self.witness.delivered(ref.stream_seq, ref.delivered)
                self.deliveries.append(effect)
            elif isinstance(effect, Advise) and "MAX_DELIVERIES" in effect.subject:
                self.witness.gave_up(effect.event.stream_seq, self.cfg.max_deliver)

    def _agree(self) -> None:
        state, witness = self.log.state, self.witness
        live = {seq for seq in state.pending if seq in witness.live}
        assert live == set(witness.known.out), "not what is outstanding"
        assert len(live) <= self.cfg.max_ack_pending
        passed = {seq for seq in witness.unacked() if seq <= state.floor_stream}
        assert not passed, f"the floor passed {passed}"
        info = self.stage.consumer.info(self.stage.now_ns)
        assert info.num_pending == witness.num_undelivered(), "counted wrong what is to come"
        for seq, subject in witness.live.items():
            needed = seq in witness.unacked() or seq in witness.known.given_up
            assert self.stage.consumer.needs(seq, subject) == needed, f"{seq} needed: {needed}"

    def end(self) -> None:
        """A client that asks and waits long enough gets everything that is not acked."""
        for _ in range(10):
            self.deliveries.clear()  # only what comes again may be acknowledged
            self.do("pull", 1000)
            self.do("wait", 60)
            for number in range(len(self.deliveries)):
                self.do("ack", number)
        assert not self.witness.unacked(), "lost"


def _seq(delivery: Deliver) -> int:
    ref = parse_ack_subject(delivery.reply)
    assert ref is not None
    return ref.stream_seq


def live(cfg: ConsumerConfig, script: list[tuple[str, int]]) -> None:
    life = Life(cfg)
    for step, number in script:
        life.do(step, number)
    life.end()


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(CONFIGS), st.lists(steps, max_size=40))
def test_no_life_loses_or_repeats_message(
    cfg: ConsumerConfig, script: list[tuple[str, int]]
) -> None:
    live(cfg, script)


# -- mutants: each breaks one rule, and the witness must see it


def is_caught() -> bool:
    """Whether some seeded life shows that a rule is broken."""
    for seed in range(LIVES):
        rng = Random(seed)
        kinds = [*KINDS, "ack", "pull", "publish", rng.choice(("sync", "restart", "cut"))]
        script = [(rng.choice(kinds), rng.randrange(1, 40)) for _ in range(30)]
        try:
            live(rng.choice(CONFIGS), script)
        except AssertionError:
            return True
    return False


def floor_at_the_ack(self: ConsumerState, stream_seq: int) -> None:
    self.redelivered.pop(stream_seq, None)
    entry = self.pending.pop(stream_seq, None)
    if entry is not None:
        self._raise_floor(entry[0], stream_seq)


def acked_but_queued(self: AckDeadlines, seq: int) -> bool:
    return self.log.acked(seq)


def passed_two(self: Cursor, seq: int) -> None:
    self.next = seq + 2
    self._count -= 1


def without_deadlines(self: AckDeadlines) -> None:
    self._line.clear()
    self._heap.clear()


MUTANTS = {
    "the ack floor passes an unacked message": (ConsumerState, "ack", floor_at_the_ack),
    "an acked message stays queued": (AckDeadlines, "acked", acked_but_queued),
    "the cursor skips a message": (Cursor, "passed", passed_two),
    "a restart forgets deadlines": (AckDeadlines, "_rebuild", without_deadlines),
}


@pytest.mark.parametrize("rule", MUTANTS)
def test_witness_sees_every_broken_rule(rule: str) -> None:
    owner, name, broken = MUTANTS[rule]
    with mock.patch.object(owner, name, broken):
        assert is_caught()


def test_without_mutant_witness_has_nothing_to_say() -> None:
    for seed in range(40):
        rng = Random(seed)
        kinds = [*KINDS, "sync", "restart", "cut"]
        live(rng.choice(CONFIGS), [(rng.choice(kinds), rng.randrange(1, 40)) for _ in range(30)])
