"""A naive model of a consumer's state, a workload for its store, and the judge of what a power
cut left of it.

The model recomputes everything from plain dicts. A run keeps the model as it was after every
change, so a recovered state can be held against all states the consumer ever had.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import pytest

from penstock.jetstream.consumers.state import delta_log
from penstock.jetstream.consumers.state.state_files import ConsumerStateStore
from penstock.testing.sim_disk import SimDisk

if TYPE_CHECKING:
    from penstock.jetstream.consumers.state.state_files import ConsumerState, RecoveryReport
    from penstock.store.io.disk import Disk

NAME = "orders"
INCARNATION = 7
T0 = 1_700_000_000_000_000_000
STATE, LOGS = NAME + ".state", (NAME + ".log0", NAME + ".log1")
HALF = 4096


@pytest.fixture
def small_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs of one page, so that a few hundred changes go through several checkpoints."""
    monkeypatch.setattr(delta_log, "HALF_BYTES_MIN", HALF)


@dataclass
class Model:
    """What the state should be."""

    delivered: tuple[int, int] = (0, 0)
    floor: tuple[int, int] = (0, 0)
    pending: dict[int, tuple[int, int]] = field(default_factory=dict)
    redelivered: dict[int, int] = field(default_factory=dict)

    def delivered_one(self, consumer: int, stream: int, ts: int, count: int) -> None:
        self.delivered = (max(consumer, self.delivered[0]), max(stream, self.delivered[1]))
        first = self.pending.get(stream, (consumer, 0))[0]
        self.pending[stream] = (first, ts)
        if count:
            self.redelivered[stream] = count

    def passed(self, consumer: int, stream: int) -> None:
        self.delivered = (consumer, stream)
        self._floor(consumer, stream)

    def acked(self, stream: int) -> None:
        self.redelivered.pop(stream, None)
        entry = self.pending.pop(stream, None)
        if entry is None:
            return
        if not self.pending:
            self._floor(*self.delivered)
        elif entry[0] == self.floor[0] + 1:
            low = min(self.pending)
            self._floor(self.pending[low][0] - 1, low - 1)

    def acked_through(self, consumer: int, stream: int) -> None:
        if stream < self.floor[1]:
            return
        for settled in [s for s in self.pending if s <= stream]:
            del self.pending[settled]
            self.redelivered.pop(settled, None)
        self._floor(consumer, stream)

    def nacked(self, stream: int, ts: int, count: int) -> None:
        if stream in self.pending:
            self.pending[stream] = (self.pending[stream][0], ts)
            if count:
                self.redelivered[stream] = count

    def dropped(self, stream: int) -> None:
        self.pending.pop(stream, None)

    def reset(self, consumer: int, stream: int) -> None:
        self.delivered = self.floor = (consumer, stream)
        self.pending, self.redelivered = {}, {}

    def _floor(self, consumer: int, stream: int) -> None:
        if stream >= self.floor[1]:
            self.floor = (consumer, stream)


def as_model(state: ConsumerState) -> Model:
    """The state as a model, to be compared with one."""
    return Model(
        (state.delivered_consumer, state.delivered_stream),
        (state.floor_consumer, state.floor_stream),
        dict(state.pending),
        dict(state.redelivered),
    )


class Run:
    """A store, its model, and the model after every change."""

    def __init__(self, disk: Disk, seed: int) -> None:
        self.disk = disk
        self.rng = Random(seed)
        self.store = ConsumerStateStore.create(disk, NAME, incarnation=INCARNATION)
        self.model = Model()
        self.history = {0: deepcopy(self.model)}

    def change(self) -> None:
        """One change of a random kind, the likely ones likelier."""
        model, store, rng = self.model, self.store, self.rng
        consumer, stream = model.delivered[0] + 1, model.delivered[1] + rng.randrange(1, 4)
        ts = T0 + store.recorded_seq
        known = sorted(model.pending)
        dice = rng.random()
        if rng.random() < 0.2:
            self._run(consumer, stream, ts)
        elif dice < 0.45 or not known:
            store.delivered(consumer, stream, ts)
            model.delivered_one(consumer, stream, ts, 0)
        elif dice < 0.75:
            seq = known[0] if rng.random() < 0.5 else rng.choice(known)
            assert store.acked(seq)
            model.acked(seq)
        else:
            self._rare_change(dice, consumer, ts, rng.choice(known))
        self.history[store.recorded_seq] = deepcopy(model)

    def _run(self, consumer: int, stream: int, ts: int) -> None:
        """Several messages at once."""
        model, store, rng = self.model, self.store, self.rng
        known = sorted(model.pending)
        if known and rng.random() < 0.5:
            spans = [(seq, seq + rng.randrange(3)) for seq in rng.sample(known, min(3, len(known)))]
            store.acked_run(spans)
            for seq in (seq for first, last in spans for seq in range(first, last + 1)):
                model.acked(seq)
            return
        spans = [(stream, stream + rng.randrange(4)), (stream + 6, stream + 6)]
        store.delivered_run(consumer, spans, ts)
        for seq in (seq for first, last in spans for seq in range(first, last + 1)):
            model.delivered_one(consumer, seq, ts, 0)
            consumer += 1

    def _rare_change(self, dice: float, consumer: int, ts: int, seq: int) -> None:
        model, store = self.model, self.store
        count = model.redelivered.get(seq, 0) + 1
        if dice < 0.85:
            store.delivered(consumer, seq, ts, count)
            model.delivered_one(consumer, seq, ts, count)
        elif dice < 0.90:
            store.nacked(seq, ts, count)
            model.nacked(seq, ts, count)
        elif dice < 0.94:
            store.dropped(seq)
            model.dropped(seq)
        elif dice < 0.98:
            at = model.pending[seq][0]
            store.acked_through(at, seq)
            model.acked_through(at, seq)
        elif dice < 0.99:
            store.passed(consumer, model.delivered[1] + 1)
            model.passed(consumer, model.delivered[1] + 1)
        else:
            store.reset(consumer, seq)
            model.reset(consumer, seq)

    def changes(self, n: int) -> None:
        for _ in range(n):
            self.change()

    def sync(self) -> None:
        """One turn of the group commit."""
        if work := self.store.pending_sync():
            work.run()
            self.store.synced(work)


def judge(run: Run, cut: SimDisk) -> list[str]:
    """What is wrong with what a power cut left: nothing may be."""
    try:
        store, report = ConsumerStateStore.open(cut, NAME, incarnation=INCARNATION)
    except Exception as error:
        return [f"does not open: {error!r}"]
    wrong = []
    if not run.store.durable_seq <= store.recorded_seq <= run.store.recorded_seq:
        wrong.append(f"{store.recorded_seq} is not after {run.store.durable_seq}")
    if as_model(store.state) != run.history.get(store.recorded_seq):
        wrong.append(f"not the state after change {store.recorded_seq}")
    if report.damage or report.lost:
        wrong.append(f"called damaged: {report}")
    return wrong


def workload(run: Run, turns: int) -> list[str]:
    """Changes, writes and syncs at random, and a power cut after each of them."""
    wrong: list[str] = []
    for _ in range(turns):
        dice = run.rng.random()
        run.changes(run.rng.randrange(40) if dice < 0.9 else 300)
        if dice < 0.4:
            run.store.flush()
        elif dice < 0.95:
            run.sync()
        assert as_model(run.store.state) == run.model
        wrong += judge(run, run.disk.crash(run.rng.getrandbits(32)))  # type: ignore[attr-defined]
    return wrong


def new(disk: SimDisk) -> ConsumerStateStore:
    return ConsumerStateStore.create(disk, NAME, incarnation=INCARNATION)


def reopened(disk: SimDisk) -> tuple[ConsumerStateStore, RecoveryReport]:
    return ConsumerStateStore.open(disk, NAME, incarnation=INCARNATION)


def settled(seed: int = 1, *, turns: int = 11, changes: int = 30) -> Run:
    """A run that went through some checkpoints and has frames in its log, all durable."""
    run = Run(SimDisk(), seed)
    for _ in range(turns):
        run.changes(changes)
        run.store.sync_all()
    return run
