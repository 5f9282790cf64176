"""Pull requests: which are served, and the status for the others."""

from __future__ import annotations

import pytest

from penstock.api.consumer_config import AckPolicy, PriorityPolicy
from penstock.base.effects import Deliver, Send
from penstock.jetstream.consumers.pull_delivery import Closing
from support.consumer_stage import MS, SECOND, Stage, pull_config, push_config, seq_of

REST = "|Nats-Pending-Messages: {}|Nats-Pending-Bytes: {}"


def test_batch_is_delivered_in_order_with_what_is_left_in_ack_subject() -> None:
    stage = Stage(pull_config(), before=["a", "b", "c"])
    stage.pull('{"batch":2}')
    assert [(d.to, d.subject, d.reply) for d in stage.deliveries()] == [
        ("r", "a", f"$JS.ACK.S.C.1.1.1.{stage.now_ns}.2"),
        ("r", "b", f"$JS.ACK.S.C.1.2.2.{stage.now_ns}.1"),
    ]


def test_request_waits_for_messages_to_come() -> None:
    stage = Stage(pull_config())
    stage.pull("2")
    assert stage.consumer.info(stage.now_ns).num_waiting == 1
    stage.publish()
    stage.publish()
    stage.publish()
    assert stage.seqs() == [1, 2]
    assert stage.consumer.info(stage.now_ns).num_waiting == 0


def test_requests_are_served_in_turns() -> None:
    stage = Stage(pull_config())
    stage.pull("2", reply="x")
    stage.pull("2", reply="y")
    for _ in range(4):
        stage.publish()
    assert [d.to for d in stage.deliveries()] == ["x", "y", "x", "y"]


@pytest.mark.parametrize("batch", ["0", '{"batch":-3}', "{}", "", "nonsense"])
def test_request_for_less_than_one_message_gets_one(batch: str) -> None:
    stage = Stage(pull_config(), before=["a", "a"])
    stage.pull(batch)
    assert stage.seqs() == [1]


def test_no_wait_without_messages_is_refused_at_once() -> None:
    stage = Stage(pull_config())
    stage.pull('{"batch":1,"no_wait":true}')
    assert stage.statuses() == ["404 No Messages"]


def test_no_wait_gets_what_is_there_and_then_the_end() -> None:
    stage = Stage(pull_config(), before=["a"])
    stage.pull('{"batch":3,"no_wait":true}')
    delivery, end = stage.sent
    assert isinstance(delivery, Deliver)
    assert seq_of(delivery) == 1
    assert end == Send("r", header=b"NATS/1.0 404 No Messages\r\n\r\n")


def test_no_wait_is_refused_while_others_wait_for_more_than_there_is() -> None:
    stage = Stage(pull_config(max_ack_pending=1), before=["a", "a"])
    stage.pull("9", reply="x")
    stage.deliveries()
    stage.pull('{"batch":1,"no_wait":true}', reply="y")
    assert stage.statuses() == ["408 Requests Pending"]


def test_no_wait_waits_while_too_many_are_outstanding() -> None:
    stage = Stage(pull_config(max_ack_pending=1), before=["a", "a"])
    stage.pull("1")
    (first,) = stage.deliveries()
    stage.pull('{"batch":1,"no_wait":true}')
    assert stage.sent == []
    stage.ack(first)
    assert stage.seqs() == [2]


def test_request_times_out_with_what_was_left_of_it() -> None:
    stage = Stage(pull_config(), before=["a"])
    stage.pull('{"batch":3,"expires":1000000000,"max_bytes":1000}')
    size = 1000 - len(stage.deliveries()[0].reply) - 1
    stage.pass_time(SECOND)
    assert stage.statuses() == ["408 Request Timeout" + REST.format(2, size)]
    assert stage.consumer.info(stage.now_ns).num_waiting == 0


def test_waiting_request_receives_heartbeats() -> None:
    stage = Stage(pull_config(), before=["a"])
    stage.pull('{"batch":2,"expires":1000000000,"idle_heartbeat":300000000}')
    stage.deliveries()
    stage.pass_time(700 * MS)
    beat = "100 Idle Heartbeat|Nats-Last-Consumer: 1|Nats-Last-Stream: 1"
    assert stage.statuses() == [beat, beat]


def test_full_queue_refuses_unless_client_has_heartbeats() -> None:
    stage = Stage(pull_config(max_waiting=1))
    stage.pull("1", reply="x")
    stage.pull("1", reply="y")
    stage.pull('{"expires":1000000000,"idle_heartbeat":100000000}', reply="z")
    assert stage.sent == [Send("y", header=b"NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n")]


def test_abandoned_requests_make_room_in_full_queue() -> None:
    stage = Stage(pull_config(max_waiting=1))
    stage.pull("1", reply="x")
    stage.deaf.add("x")
    stage.pass_time(2 * SECOND)
    stage.pull("1", reply="y")
    stage.publish()
    assert [d.to for d in stage.deliveries()] == ["y"]


def test_message_is_not_delivered_to_former_listener() -> None:
    stage = Stage(pull_config())
    stage.pull("1", reply="x")
    stage.pull("1", reply="y")
    stage.deaf.add("x")
    stage.pass_time(1)
    stage.publish()
    assert [d.to for d in stage.deliveries()] == ["y"]


def test_message_too_large_for_the_rest_of_request_ends_it() -> None:
    stage = Stage(pull_config())
    stage.publish(payload=b"x" * 100)
    stage.pull('{"batch":5,"max_bytes":100}')
    assert stage.statuses() == ["409 Message Size Exceeds MaxBytes" + REST.format(5, 100)]
    assert stage.consumer.info(stage.now_ns).num_pending == 1


def test_filled_batch_reports_how_many_bytes_were_left() -> None:
    stage = Stage(pull_config(), before=["a"])
    stage.pull('{"batch":1,"max_bytes":1000}')
    left = 1000 - 1 - len(f"$JS.ACK.S.C.1.1.1.{stage.now_ns}.0")
    assert stage.statuses() == ["409 Batch Completed" + REST.format(0, left)]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"batch":5}', "409 Exceeded MaxRequestBatch of 4"),
        ('{"expires":6000000000}', "409 Exceeded MaxRequestExpires of 5s"),
        ('{"max_bytes":11}', "409 Exceeded MaxRequestMaxBytes of 10"),
        ('{"group":"g","id":"x"}', "400 Bad Request - Not a Pinned Client Priority consumer"),
    ],
)
def test_requests_forbidden_by_config_are_refused(body: str, said: str) -> None:
    stage = Stage(pull_config(max_batch=4, max_expires=5 * SECOND, max_bytes=10))
    stage.pull(body)
    assert stage.statuses() == [said]


def test_push_consumer_refuses_requests() -> None:
    stage = Stage(push_config())
    stage.pull("1")
    assert stage.statuses() == ["409 Consumer is push based"]


def test_request_that_needs_newer_server_is_refused() -> None:
    stage = Stage(pull_config(), before=["a"])
    stage.pull("1", header=b"NATS/1.0\r\nNats-Required-Api-Level: 999\r\n\r\n")
    assert stage.statuses() == ["412 Required Api Level"]


def test_waiting_requests_are_reported_when_consumer_goes() -> None:
    stage = Stage(pull_config())
    stage.pull("3")
    stage.take(stage.consumer.closing(Closing.DELETED))
    assert stage.statuses() == ["409 Consumer Deleted"]


def test_waiting_requests_are_reported_when_server_stops() -> None:
    stage = Stage(pull_config())
    stage.pull("3")
    stage.take(stage.consumer.closing(Closing.SHUTDOWN))
    assert stage.statuses() == ["409 Server Shutdown" + REST.format(3, 0)]


# -- priorities


def grouped(policy: PriorityPolicy, **fields: object) -> Stage:
    return Stage(pull_config(priority_policy=policy, priority_groups=("g",), **fields))


def test_lower_number_is_served_first() -> None:
    stage = grouped(PriorityPolicy.PRIORITIZED)
    stage.pull('{"batch":2,"group":"g","priority":5}', reply="late")
    stage.pull('{"batch":2,"group":"g","priority":1}', reply="soon")
    for _ in range(3):
        stage.publish()
    assert [d.to for d in stage.deliveries()] == ["soon", "soon", "late"]


def test_overflow_request_is_served_only_when_others_are_overrun() -> None:
    stage = grouped(PriorityPolicy.OVERFLOW)
    stage.pull('{"batch":9,"group":"g","min_pending":3}')
    stage.publish()
    stage.publish()
    assert stage.seqs() == []
    stage.publish()
    assert stage.seqs() == [1]


def test_overflow_request_is_served_when_many_are_outstanding() -> None:
    stage = grouped(PriorityPolicy.OVERFLOW)
    stage.pull('{"batch":2,"group":"g"}', reply="plain")
    stage.publish()
    stage.publish()
    stage.pull('{"batch":1,"group":"g","min_ack_pending":2}', reply="spare")
    stage.publish()
    assert [d.to for d in stage.deliveries()] == ["plain", "plain", "spare"]


def test_only_pinned_client_is_served() -> None:
    stage = grouped(PriorityPolicy.PINNED_CLIENT)
    stage.pull('{"batch":1,"group":"g"}', reply="x")
    stage.pull('{"batch":1,"group":"g"}', reply="y")
    stage.publish()
    stage.publish()
    (delivery,) = stage.deliveries()
    assert (delivery.to, delivery.header) == ("x", b"NATS/1.0\r\nNats-Pin-Id: ID0001\r\n\r\n")
    stage.pull('{"batch":1,"group":"g","id":"ID0001"}', reply="x")
    assert [d.to for d in stage.deliveries()] == ["x"]


def test_another_pin_is_refused() -> None:
    stage = grouped(PriorityPolicy.PINNED_CLIENT)
    stage.pull('{"batch":1,"group":"g"}', reply="x")
    stage.publish()
    stage.deliveries()
    stage.pull('{"batch":1,"group":"g","id":"other"}', reply="y")
    assert stage.statuses() == ["423 Nats-Pin-Id mismatch"]


def test_unpinned_client_is_notified_and_next_is_pinned() -> None:
    stage = grouped(PriorityPolicy.PINNED_CLIENT)
    stage.pull('{"batch":9,"group":"g"}', reply="x")
    stage.publish()
    stage.pull('{"batch":1,"group":"g"}', reply="y")
    stage.sent.clear()
    stage.take(stage.consumer.unpin("g", stage.now_ns))
    stage.publish()
    unpinned, wrong, pinned, delivery = stage.sent
    assert unpinned.subject == "$JS.EVENT.ADVISORY.CONSUMER.UNPINNED.S.C"
    assert wrong == Send(
        "x",
        header=b"NATS/1.0 423 Nats-Wrong-Pin-Id\r\n"
        b"Nats-Pending-Messages: 8\r\nNats-Pending-Bytes: 0\r\n\r\n",
    )
    assert pinned.subject == "$JS.EVENT.ADVISORY.CONSUMER.PINNED.S.C"
    assert isinstance(delivery, Deliver)
    assert delivery.to == "y"


def test_silent_client_loses_its_pin() -> None:
    stage = grouped(PriorityPolicy.PINNED_CLIENT, priority_timeout=SECOND)
    stage.pull('{"batch":1,"group":"g"}', reply="x")
    stage.publish()
    assert stage.consumer.info(stage.now_ns).priority_groups[0].pinned_client_id == "ID0001"
    stage.events()
    stage.pass_time(SECOND)
    assert [event.event.reason for event in stage.events()] == ["timeout"]
    assert stage.consumer.info(stage.now_ns).priority_groups[0].pinned_client_id == ""


def test_pin_is_taken_from_former_listener() -> None:
    stage = grouped(PriorityPolicy.PINNED_CLIENT)
    stage.pull('{"batch":1,"group":"g"}', reply="gone")
    stage.deaf.add("gone")
    stage.pass_time(1)
    stage.publish()
    stage.pull('{"batch":1,"group":"g"}', reply="y")
    assert [d.to for d in stage.deliveries()] == ["y"]


def test_acks_are_not_needed_where_there_are_none() -> None:
    stage = Stage(pull_config(ack_policy=AckPolicy.NONE), before=["a", "a"])
    stage.pull("2")
    info = stage.consumer.info(stage.now_ns)
    assert (info.ack_floor.stream_seq, info.num_ack_pending) == (2, 0)
