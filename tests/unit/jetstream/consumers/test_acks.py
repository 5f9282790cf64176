"""Acknowledgements, and what happens to messages that get none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.api.ack_protocol import AckRef
from penstock.api.consumer_config import AckPolicy, DeliverPolicy
from penstock.base.effects import Deliver, Send
from penstock.jetstream.consumers import ack_deadlines as pending_module
from penstock.store.contract import Limits
from support.consumer_stage import MS, SECOND, T0, Stage, pull_config, push_config, seq_of

if TYPE_CHECKING:
    from penstock.api.consumer_config import ConsumerInfo

FOREVER = 100_000 * SECOND


def floor(info: ConsumerInfo) -> tuple[int, int]:
    return info.ack_floor.consumer_seq, info.ack_floor.stream_seq


def pulled(n: int, **fields: object) -> tuple[Stage, list[Deliver]]:
    """A consumer that delivered n of n messages."""
    stage = Stage(pull_config(**fields), before=["a"] * n)
    stage.pull(str(n))
    return stage, stage.deliveries()


def test_ack_floor_never_passes_unacked_message() -> None:
    stage, (one, two, three) = pulled(3)
    stage.ack(two)
    assert floor(stage.consumer.info(T0)) == (0, 0)
    stage.ack(one)
    assert floor(stage.consumer.info(T0)) == (2, 2)
    stage.ack(three)
    assert floor(stage.consumer.info(T0)) == (3, 3)
    assert stage.consumer.info(T0).num_ack_pending == 0


@pytest.mark.parametrize("payload", [b"", b"+ACK", b"+OK", b"+TERM", b"+TERM bad"])
def test_acked_messages_are_never_redelivered(payload: bytes) -> None:
    stage, (one,) = pulled(1)
    stage.ack(one, payload)
    stage.pull("9")
    stage.pass_time(FOREVER)
    assert stage.deliveries() == []


def test_unacked_messages_are_redelivered_in_order_after_ack_wait() -> None:
    stage, (one, two, three) = pulled(3)
    stage.ack(two)
    stage.pull("9")
    stage.pass_time(30 * SECOND - 1)
    assert stage.seqs() == []
    stage.pass_time(1)
    assert [d.reply.split(".")[4:7] for d in stage.deliveries()] == [
        ["2", "1", "4"],
        ["2", "3", "5"],
    ]
    assert stage.consumer.info(T0).num_redelivered == 2
    del one, three


def test_redeliveries_come_before_new_messages_and_in_spite_of_limit() -> None:
    stage, _ = pulled(2, max_ack_pending=2)
    stage.publish()
    stage.pull("9")
    stage.pass_time(30 * SECOND)
    assert stage.seqs() == [1, 2]


def test_refused_message_is_redelivered_at_once() -> None:
    stage, (one, _) = pulled(2)
    stage.pull("1")
    stage.ack(one, b"-NAK")
    assert stage.seqs() == [1]


def test_refusing_twice_queues_once() -> None:
    stage, (one, _) = pulled(2)
    stage.ack(one, b"-NAK")
    stage.ack(one, b"-NAK")
    stage.pull("9")
    assert stage.seqs() == [1]


@pytest.mark.parametrize("delay", [b"-NAK 2s", b'-NAK {"delay":2000000000}'])
def test_message_refused_with_delay_comes_after_it(delay: bytes) -> None:
    stage, (one,) = pulled(1)
    stage.pull("1")
    stage.ack(one, delay)
    stage.pass_time(2 * SECOND - 1)
    assert stage.seqs() == []
    stage.pass_time(1)
    assert stage.seqs() == [1]


def test_work_in_progress_starts_wait_again() -> None:
    stage, (one,) = pulled(1)
    stage.pull("1")
    stage.pass_time(20 * SECOND)
    stage.ack(one, b"+WPI")
    stage.pass_time(30 * SECOND - 1)
    assert stage.seqs() == []
    stage.pass_time(1)
    assert stage.seqs() == [1]


def test_backoff_lengthens_each_wait_and_its_last_value_repeats() -> None:
    stage, _ = pulled(1, backoff=(SECOND, 5 * SECOND), max_deliver=9)
    stage.pull("9")
    times = []
    for _ in range(4):
        due = stage.consumer.next_deadline_ns()
        assert due is not None
        times.append((due - stage.now_ns) // SECOND)
        stage.pass_time(due - stage.now_ns)
        assert len(stage.deliveries()) == 1
    assert times == [1, 5, 5, 5]


def test_delays_that_overtake_each_other_are_kept() -> None:
    stage, (one, two) = pulled(2)
    stage.pull("9")
    stage.ack(one, b"-NAK 20s")
    stage.ack(two, b"-NAK 10s")
    stage.pass_time(10 * SECOND)
    assert stage.seqs() == [2]
    stage.pass_time(10 * SECOND)
    assert stage.seqs() == [1]


def test_message_is_given_up_after_its_last_delivery_and_reported_once() -> None:
    stage, _ = pulled(1, max_deliver=2)
    stage.pull("9")
    stage.pass_time(FOREVER)
    *deliveries, told = stage.sent
    assert [seq_of(d) for d in deliveries if isinstance(d, Deliver)] == [1]
    assert told.subject == "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.C"
    assert (told.event.stream_seq, told.event.deliveries) == (1, 2)
    info = stage.consumer.info(stage.now_ns)
    assert (info.num_ack_pending, info.num_redelivered) == (0, 1)


def test_message_allowed_once_is_given_up_without_request() -> None:
    stage, _ = pulled(1, max_deliver=1)
    stage.pass_time(30 * SECOND)
    (told,) = stage.events()
    assert told.event.deliveries == 1
    info = stage.consumer.info(stage.now_ns)
    assert (info.num_ack_pending, info.num_redelivered) == (0, 0)


def test_message_given_up_is_still_needed_until_it_is_acked() -> None:
    stage, (one,) = pulled(1, max_deliver=1)
    stage.pass_time(30 * SECOND)
    stage.publish()
    stage.pull("1")
    (two,) = stage.deliveries()
    stage.ack(two)
    assert stage.consumer.needs(1, "a")
    stage.ack(one)
    assert not stage.consumer.needs(1, "a")


def test_only_so_many_given_up_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_module, "GIVEN_UP_MAX", 2)
    stage, _ = pulled(4, max_deliver=1)
    stage.pass_time(30 * SECOND)
    assert sorted(stage.log.state.redelivered) == [3, 4]


def test_no_more_are_outstanding_than_allowed() -> None:
    stage = Stage(pull_config(max_ack_pending=2), before=["a"] * 5)
    stage.pull("9")
    one, two = stage.deliveries()
    stage.ack(one)
    assert stage.seqs() == [3]
    assert stage.consumer.info(T0).num_ack_pending == 2
    del two


def test_ack_of_all_acknowledges_everything_before() -> None:
    stage, deliveries = pulled(4, ack_policy=AckPolicy.ALL)
    stage.ack(deliveries[2])
    info = stage.consumer.info(T0)
    assert (floor(info), info.num_ack_pending) == ((3, 3), 1)
    stage.pull("9")
    stage.pass_time(30 * SECOND)
    assert stage.seqs() == [4]


def test_acks_with_reply_subject_are_confirmed() -> None:
    stage, (one,) = pulled(1)
    for payload in (b"-NAK", b"+WPI", b"whatever", b"+ACK", b"+ACK"):
        stage.ack(one, payload, reply="x")
        assert Send("x") in stage.sent
        stage.sent.clear()


def test_acks_of_what_was_never_delivered_are_not_answered() -> None:
    stage, _ = pulled(1)
    for seq in (0, 2, 2**64 - 1):
        ref = AckRef("S", "C", 1, seq, seq, T0, 0)
        assert stage.consumer.ack(ref, "x", b"", b"+ACK", T0).effects == []
    assert stage.consumer.info(T0).num_ack_pending == 1


def test_ack_and_next_acknowledges_and_requests() -> None:
    stage, (one,) = pulled(1)
    stage.publish()
    stage.ack(one, b"+NXT", reply="x")
    (delivery,) = stage.deliveries()
    assert (delivery.to, seq_of(delivery)) == ("x", 2)
    stage.ack(delivery, b'+NXT {"batch":1,"no_wait":true}', reply="y")
    assert stage.sent == [Send("y", header=b"NATS/1.0 404 No Messages\r\n\r\n")]


def test_refusals_and_terminations_are_reported() -> None:
    stage, (one, two) = pulled(2)
    stage.ack(one, b"-NAK")
    stage.ack(two, b"+TERM no use")
    naked, terminated = stage.events()
    assert naked.subject == "$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED.S.C"
    assert terminated.subject == "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.C"
    assert terminated.event.reason == "no use"


@pytest.mark.parametrize(("freq", "samples"), [("100", 4), ("+50%", 2), ("", 0), ("x", 0)])
def test_share_of_acks_is_sampled(freq: str, samples: int) -> None:
    stage, deliveries = pulled(4, sample_freq=freq)
    stage.pass_time(MS)
    for delivery in deliveries:
        stage.ack(delivery)
    told = stage.events()
    assert [e.subject for e in told] == ["$JS.EVENT.METRIC.CONSUMER.ACK.S.C"] * samples
    assert all(e.event.ack_time == MS for e in told)


# -- what the stream does to outstanding messages


def test_deleted_message_is_not_outstanding_any_more() -> None:
    stage, (one, _) = pulled(2)
    stage.remove(1)
    (told,) = stage.events()
    assert told.event.reason == "Unacknowledged message was deleted"
    assert floor(stage.consumer.info(T0)) == (1, 1)
    del one


def test_messages_evicted_before_delivery_are_not_counted() -> None:
    stage = Stage(pull_config(), limits=Limits(msgs_max=2))
    for _ in range(5):
        stage.publish()
    assert stage.consumer.info(T0).num_pending == 2
    stage.pull("9")
    assert [d.reply.rsplit(".", 1)[1] for d in stage.deliveries()] == ["1", "0"]


def test_purge_leaves_nothing_outstanding_and_continues_behind() -> None:
    stage, _ = pulled(3)
    stage.purge()
    info = stage.consumer.info(T0)
    assert (info.num_ack_pending, info.num_pending, floor(info)) == (0, 0, (3, 3))
    stage.publish()
    stage.pull("1")
    assert stage.seqs() == [4]


def test_purge_before_delivery_moves_position() -> None:
    stage = Stage(pull_config(), before=["a"] * 3)
    stage.purge()
    info = stage.consumer.info(T0)
    assert (info.delivered.stream_seq, info.num_pending) == (3, 0)


def test_purge_of_front_spares_what_is_behind() -> None:
    stage, _ = pulled(4)
    stage.purge(before_seq=3)
    info = stage.consumer.info(T0)
    assert (info.num_ack_pending, floor(info)) == (2, (2, 2))


def test_purge_of_other_subjects_has_no_effect() -> None:
    stage = Stage(pull_config(filter_subject="a"), before=["a", "b", "a"])
    stage.pull("1")
    stage.purge("b")
    info = stage.consumer.info(T0)
    assert (info.num_ack_pending, info.num_pending) == (1, 1)


def test_narrower_purge_takes_what_it_took() -> None:
    stage = Stage(pull_config(), before=["a", "b", "a", "b"])
    stage.pull("2")
    stage.purge("a")
    info = stage.consumer.info(T0)
    assert (info.num_ack_pending, info.num_pending) == (1, 1)


# -- retention by interest


def test_acknowledged_sequences_are_reported_to_stream_that_keeps_them() -> None:
    stage = Stage(pull_config(), before=["a"] * 2, by_interest=True)
    stage.pull("2")
    one, two = stage.deliveries()
    stage.ack(two)
    assert stage.acked_spans == ((2, 2),)
    stage.ack(two)
    assert stage.acked_spans == ()
    stage.ack(one, b"+TERM")
    assert stage.acked_spans == ((1, 1),)


def test_without_acks_delivery_acknowledges() -> None:
    cfg = push_config(ack_policy=AckPolicy.NONE)
    stage = Stage(cfg, before=["a"] * 2, by_interest=True)
    assert stage.consumer.take_acked() == ((1, 1), (2, 2))
    assert stage.consumer.take_acked() == ()


def test_ack_of_all_acknowledges_each_one_delivered() -> None:
    cfg = pull_config(ack_policy=AckPolicy.ALL, filter_subject="a")
    stage = Stage(cfg, before=["a", "b", "a"], by_interest=True)
    stage.pull("2")
    stage.ack(stage.deliveries()[1])
    assert stage.acked_spans == ((1, 1), (3, 3))


def test_message_is_needed_until_it_is_acknowledged_and_only_if_it_matches() -> None:
    stage = Stage(pull_config(filter_subject="a"), before=["a", "b", "a"])
    stage.pull("1")
    (one,) = stage.deliveries()
    assert [stage.consumer.needs(n, s) for n, s in ((1, "a"), (2, "b"), (3, "a"))] == [
        True,
        False,
        True,
    ]
    stage.ack(one)
    assert not stage.consumer.needs(1, "a")


# -- reset


def test_reset_goes_back_to_floor_and_counts_again() -> None:
    stage, (one, _, _) = pulled(3)
    stage.ack(one)
    done = stage.consumer.reset(0, T0)
    assert not isinstance(done, Exception)
    assert done.seq == 2
    stage.pull("9")
    assert [d.reply.split(".")[4:7] for d in stage.deliveries()] == [
        ["1", "2", "1"],
        ["1", "3", "2"],
    ]


def test_how_far_back_reset_goes_depends_on_policy() -> None:
    by_seq = {"deliver_policy": DeliverPolicy.BY_START_SEQUENCE, "opt_start_seq": 2}
    stage = Stage(pull_config(**by_seq), before=["a"] * 3)
    refused = stage.consumer.reset(1, T0)
    assert str(refused) == "invalid reset: below start seq (10204)"
    stage = Stage(pull_config(deliver_policy=DeliverPolicy.NEW), before=["a"])
    assert str(stage.consumer.reset(1, T0)) == "invalid reset: not allowed (10204)"
