"""Restarts, updates, pauses, and unused consumers."""

from __future__ import annotations

from msgspec import structs

from penstock.api.consumer_config import AckPolicy, DeliverPolicy
from penstock.jetstream.consumers.state.consumer_state import MemoryLog
from penstock.store.memstore import MemStore
from support.consumer_stage import MS, SECOND, T0, Stage, pull_config, push_config

FIVE = 5 * SECOND


def again(stage: Stage) -> Stage:
    """The same consumer after a restart of its server."""
    return Stage(stage.consumer.cfg, log=stage.log, store=stage.store, recovered=True)


# -- restarts


def test_restart_continues_where_it_was() -> None:
    stage = Stage(pull_config(), before=["a"] * 4)
    stage.pull("2")
    one, _ = stage.deliveries()
    stage.ack(one)
    reborn = again(stage)
    reborn.pull("9")
    reborn.pass_time(30 * SECOND)
    assert [d.reply.split(".")[4:7] for d in reborn.deliveries()] == [
        ["1", "3", "3"],
        ["1", "4", "4"],
        ["2", "2", "5"],
        ["2", "3", "6"],
        ["2", "4", "7"],
    ]


def test_restart_does_not_choose_the_start_again() -> None:
    stage = Stage(pull_config(deliver_policy=DeliverPolicy.NEW))
    stage.publish()
    reborn = again(stage)
    reborn.pull("9")
    assert reborn.seqs() == [1]


def test_messages_stream_lost_leave_ack_pending() -> None:
    stage = Stage(pull_config(), before=["a"] * 3)
    stage.pull("2")
    stage.store.purge(before_seq=2)
    reborn = again(stage)
    info = reborn.consumer.info(T0)
    assert (info.num_ack_pending, info.ack_floor.stream_seq) == (1, 1)


def test_stream_that_lost_its_end_is_followed_back() -> None:
    stage = Stage(pull_config(), before=["a"] * 5)
    stage.pull("5")
    for delivery in stage.deliveries()[2:]:
        stage.ack(delivery)
    stage.store.truncate(2)
    reborn = again(stage)
    reborn.pull("9")
    reborn.publish()
    assert reborn.seqs() == [3]
    assert reborn.consumer.info(T0).num_ack_pending == 3


def test_emptied_stream_is_followed_back() -> None:
    stage = Stage(pull_config(ack_policy=AckPolicy.NONE), before=["a"] * 5)
    stage.pull("5")
    reborn = Stage(stage.consumer.cfg, log=stage.log, store=MemStore(), recovered=True)
    reborn.pull("9")
    reborn.publish()
    assert reborn.seqs() == [1]


# -- pauses


def pause(stage: Stage, until_ns: int | None) -> None:
    cfg = structs.replace(stage.consumer.cfg, pause_until=until_ns)
    stage.take(stage.consumer.update(cfg, T0))


def test_paused_consumer_delivers_nothing_until_its_time() -> None:
    stage = Stage(pull_config(), before=["a"])
    pause(stage, T0 + SECOND)
    stage.pull("1")
    info = stage.consumer.info(T0)
    assert (info.paused, info.pause_remaining, info.num_waiting) == (True, SECOND, 1)
    (told,) = stage.events()
    assert (told.event.paused, told.event.pause_until) == (True, T0 + SECOND)
    stage.pass_time(SECOND)
    told, delivery = stage.sent
    assert told.event.paused is False
    assert delivery.to == "r"
    assert not stage.consumer.info(stage.now_ns).paused


def test_pause_may_be_ended() -> None:
    stage = Stage(pull_config(), before=["a"])
    pause(stage, T0 + SECOND)
    stage.pull("1")
    pause(stage, None)
    assert stage.seqs() == [1]


def test_requests_time_out_in_pause() -> None:
    stage = Stage(pull_config(pause_until=T0 + FIVE), before=["a"])
    stage.pull('{"batch":1,"expires":1000000000}')
    stage.pass_time(SECOND)
    assert stage.statuses()[0].startswith("408 Request Timeout")


# -- updates


def test_shorter_wait_holds_for_what_is_outstanding() -> None:
    stage = Stage(pull_config(), before=["a"])
    stage.pull("2")
    stage.deliveries()
    stage.take(stage.consumer.update(pull_config(ack_wait=SECOND), T0))
    stage.pass_time(SECOND)
    assert stage.seqs() == [1]


def test_higher_limit_lets_more_out_at_once() -> None:
    stage = Stage(pull_config(max_ack_pending=1), before=["a"] * 3)
    stage.pull("9")
    stage.deliveries()
    stage.take(stage.consumer.update(pull_config(max_ack_pending=2), T0))
    assert stage.seqs() == [2]


def test_new_deliver_subject_gets_what_old_one_did_not_ack() -> None:
    stage = Stage(push_config(), before=["a", "a"])
    one, _ = stage.deliveries()
    stage.ack(one)
    stage.take(stage.consumer.update(push_config(deliver_subject="other"), T0))
    assert [(d.to, d.reply.split(".")[4:6]) for d in stage.deliveries()] == [("other", ["2", "2"])]


# -- use


def test_ephemeral_push_consumer_is_deleted_without_listeners() -> None:
    cfg = structs.replace(push_config(), durable_name="", name="C")
    stage = Stage(cfg)
    assert stage.consumer.next_deadline_ns() is None
    stage.deaf.add("in")
    stage.take(stage.consumer.interest_changed(T0))
    stage.pass_time(FIVE - 1)
    assert not stage.consumer.is_abandoned(stage.now_ns)
    stage.pass_time(1)
    assert stage.consumer.is_abandoned(stage.now_ns)
    assert stage.consumer.next_deadline_ns() is None


def test_durable_consumer_stays() -> None:
    stage = Stage(pull_config())
    assert stage.consumer.next_deadline_ns() is None


def test_unused_pull_consumer_goes() -> None:
    stage = Stage(pull_config(inactive_threshold=SECOND))
    stage.pass_time(900 * MS)
    stage.pull('{"batch":1,"no_wait":true}')
    stage.pass_time(SECOND)
    assert not stage.consumer.is_abandoned(stage.now_ns)
    stage.pass_time(200 * MS)
    assert stage.consumer.is_abandoned(stage.now_ns)


def test_pull_consumer_stays_while_request_waits() -> None:
    stage = Stage(pull_config(inactive_threshold=SECOND))
    stage.pull("1")
    stage.pass_time(60 * SECOND)
    assert not stage.consumer.is_abandoned(stage.now_ns)


def test_pull_consumer_stays_while_messages_are_ack_pending() -> None:
    stage = Stage(pull_config(inactive_threshold=SECOND), before=["a"])
    stage.pull("1")
    stage.pass_time(30 * SECOND)
    assert not stage.consumer.is_abandoned(stage.now_ns)
    stage.pass_time(2 * SECOND)
    assert stage.consumer.is_abandoned(stage.now_ns)


def test_ticking_early_changes_nothing() -> None:
    stage = Stage(pull_config(inactive_threshold=SECOND), before=["a"])
    stage.pull('{"batch":2,"expires":9000000000,"idle_heartbeat":1000000000}')
    stage.sent.clear()
    for _ in range(3):
        stage.take(stage.consumer.tick(T0))
    assert stage.sent == []


def test_state_of_new_consumer_reports_where_it_starts() -> None:
    log = MemoryLog()
    Stage(pull_config(deliver_policy=DeliverPolicy.NEW), log=log, before=["a"] * 3)
    assert (log.state.delivered_stream, log.state.floor_stream) == (3, 3)


def test_consumer_that_feeds_stream_counts_from_its_floor_again() -> None:
    stage = Stage(pull_config(), before=["a"] * 3)
    stage.pull("2")
    one, _ = stage.deliveries()
    stage.ack(one)
    stage.consumer.cfg = structs.replace(stage.consumer.cfg, sourcing=True)
    reborn = again(stage)
    reborn.pull("1")
    assert [d.reply.split(".")[4:7] for d in reborn.deliveries()] == [["1", "2", "1"]]
