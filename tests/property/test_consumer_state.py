"""Any changes, writes, syncs, power cuts and damage: the store equals a plain model at some point
between the last sync and the last change."""

from __future__ import annotations

from copy import deepcopy
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.jetstream.consumers.state import delta_log
from penstock.jetstream.consumers.state.consumer_deltas import ConsumerState, replay, unpack
from penstock.jetstream.consumers.state.state_files import ConsumerStateStore
from penstock.testing.damage import flip_bit
from penstock.testing.sim_disk import SimDisk
from penstock.testing.sim_files import Choice
from support.consumer_states import INCARNATION, NAME, Run, as_model

HALF = 4096
FILES = [NAME + suffix for suffix in (".state", ".log0", ".log1")]

steps = st.one_of(
    st.tuples(st.just("change"), st.integers(1, 30)),
    st.tuples(st.just("change"), st.integers(100, 400)),
    st.tuples(st.just("flush"), st.just(0)),
    st.tuples(st.just("sync"), st.just(0)),
    st.tuples(st.just("begin sync"), st.just(0)),
    st.tuples(st.just("cut"), st.integers(0, 2**32)),
    st.tuples(st.just("kill"), st.just(0)),
    st.tuples(st.just("flip"), st.integers(0, 2**32)),
)


class Machine:
    """A run whose disk may be cut, after which it goes on with what is left."""

    def __init__(self, seed: int) -> None:
        self.run = Run(SimDisk(), seed)
        self.out: object = None

    def do(self, step: str, number: int) -> None:
        run = self.run
        if step == "change":
            run.changes(number)
        elif step == "flush":
            run.store.flush()
        elif step == "sync":
            self._end_sync()
            run.sync()
        elif step == "begin sync":
            self.out = self.out or run.store.pending_sync()
        elif step == "cut":
            self._reopen(run.disk.crash(number), pristine=True)
        elif step == "kill":
            self._reopen(run.disk.crash(Choice()), pristine=True)
        else:
            self._flip(number)
        assert as_model(run.store.state) == run.model

    def _end_sync(self) -> None:
        if self.out is not None:
            self.out.run()
            self.run.store.synced(self.out)
            self.out = None

    def _flip(self, number: int) -> None:
        """Damage at rest: everything was synced and closed, then one bit is not what it was."""
        self._end_sync()
        self.run.store.close()
        image = self.run.disk.crash(Choice())
        name = FILES[number % len(FILES)]
        flip_bit(image, name, number // len(FILES) % (image.contents(name).size * 8))
        self._reopen(image, pristine=False)

    def _reopen(self, disk: SimDisk, *, pristine: bool) -> None:
        run = self.run
        before = run.store
        store, report = ConsumerStateStore.open(disk, NAME, incarnation=INCARNATION)
        assert before.durable_seq <= store.recorded_seq <= before.recorded_seq
        assert as_model(store.state) == run.history[store.recorded_seq]
        assert report.lost is None
        assert not (pristine and report.damage)
        assert store.durable_seq == store.recorded_seq
        run.disk, run.store, self.out = disk, store, None
        run.model = deepcopy(run.history[store.recorded_seq])


@settings(deadline=None, max_examples=120)
@given(st.integers(0, 2**32), st.lists(steps, max_size=25))
def test_store_is_its_model_between_the_last_sync_and_the_last_change(
    seed: int, run: list[tuple[str, int]]
) -> None:
    with mock.patch.object(delta_log, "HALF_BYTES_MIN", HALF):
        machine = Machine(seed)
        for step, number in run:
            machine.do(step, number)


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 300))
def test_checkpoint_and_its_changes_replayed_are_state(seed: int, n: int) -> None:
    run = Run(SimDisk(), seed)
    run.changes(n)
    copy, seq = ConsumerState.decode(run.store.state.encode(n))
    assert (copy, seq) == (run.store.state, n)
    start = len(run.store._buffer)
    run.changes(50)
    replay(copy, unpack(bytes(run.store._buffer[start:])))
    assert copy == run.store.state
    assert as_model(copy) == run.model


@settings(deadline=None)
@given(st.binary(max_size=3 * HALF), st.integers(0, 2 * HALF))
def test_no_bytes_make_reader_of_logs_fail(noise: bytes, at: int) -> None:
    with mock.patch.object(delta_log, "HALF_BYTES_MIN", HALF):
        disk = SimDisk()
        key = bytes(32)
        log = delta_log.ConsumerLog.fresh(disk, disk.create("log"), key, 3, HALF)
        log.append(b"\x03" + bytes(8), 1, 1, 0)
        image = bytearray(disk.read_small("log", 3 * HALF))
        image[at : at + len(noise)] = noise
        reading = delta_log.read_log(key, bytes(image))
        assert delta_log.read_log(key, noise) is None
        frames = [] if reading is None else [*reading.frames, *reading.frames_from]
        assert [frame.changes for frame in frames] in ([], [[(3, (0,))]])
