"""The consumer state store: what was synced is there again, whatever one fault does to the files.

The store of these tests has logs of the smallest size the format allows for a page, so that a
few hundred changes go through several checkpoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.jetstream.consumers.state import (
    consumer_deltas,
    consumer_state,
    delta_log,
)
from penstock.jetstream.consumers.state.consumer_deltas import ConsumerState, MalformedDelta, unpack
from penstock.jetstream.consumers.state.consumer_recovery import recover
from penstock.jetstream.consumers.state.delta_log import COPIES, LOG_HEADER_BYTES, read_log
from penstock.jetstream.consumers.state.state_files import ConsumerStateStore
from penstock.store.errors import NotFound, StoreError, SyncFailed
from penstock.store.io.disk import RealDisk
from penstock.store.io.slots import SlotsDamaged, read_slots, state_key
from penstock.testing.damage import cut, damage_states, flip_bit, lose, zero_page
from penstock.testing.sim_disk import DiskFault, SimDisk
from penstock.testing.sim_files import Choice, Lose
from support.consumer_states import (
    HALF,
    INCARNATION,
    LOGS,
    NAME,
    STATE,
    T0,
    Run,
    as_model,
    judge,
    new,
    reopened,
    settled,
    small_logs,
)

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.store.io.slots import SlotReading

KEY = state_key(f"consumer/{NAME}", INCARNATION)

pytestmark = pytest.mark.usefixtures(small_logs.__name__)


# -- the value


def test_floor_moves_with_lowest_outstanding_delivery_only() -> None:
    state = ConsumerState()
    for consumer, stream in ((1, 5), (2, 9), (3, 12)):
        state.deliver(consumer, stream, T0, 0)
    state.ack(9)
    assert (state.floor_consumer, state.floor_stream) == (0, 0)
    state.ack(5)
    assert (state.floor_consumer, state.floor_stream) == (2, 11)
    state.ack(12)
    assert (state.floor_consumer, state.floor_stream) == (3, 12)


def test_redelivery_keeps_number_of_the_first_delivery() -> None:
    state = ConsumerState()
    state.deliver(1, 10, T0, 0)
    state.deliver(2, 10, T0 + 1, 1)
    assert state.pending == {10: (1, T0 + 1)}
    assert state.redelivered == {10: 1}
    assert (state.delivered_consumer, state.delivered_stream) == (2, 10)


def test_count_of_dropped_message_stays_until_it_is_acknowledged() -> None:
    state = ConsumerState()
    state.deliver(1, 1, T0, 0)
    state.deliver(2, 2, T0, 0)
    state.deliver(3, 1, T0, 1)
    state.drop(1)
    assert state.redelivered == {1: 1}
    state.ack(2)
    assert state.redelivered == {1: 1}
    assert state.floor_stream == 2
    state.ack(1)
    assert state.redelivered == {}


def test_checkpoint_comes_back_as_it_was() -> None:
    run = settled()
    data = run.store.state.encode(77)
    assert len(data) == run.store.state.encoded_bytes()
    assert ConsumerState.decode(data) == (run.store.state, 77)


def test_checkpoint_of_no_sense_is_refused() -> None:
    state = ConsumerState()
    state.deliver(1, 1, T0, 1)
    state.deliver(2, 2, T0, 1)
    good = state.encode(1)
    for stop in range(len(good)):
        with pytest.raises(MalformedDelta):
            ConsumerState.decode(good[:stop])
    with pytest.raises(MalformedDelta, match="twice"):
        ConsumerState.decode(good[:56] + good[48:56] + good[64:])
    with pytest.raises(MalformedDelta, match="more entries"):
        ConsumerState.decode(good[:40] + b"\xff" * 8 + good[48:])


def test_changes_of_unknown_kind_or_half_change_are_refused() -> None:
    packed = consumer_deltas.pack_acked(consumer_deltas.ACKED, 5)
    assert unpack(packed * 2) == [(consumer_deltas.ACKED, (5,))] * 2
    for bad in (b"\0", b"\xff", packed[:-1], packed + b"\x01"):
        with pytest.raises(MalformedDelta):
            unpack(bad)


def test_run_is_the_same_as_its_messages_one_by_one() -> None:
    run, singly = ConsumerState(), ConsumerState()
    run.deliver_run(1, T0, [(3, 5), (9, 9)])
    for consumer, stream in ((1, 3), (2, 4), (3, 5), (4, 9)):
        singly.deliver(consumer, stream, T0, 0)
    assert run == singly
    assert run.ack_run([(4, 6), (3, 3), (3, 3)]) == [(4, 5), (3, 3)]
    for stream in (4, 5, 3):
        singly.ack(stream)
    assert run == singly
    assert (run.floor_consumer, run.floor_stream) == (3, 8)


def test_runs_come_back_as_they_were_packed() -> None:
    spans = [(2**40, 2**40 + 9), (7, 7)]
    packed = consumer_deltas.pack_delivered_run(5, T0, spans) + consumer_deltas.pack_acked_run(
        spans
    )
    assert unpack(packed) == [
        (consumer_deltas.DELIVERED_RUN, (5, T0, spans)),
        (consumer_deltas.ACKED_RUN, (spans,)),
    ]


def test_runs_of_no_sense_are_refused() -> None:
    good = consumer_deltas.pack_acked_run([(1, 2), (4, 4)])
    for stop in range(1, len(good)):
        with pytest.raises(MalformedDelta):
            unpack(good[:stop])
    too_many = consumer_deltas.ENTRIES_MAX + 1
    for spans in ([], [(2, 1)], [(1, too_many)], [(0, 2**64 - 1)]):
        with pytest.raises(MalformedDelta):
            unpack(consumer_deltas.pack_acked_run(spans))


def test_log_of_the_first_version_is_read_and_not_continued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as old:
        old.setattr(delta_log, "LOG_VERSION", delta_log.OLD_VERSION)
        store = new(disk := SimDisk())
        for n in range(1, 9):
            store.delivered(n, n, T0)
        store.acked(3)
        store.close()
    store, report = reopened(disk)
    assert (sorted(store.state.pending), report.clean) == ([1, 2, 4, 5, 6, 7, 8], True)
    store.delivered_run(9, [(20, 22)], T0)
    store.close()
    for name in LOGS:
        found = read_log(KEY, disk.pread(disk.open(name), COPIES * HALF, 0))
        assert found is not None
        assert found.version == delta_log.LOG_VERSION
    assert len(reopened(disk)[0].state.pending) == 10


# -- the store


def test_synced_messages_are_recovered_with_clean_report() -> None:
    run = settled()
    store, report = reopened(run.disk.crash(Lose()))
    assert as_model(store.state) == run.model
    assert store.durable_seq == store.recorded_seq == run.store.recorded_seq
    assert report.clean


def test_checkpoints_replace_logs_that_have_grown() -> None:
    run = settled(turns=100)
    assert run.store._slots.generation > 10
    assert all(run.disk.contents(log).size == COPIES * HALF for log in LOGS)


def test_log_grows_with_checkpoint_it_follows() -> None:
    store = new(SimDisk())
    for n in range(1, 2001):
        store.delivered(n, n, T0)
    store.sync_all()
    assert store._log.half_bytes >= store.state.encoded_bytes()


def test_more_changes_than_log_has_room_for_become_checkpoint() -> None:
    run = Run(SimDisk(), 3)
    run.changes(2000)
    run.store.sync_all()
    for harmed in (None, 0, 1):
        image = run.disk.crash(Choice())
        if harmed is not None:
            zero_page(image, STATE, harmed)
        store, report = reopened(image)
        assert as_model(store.state) == run.model
        assert report.lost is None


def test_state_replaced_as_whole_is_durable_after_sync_all() -> None:
    run = settled()
    other = ConsumerState(9, 90, 4, 40, {50: (5, T0), 60: (6, T0)}, {50: 2})
    run.store.replace(other)
    run.store.sync_all()
    assert reopened(run.disk.crash(Lose()))[0].state == other


def test_ack_of_what_is_not_outstanding_is_refused_and_not_recorded() -> None:
    store = new(SimDisk())
    assert not store.acked(5)
    assert store.recorded_seq == 0


def test_too_many_outstanding_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_state, "ENTRIES_MAX", 2)
    store = new(SimDisk())
    store.delivered(1, 1, T0)
    store.delivered(2, 2, T0)
    store.delivered(3, 1, T0, 1)
    with pytest.raises(ValueError, match="at most"):
        store.delivered(4, 3, T0)
    assert store.recorded_seq == 3


def test_one_sync_is_out_at_time_and_covers_what_was_written_before_it() -> None:
    store = new(SimDisk())
    assert store.pending_sync() is None
    store.delivered(1, 1, T0)
    work = store.pending_sync()
    assert work is not None
    store.delivered(2, 2, T0)
    store.flush()
    assert store.pending_sync() is None
    work.run()
    store.synced(work)
    assert (store.durable_seq, store.recorded_seq) == (1, 2)
    store.sync_all()
    assert store.durable_seq == 2


def test_failed_sync_is_final_and_synced_state_survives() -> None:
    run = settled()
    durable = run.store.durable_seq
    run.change()
    run.disk.fail_nth(1, DiskFault.SYNC_ERROR)
    with pytest.raises(SyncFailed):
        run.store.sync_all()
    run.disk.heal()
    for write in (run.store.flush, run.store.pending_sync):
        with pytest.raises(SyncFailed):
            write()
    run.change()  # goes on in memory
    assert run.store.durable_seq == durable < run.store.recorded_seq
    run.store.close()
    assert reopened(run.disk.crash(Lose()))[0].recorded_seq >= durable


@pytest.mark.parametrize("fault", [DiskFault.EIO, DiskFault.SHORT_WRITE, DiskFault.ENOSPC])
def test_whichever_write_fails_it_can_be_tried_again(fault: DiskFault) -> None:
    nth = 0
    struck = True
    while struck:
        nth += 1
        run = Run(SimDisk(), nth)
        run.disk.fail_nth(nth, fault)
        for _ in range(8):
            run.changes(30)
            try:
                run.sync()
            except SyncFailed:
                break
            except StoreError:
                assert judge(run, run.disk.crash(nth)) == []
        struck = bool(run.disk.faults_struck)
        run.disk.heal()
        assert judge(run, run.disk.crash(nth)) == []
    assert nth > 10


def test_two_consumers_share_directory() -> None:
    disk = SimDisk()
    one = ConsumerStateStore.create(disk, "one", incarnation=1)
    two = ConsumerStateStore.create(disk, "two", incarnation=1)
    one.delivered(1, 1, T0)
    two.delivered(1, 2, T0)
    one.close()
    two.close()
    assert ConsumerStateStore.open(disk, "two", incarnation=1)[0].state.pending == {2: (1, T0)}
    ConsumerStateStore.delete(disk, "two")
    assert not [name for name in disk.files() if name.startswith("two")]
    with pytest.raises(NotFound):
        ConsumerStateStore.open(disk, "two", incarnation=1)
    assert ConsumerStateStore.open(disk, "one", incarnation=1)[1].clean


def test_files_of_earlier_life_are_not_taken_for_this_one() -> None:
    run = settled()
    with pytest.raises(SlotsDamaged):
        ConsumerStateStore.open(run.disk, NAME, incarnation=INCARNATION + 1)
    assert reopened(run.disk)[1].clean


def test_it_works_on_real_disk(tmp_path: Path) -> None:
    disk = RealDisk.at(tmp_path)
    run = Run(disk, 5)
    run.changes(500)
    run.store.close()
    store, report = ConsumerStateStore.open(disk, NAME, incarnation=INCARNATION)
    assert (as_model(store.state), report.clean) == (run.model, True)
    store.close()
    disk.close()


# -- damage


def pure(disk: SimDisk) -> tuple[SlotReading, list[bytes]]:
    """What recovery starts from, to be tried many times without files."""
    slots = read_slots(disk, disk.open(STATE), KEY)
    return slots, [disk.read_small(log, 1 << 20) for log in LOGS]


def packed_bytes(kind: int, fields: tuple[object, ...]) -> int:
    layouts = {**consumer_deltas._LAYOUT, **consumer_deltas._RUN_LAYOUT}
    spans = fields[-1] if kind in consumer_deltas._RUN_LAYOUT else []
    assert isinstance(spans, list)
    return 1 + layouts[kind].size + 16 * len(spans)


def is_padding(log: delta_log.LogReading, at: int) -> bool:
    """Whether a byte is one of those that fill a frame up to a multiple of eight."""
    for frame in log.frames:
        body = sum(packed_bytes(*change) for change in frame.changes)
        if frame.offset <= at < frame.end:
            return at >= frame.offset + delta_log.FRAME_HEADER_BYTES + body
    return False


def test_no_flipped_bit_in_log_costs_change_or_stays_unreported() -> None:
    run = settled(turns=3, changes=4)
    slots, images = pure(run.disk)
    current = slots.generation % 2
    log = read_log(KEY, images[current])
    assert log is not None
    assert len(log.frames) > 1
    for start in (0, HALF):
        for at in [*range(start, start + 40), *range(start + LOG_HEADER_BYTES, start + log.end)]:
            for bit in range(8):
                flipped = bytearray(images[current])
                flipped[at] ^= 1 << bit
                other = read_log(KEY, images[1 - current])
                this = read_log(KEY, bytes(flipped))
                found = recover(slots, (this, other) if current == 0 else (other, this))
                assert found.seq == run.store.recorded_seq
                assert found.report.lost is None
                assert as_model(found.state) == run.model
                assert not found.report.clean or is_padding(log, at - start)


def test_every_truncation_of_log_leaves_state_that_was_and_is_reported() -> None:
    run = settled(turns=8)
    slots, images = pure(run.disk)
    current = slots.generation % 2
    other = read_log(KEY, images[1 - current])
    for size in range(0, COPIES * HALF, 7):
        this = read_log(KEY, images[current][:size])
        found = recover(slots, (this, other) if current == 0 else (other, this))
        assert as_model(found.state) == run.history[found.seq]
        assert found.report.damage


def test_either_slot_can_be_lost_without_change_being_lost() -> None:
    for seed in range(6):
        run = settled(seed)
        for page in (0, 1):
            image = run.disk.crash(Choice())
            zero_page(image, STATE, page)
            store, report = reopened(image)
            assert as_model(store.state) == run.model
            assert not report.clean
            assert reopened(image)[1].clean


def test_damage_of_any_kind_opens_to_state_that_was_or_is_refused() -> None:
    run = settled()
    states = 0
    for what, image in damage_states(run.disk, places=60):
        states += 1
        try:
            store, report = reopened(image)
        except (SlotsDamaged, NotFound):
            assert what.startswith(STATE) or STATE in what.split(), what
            continue
        assert as_model(store.state) == run.history[store.recorded_seq], what
        whole = store.recorded_seq == run.store.recorded_seq
        assert whole or report.damage, (what, report)
        # A page written over the other slot harms both checkpoints at once.
        both_harmed = what.startswith(STATE) and "written to" in what
        assert whole or both_harmed or "lost" in what or "cut" in what, (what, report)
        again, then = reopened(image)
        assert then.clean, (what, then)
        assert again.state == store.state
    assert states > 600


def test_missing_log_is_reported_and_made_again() -> None:
    run = settled()
    for log in LOGS:
        image = run.disk.crash(Choice())
        lose(image, log)
        store, report = reopened(image)
        assert ("the file is missing") in [d.what for d in report.damage]
        assert as_model(store.state) == run.history[store.recorded_seq]
        store.delivered(10**6, 10**6, T0)
        store.close()
        assert reopened(image)[1].clean


def test_hole_in_durable_bytes_is_reported_lost_and_nothing_after_it_is_used() -> None:
    run = settled(turns=8)
    slots, images = pure(run.disk)
    name = LOGS[slots.generation % 2]
    log = read_log(KEY, images[slots.generation % 2])
    assert log is not None
    hole = log.frames[-2]
    for copy in range(COPIES):
        flip_bit(run.disk, name, (copy * HALF + hole.offset + 60) * 8)
    images = pure(run.disk)[1]
    store, report = reopened(run.disk)
    assert store.recorded_seq == hole.first - 1
    assert as_model(store.state) == run.history[store.recorded_seq]
    assert report.lost == (hole.first, log.frames[-1].durable_seq)
    assert report.cut_changes == len(log.frames[-1].changes)
    assert report.cut_bytes > 0
    assert run.disk.read_small(NAME + ".cut", 1 << 20) == b"".join(images)


def test_torn_tail_is_cut_counted_and_kept_aside() -> None:
    run = settled(turns=8)
    run.changes(5)
    run.store.flush()
    slots, images = pure(run.disk)
    log = read_log(KEY, images[slots.generation % 2])
    assert log is not None
    for copy in range(COPIES):
        at = copy * HALF + log.frames[-1].offset + 60
        flip_bit(run.disk, LOGS[slots.generation % 2], at * 8)
    images = pure(run.disk)[1]
    store, report = reopened(run.disk)
    assert store.recorded_seq == run.store.durable_seq
    assert (report.lost, report.damage) == (None, ())
    assert report.cut_bytes > 0
    assert run.disk.read_small(NAME + ".cut", 1 << 20) == b"".join(images)


def test_damage_never_makes_checkpoint_of_future_guess() -> None:
    run = settled()
    cut(run.disk, STATE, 10)
    with pytest.raises(SlotsDamaged):
        reopened(run.disk)
