"""The pump: what it cannot read it leaves, what it sends is whole, and its bounds hold."""

from __future__ import annotations

from array import array

from penstock.api.consumer_config import AckPolicy, DeliverPolicy
from penstock.base.effects import Deliver, Fetch
from penstock.jetstream.consumers.delivery_pump import TAKERS_MAX, DeliveryRun, Pump
from penstock.store.filestore import FileStore
from penstock.store.memstore import MemStore
from penstock.testing.sim_disk import SimDisk
from support.consumer_stage import T0, pull_config, seq_of
from support.lanes import LaneStage, LaneSubscribers

FAR = 2**40


def run_of(
    pump: Pump, subscribers: LaneSubscribers, **how: object
) -> tuple[DeliveryRun, list[Deliver]]:
    """A run to `in` without bounds but for those given, and what came of it."""
    bounds: dict[str, object] = {
        "takers": [(b"in", FAR, 0)],
        "start": 1,
        "consumer_seq": 0,
        "num_undelivered": 0,
        "counted_to": 0,
        "msgs_max": FAR,
        "size_max": FAR,
        "flow_max": FAR,
        "in_turns": True,
        "spans_kept": True,
    }
    run = pump.run(**(bounds | how))  # type: ignore[arg-type]
    return run, [one for one in subscribers.take() if isinstance(one, Deliver)]


def pump_over(store: MemStore, subscribers: LaneSubscribers) -> Pump:
    router, interest = subscribers.outlet
    log = store.lane_parts()["log"]
    return Pump(log=log, router=router, interest=interest, ack_prefix="$JS.ACK.S.C.")


def filled(messages: int, payload: bytes = b"") -> MemStore:
    store = MemStore()
    for number in range(messages):
        store.append(f"s.{number % 3}", b"", payload, T0 + number)
    return store


def test_every_message_lowers_number_of_undelivered_messages() -> None:
    subscribers = LaneSubscribers(["in"])
    pump = pump_over(filled(4), subscribers)
    run, got = run_of(pump, subscribers, num_undelivered=3, counted_to=3)
    assert [one.reply for one in got] == [
        f"$JS.ACK.S.C.1.1.1.{T0}.2",
        f"$JS.ACK.S.C.1.2.2.{T0 + 1}.1",
        f"$JS.ACK.S.C.1.3.3.{T0 + 2}.0",
        f"$JS.ACK.S.C.1.4.4.{T0 + 3}.0",
    ]
    assert (run.sent, run.num_undelivered, run.counted_to, run.at_end) == (4, 0, 4, True)


def test_numbers_of_every_length_are_written_whole() -> None:
    subscribers = LaneSubscribers(["in"])
    pump = pump_over(filled(1), subscribers)
    powers = [10**digits for digits in range(20)] + [2**32, 2**63, 2**64 - 1]
    for number in [near for power in powers for near in (power - 1, power, power + 1)]:
        if 0 < number < 2**64:
            _, [one] = run_of(pump, subscribers, consumer_seq=number - 1)
            assert one.reply == f"$JS.ACK.S.C.1.1.{number}.{T0}.0"


def test_sizes_are_those_of_the_other_lane() -> None:
    subscribers = LaneSubscribers(["in"])
    run, got = run_of(pump_over(filled(5, b"xy"), subscribers), subscribers)
    sizes = [len(one.subject) + len(one.reply) + len(one.payload) for one in got]
    flows = [len("in") + len(one.reply) + len(one.payload) for one in got]
    assert (run.size, run.flow, run.last_flow) == (sum(sizes), sum(flows), flows[-1])


def test_run_ends_with_message_that_reaches_bound() -> None:
    subscribers = LaneSubscribers(["in"])
    pump = pump_over(filled(9), subscribers)
    for bound in ({"msgs_max": 3}, {"size_max": 101}, {"flow_max": 101}):
        run, got = run_of(pump, subscribers, **bound)
        assert (len(got), run.at_end, run.spans) == (3, False, [(1, 3)])


def test_gaps_and_filters_make_spans() -> None:
    subscribers = LaneSubscribers(["in"])
    store = filled(9)
    store.remove(2)
    pump = pump_over(store, subscribers)
    assert run_of(pump, subscribers)[0].spans == [(1, 1), (3, 9)]
    for filters, wanted in (
        (("s.1",), [(5, 5), (8, 8)]),
        (("*.1",), [(5, 5), (8, 8)]),
        (("s.1", "s.2"), [(3, 3), (5, 6), (8, 9)]),
        (("nope.>",), []),
    ):
        pump.set_filters(filters)
        assert run_of(pump, subscribers)[0].spans == wanted


def test_row_is_missing_along_up_to_what_is_not_there() -> None:
    subscribers = LaneSubscribers(["in"])
    store = filled(9)
    store.remove(7)
    pump = pump_over(store, subscribers)
    run, _ = run_of(pump, subscribers, row=array("Q", [2, 3, 6, 7, 9]), row_at=1)
    assert (run.spans, run.at_end) == ([(3, 3), (6, 6)], False)
    run, _ = run_of(pump, subscribers, row=array("Q", [2, 9]), row_at=1)
    assert (run.spans, run.at_end) == ([(9, 9)], False)


def test_headers_alone_report_size_of_what_is_left_out() -> None:
    subscribers = LaneSubscribers(["in"])
    store = MemStore()
    for header, size in ((b"", 0), (b"NATS/1.0\r\nA: b\r\n\r\n", 70_000)):
        store.append("s", header, b"z" * size, T0)
    pump = pump_over(store, subscribers)
    pump.set_headers_only(True)
    run, got = run_of(pump, subscribers)
    assert [(one.header, one.payload) for one in got] == [
        (b"NATS/1.0\r\nNats-Msg-Size: 0\r\n\r\n", b""),
        (b"NATS/1.0\r\nA: b\r\nNats-Msg-Size: 70000\r\n\r\n", b""),
    ]
    assert run.size == sum(len(one.subject + one.reply) + len(one.header) for one in got)


def test_last_of_each_subject_takes_compiled_lane() -> None:
    stage = LaneStage(
        pull_config(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT), before=["a", "b", "a", "c"]
    )
    stage.pull("5")
    assert [seq_of(one) for one in stage.sent if isinstance(one, Deliver)] == [2, 3, 4]
    assert stage.ran == 3


def test_rare_subject_is_found_beyond_many_others() -> None:
    subscribers = LaneSubscribers(["in"])
    store = filled(5000)
    store.append("t.x", b"", b"", T0 + 5000)
    pump = pump_over(store, subscribers)
    for filters in (("t.*",), ("t.x",), ("t.x", "u.*")):
        pump.set_filters(filters)
        assert pump.has_next(1)
        assert run_of(pump, subscribers)[0].spans == [(5001, 5001)]
        assert not pump.has_next(5002)


def test_large_messages_arrive_whole() -> None:
    subscribers = LaneSubscribers(["in"])
    store = MemStore()
    sizes = [0, 1, 7000, 8192, 70_000, 1_048_576, 5]
    for size in sizes:
        store.append("s", b"NATS/1.0\r\nA: b\r\n\r\n", b"z" * size, T0)
    _, got = run_of(pump_over(store, subscribers), subscribers)
    assert [(len(one.payload), set(one.payload) <= {ord("z")}) for one in got] == [
        (size, True) for size in sizes
    ]
    assert {one.header for one in got} == {b"NATS/1.0\r\nA: b\r\n\r\n"}


def test_more_requests_than_run_has_room_for_are_served_in_turns() -> None:
    stage = LaneStage(pull_config(ack_policy=AckPolicy.NONE))
    for _ in range(TAKERS_MAX + 10):
        stage.pull("2")
    for _ in range(2 * TAKERS_MAX):
        stage.store.append("a", b"", b"", T0)
    stage.consumer.stored_some()
    stage.take(stage.consumer.wake(T0))
    left = [waiting.left for waiting in stage.consumer._delivery.pull.queue]
    assert sum(left) == 2 * (TAKERS_MAX + 10) - 2 * TAKERS_MAX
    assert sorted(left, reverse=True) == left
    assert stage.consumer.info(T0).num_pending == 0


def test_cold_message_is_loaded_and_delivered_in_order() -> None:
    store = FileStore.open(
        SimDisk(), incarnation=1, block_bytes=4096, warm_bytes_max=0, noise=bytes
    )
    for number in range(60):
        store.append("a", b"", bytes(200), T0 + number)
    while (work := store.pending_sync()) is not None:
        work.run()
        store.synced(work)
    stage = LaneStage(pull_config(ack_policy=AckPolicy.NONE), store=store)
    stage.pull("60")
    got: list[int] = []
    fetches = 0
    for _ in range(60):
        cold = [one.cold for one in stage.sent if isinstance(one, Fetch)]
        got += [seq_of(one) for one in stage.sent if isinstance(one, Deliver)]
        stage.sent = []
        if not cold:
            break
        fetching = store.fetch(cold[0])
        fetching.run()
        store.fetched(fetching)
        fetches += 1
        stage.take(stage.consumer.wake(T0))
    assert got == list(range(1, 61))
    assert (stage.ran > 0, fetches > 1) == (True, True)
    store.close()
