"""Pushing: interest, flow control, heartbeats, rate and pace."""

from __future__ import annotations

from penstock.api.consumer_config import AckPolicy, ReplayPolicy
from penstock.base.effects import Deliver, Send
from penstock.jetstream.consumers import push_delivery
from penstock.jetstream.consumers.delivery import PUMP_BYTES_FIRST, PUMP_BYTES_MAX
from penstock.jetstream.consumers.rate_limit import RateLimit
from support.consumer_stage import MS, SECOND, T0, Stage, push_config

BEAT = "100 Idle Heartbeat|Nats-Last-Consumer: {}|Nats-Last-Stream: {}"


def flowing(**fields: object) -> Stage:
    """A stage whose window is two messages of 1 MB."""
    cfg = push_config(ack_policy=AckPolicy.NONE, flow_control=True, idle_heartbeat=SECOND, **fields)
    return Stage(cfg)


def drain(stage: Stage) -> None:
    while stage.consumer.busy:
        stage.take(stage.consumer.wake(stage.now_ns))


def test_messages_go_to_deliver_subject_under_their_own() -> None:
    stage = Stage(push_config(), before=["a"])
    stage.publish("b", b"x")
    assert [(d.to, d.subject) for d in stage.deliveries()] == [("in", "a"), ("in", "b")]


def test_nothing_is_sent_without_listeners() -> None:
    stage = Stage(push_config())
    stage.deaf.add("in")
    stage.take(stage.consumer.interest_changed(T0))
    stage.publish()
    assert stage.sent == []
    assert not stage.consumer.info(T0).push_bound
    stage.deaf.clear()
    stage.take(stage.consumer.interest_changed(T0))
    assert stage.seqs() == [1]
    assert stage.consumer.info(T0).push_bound


def test_unacked_messages_are_pushed_again() -> None:
    stage = Stage(push_config(), before=["a", "a"])
    one, two = stage.deliveries()
    stage.ack(one)
    stage.pass_time(30 * SECOND)
    assert stage.seqs() == [2]
    del two


def test_call_delivers_bounded_number_of_bytes_and_the_first_calls_fewer() -> None:
    stage = Stage(push_config(max_ack_pending=-1))
    stage.deaf.add("in")
    stage.take(stage.consumer.interest_changed(T0))
    for _ in range(240):
        stage.publish(payload=bytes(10_000))
    stage.deaf.clear()
    stage.take(stage.consumer.interest_changed(T0))
    by_call = [len(stage.seqs())]
    while stage.consumer.busy:
        stage.take(stage.consumer.wake(T0))
        by_call.append(len(stage.seqs()))
    first, most = -(-PUMP_BYTES_FIRST // 10_000), -(-PUMP_BYTES_MAX // 10_000)
    assert (by_call[0], max(by_call), sum(by_call)) == (first, most, 240)
    assert by_call[:5] == sorted(by_call[:5])


def test_payloads_are_left_out_if_only_headers_are_wanted() -> None:
    stage = Stage(push_config(headers_only=True))
    stage.publish(payload=b"12345")
    stage.publish(payload=b"1", header=b"NATS/1.0\r\nA: b\r\n\r\n")
    assert [(d.header, d.payload) for d in stage.deliveries()] == [
        (b"NATS/1.0\r\nNats-Msg-Size: 5\r\n\r\n", b""),
        (b"NATS/1.0\r\nA: b\r\nNats-Msg-Size: 1\r\n\r\n", b""),
    ]


# -- heartbeats


def test_heartbeats_come_when_nothing_else_does() -> None:
    stage = Stage(push_config(idle_heartbeat=SECOND))
    stage.pass_time(600 * MS)
    stage.publish()
    stage.pass_time(999 * MS)
    assert stage.statuses() == []
    stage.pass_time(1001 * MS)
    assert stage.statuses() == [BEAT.format(1, 1)] * 2


def test_heartbeats_report_how_far_stream_was_read() -> None:
    stage = Stage(push_config(idle_heartbeat=SECOND, filter_subject="a"))
    stage.publish("b")
    stage.take(stage.consumer.wake(T0))
    stage.pass_time(SECOND)
    assert stage.statuses() == [BEAT.format(0, 1)]


def test_heartbeats_are_sent_only_to_listeners() -> None:
    stage = Stage(push_config(idle_heartbeat=SECOND))
    stage.deaf.add("in")
    stage.take(stage.consumer.interest_changed(T0))
    stage.pass_time(5 * SECOND)
    assert stage.sent == []


# -- flow control


def test_window_bounds_what_is_in_flight() -> None:
    stage = flowing()
    for _ in range(5):
        stage.publish(payload=bytes(1_000_000))
    first, second, asked, third = stage.sent
    assert [type(e) for e in (first, second, third)] == [Deliver] * 3
    assert asked == Send(
        "in", header=b"NATS/1.0 100 FlowControl Request\r\n\r\n", reply="$JS.FC.S.C.0001"
    )


def test_answer_doubles_window() -> None:
    stage = flowing()
    for _ in range(9):
        stage.publish(payload=bytes(1_000_000))
    stage.sent.clear()
    stage.take(stage.consumer.flow_reply("$JS.FC.S.C.0001", b"", T0))
    drain(stage)
    assert stage.seqs() == [4, 5, 6, 7]


def test_only_answer_to_the_last_question_counts() -> None:
    stage = flowing()
    for _ in range(5):
        stage.publish(payload=bytes(1_000_000))
    stage.sent.clear()
    stage.take(stage.consumer.flow_reply("$JS.FC.S.C.ABCD", b"", T0))
    assert stage.sent == []


def test_stalled_consumer_names_answer_it_waits_for() -> None:
    stage = flowing()
    for _ in range(5):
        stage.publish(payload=bytes(1_000_000))
    stage.sent.clear()
    stage.pass_time(SECOND)
    stalled = "|Nats-Consumer-Stalled: $JS.FC.S.C.0001"
    assert stage.statuses() == [BEAT.format(3, 3) + stalled]


def test_window_stops_growing() -> None:
    stage = flowing()
    side = stage.consumer._push
    assert side is not None
    for _ in range(9):
        side._ask([])
        assert side.answered(side.asked)
    assert side._window == push_delivery.WINDOW_BYTES_MAX


def test_answers_acknowledge_where_that_is_policy() -> None:
    cfg = push_config(ack_policy=AckPolicy.FLOW_CONTROL, max_ack_pending=2)
    stage = Stage(cfg, before=["a"] * 4)
    *_, asked = stage.sent
    assert isinstance(asked, Send)
    stage.sent.clear()
    header = b"NATS/1.0\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 2\r\n\r\n"
    stage.take(stage.consumer.flow_reply(asked.reply, header, T0))
    assert stage.seqs() == [3, 4]
    assert stage.consumer.info(T0).ack_floor.stream_seq == 2


def test_at_the_end_of_stream_heartbeat_asks_for_the_last_acks() -> None:
    cfg = push_config(ack_policy=AckPolicy.FLOW_CONTROL, max_ack_pending=100)
    stage = Stage(cfg, before=["a"])
    stage.sent.clear()
    stage.pass_time(SECOND)
    beat, asked = stage.statuses()
    assert beat == BEAT.format(1, 1)
    assert asked == "100 FlowControl Request"


# -- pace


def test_rate_holds_messages_back() -> None:
    stage = Stage(push_config(rate_limit_bps=8 * 1_000_000, ack_policy=AckPolicy.NONE))
    for _ in range(3):
        stage.publish(payload=bytes(1_000_000))
    assert stage.seqs() == [1]
    stage.pass_time(SECOND)
    assert stage.seqs() == [2]
    stage.pass_time(SECOND)
    assert stage.seqs() == [3]


def test_message_larger_than_bucket_waits_for_full_one() -> None:
    limit = RateLimit(80, 10, 0)
    assert limit.may_go_ns(100, 0) == 0
    limit.left(100)
    assert limit.may_go_ns(100, 0) == 10 * SECOND


def test_gaps_of_original_are_kept_until_it_has_caught_up() -> None:
    stage = Stage(push_config())
    for _ in range(2):
        stage.publish()
        stage.now_ns += 3 * SECOND
    late = Stage(push_config(replay_policy=ReplayPolicy.ORIGINAL), store=stage.store)
    assert late.seqs() == [1]
    late.pass_time(3 * SECOND - 1)
    assert late.seqs() == []
    late.pass_time(1)
    assert late.seqs() == [2]
    late.now_ns += 9 * SECOND
    late.publish()
    assert late.seqs() == [3]
