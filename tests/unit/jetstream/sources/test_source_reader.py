"""A feed takes what its origin delivers, in order, once; whatever goes wrong, it asks again."""

from __future__ import annotations

import pytest

from penstock.base.effects import Send
from penstock.base.message import Inbound
from penstock.store.contract import MessageRecord
from support.copies import DELIVER, IDENTITY, MIRROR, SOURCE, Copy, connected
from support.hosts import committed, effects_of
from support.replicators import DelayedReplicator
from support.stream_run import NEW, NEW_YEAR, SECOND

KINDS = [MIRROR, SOURCE]
PATIENCE = 2.2
"""Seconds after which an origin is asked again if it did nothing wrong."""


def source_info(copy: Copy) -> tuple[int, int, int]:
    [info] = copy.stream_sources.source_infos(copy.now_ns)
    return info.lag, info.seq, info.active


# -- taking


def test_mirror_keeps_sequence_time_and_gaps() -> None:
    copy = connected(**MIRROR)
    copy.deliver(1, 1, b"x")
    copy.deliver(4, 2, b"y", subject="o.b", header={"Nats-Expected-Stream": "O", "K": "v"})
    kept = b"NATS/1.0\r\nK: v\r\n\r\n"
    assert copy.messages == {
        1: MessageRecord(1, NEW_YEAR + 1, "o.a", b"", b"x"),
        4: MessageRecord(4, NEW_YEAR + 4, "o.b", kept, b"y"),
    }


def test_mirror_starts_after_messages_its_origin_lost() -> None:
    copy = Copy(**MIRROR)
    copy.answer(delivered=9)
    assert copy.host.stream.last_seq == 9
    copy.deliver(10, 1)
    assert list(copy.messages) == [10]
    assert copy.store.state().first_seq == 10


def test_source_notes_where_its_copies_come_from() -> None:
    copy = connected(**SOURCE)
    copy.deliver(3, 1, b"x")
    [record] = copy.messages.values()
    assert (record.seq, record.ts_ns) == (1, copy.now_ns)
    assert (
        record.header == f"NATS/1.0\r\nNats-Stream-Source: O 3 > > o.a {IDENTITY}\r\n\r\n".encode()
    )
    assert source_info(copy) == (0, 3, 0)


def test_known_ids_are_passed_over() -> None:
    copy = connected(**SOURCE)
    for seq in (1, 2, 3):
        copy.deliver(seq, seq, header={"Nats-Msg-Id": "same" if seq < 3 else "other"})
    assert copy.notes == [1, 3]
    copy.pass_time(5)
    copy.beat(3)
    assert copy.num_asked == 1


@pytest.mark.parametrize("fields", KINDS)
def test_messages_before_reply_are_taken_after_it(fields: dict[str, object]) -> None:
    """Others may listen where the origin delivers, so it need not wait for the copy to listen."""
    copy = Copy(**fields)
    to = copy.asked["deliver_subject"]
    assert to in copy.wires, "it listens before it asks"
    copy.deliver(1, 1, to=to)
    copy.deliver(2, 2, to=to)
    assert not copy.messages
    copy.answer(config={"deliver_subject": to})
    assert len(copy.messages) == 2
    copy.deliver(3, 3, to=to)
    copy.pass_time(5)
    assert (len(copy.messages), list(copy.wires)) == (3, [to])
    copy.beat(3, to=to)
    assert copy.num_asked == 1


@pytest.mark.parametrize("fields", KINDS)
def test_deliveries_to_failed_attempt_are_dropped(
    fields: dict[str, object],
) -> None:
    copy = Copy(**fields)
    to = copy.asked["deliver_subject"]
    copy.deliver(1, 1, to=to)
    copy.refuse()
    assert not copy.wires
    copy.pass_time(60)
    assert copy.asked["deliver_subject"] != to
    copy.answer(config={"deliver_subject": copy.asked["deliver_subject"]})
    assert not copy.messages


def test_lag_is_what_is_to_come_besides_message() -> None:
    copy = connected(**SOURCE)
    copy.deliver(1, 1, pending=5)
    assert source_info(copy)[0] == 4
    copy.deliver(2, 2, pending=0)
    copy.pass_time(3)
    assert source_info(copy) == (0, 2, 3 * SECOND)


@pytest.mark.parametrize(("pending", "able"), [(9, True), (10, False)])
def test_mirror_that_has_nearly_all_may_stand_in_for_its_origin(pending: int, able: bool) -> None:
    copy = Copy(**MIRROR)
    assert not copy.stream_sources.is_caught_up
    copy.answer(pending=50)
    copy.deliver(1, 1, pending=pending)
    assert copy.stream_sources.is_caught_up is able


# -- asking again


@pytest.mark.parametrize("fields", KINDS)
def test_missing_delivery_is_asked_for_again(fields: dict[str, object]) -> None:
    copy = connected(**fields)
    copy.deliver(1, 1)
    copy.deliver(3, 3)
    assert (copy.wires, copy.num_asked) == ({}, 1)
    copy.pass_time(PATIENCE)
    assert copy.num_asked == 2
    assert (copy.asked["deliver_policy"], copy.asked["opt_start_seq"]) == ("by_start_sequence", 2)
    copy.answer(delivered=1)
    for seq in (2, 3):
        copy.deliver(seq, seq - 1)
    assert len(copy.messages) == 3


@pytest.mark.parametrize("fields", KINDS)
def test_heartbeat_reports_missing_deliveries(fields: dict[str, object]) -> None:
    copy = connected(**fields)
    copy.deliver(1, 1)
    copy.beat(1)
    assert DELIVER in copy.wires
    copy.beat(2)
    assert copy.wires == {}
    copy.pass_time(PATIENCE)
    assert copy.asked["opt_start_seq"] == 2


@pytest.mark.parametrize("fields", KINDS)
def test_silent_origin_is_asked_again(fields: dict[str, object]) -> None:
    copy = connected(**fields)
    copy.pass_time(9)
    copy.beat(0)
    copy.pass_time(9.5)
    assert copy.num_asked == 1
    copy.pass_time(1)
    assert copy.num_asked == 2


def test_origin_that_does_not_answer_is_asked_again() -> None:
    copy = Copy(**SOURCE)
    inbox = copy.requests[0].reply
    copy.pass_time(29.9)
    assert copy.num_asked == 1
    copy.pass_time(10.5)
    assert copy.num_asked == 2
    assert set(copy.wires) == {copy.requests[1].reply, copy.asked["deliver_subject"]}
    assert copy.requests[1].reply != inbox


def test_origin_that_refuses_is_asked_ever_more_seldom() -> None:
    copy = Copy(**SOURCE)
    pauses = []
    for _ in range(14):
        copy.refuse()
        asked_ns, before = copy.now_ns, copy.num_asked
        while copy.num_asked == before:
            copy.pass_time(1)
        pauses.append((copy.now_ns - asked_ns) // SECOND)
    assert pauses == [12, 22, 32, 42, 52, 62, 72, 82, 92, 102, 112, 122, 122, 122]
    copy.answer()
    copy.deliver(2, 2)
    copy.pass_time(PATIENCE)
    assert copy.num_asked == 16


def test_error_is_reported_until_the_next_attempt() -> None:
    copy = Copy(**SOURCE)
    copy.refuse(10059)
    [info] = copy.stream_sources.source_infos(copy.now_ns)
    assert info.error is not None
    assert (info.error.err_code, info.active) == (10059, -1)
    copy.pass_time(15)
    copy.answer()
    [info] = copy.stream_sources.source_infos(copy.now_ns)
    assert (info.error, info.active) == (None, 0)


def test_nonsense_in_place_of_answer_is_error() -> None:
    for fields, err_code in ((MIRROR, 10029), (SOURCE, 10045)):
        copy = Copy(**fields)
        copy.reply(b"{}")
        now_ns = copy.now_ns
        infos = (copy.stream_sources.mirror_info(now_ns), *copy.stream_sources.source_infos(now_ns))
        assert [info.error.err_code for info in infos if info and info.error] == [err_code]


@pytest.mark.parametrize("fields", KINDS)
def test_late_messages_of_old_consumer_are_ignored(fields: dict[str, object]) -> None:
    copy = connected(**fields)
    copy.deliver(1, 1, consumer="older")
    old = copy.wires[DELIVER]
    copy.beat(7)
    copy.wires[DELIVER] = old  # a message that was on its way
    copy.deliver(1, 1)
    assert copy.messages == {}


def test_message_there_is_no_room_for_is_asked_for_again() -> None:
    copy = connected(**SOURCE, **NEW, max_msgs=1)
    copy.deliver(1, 1)
    copy.deliver(2, 2)
    copy.pass_time(PATIENCE)
    assert copy.asked["opt_start_seq"] == 2
    copy.answer(delivered=1)
    copy.store.remove(1)
    copy.deliver(2, 1)
    assert copy.notes == [2]


# -- going on


@pytest.mark.parametrize("fields", KINDS)
def test_restarted_copy_continues_after_what_it_has(fields: dict[str, object]) -> None:
    copy = connected(**fields)
    for seq in (1, 2, 5):
        copy.deliver(seq, seq if seq < 3 else 3)
    copy.open()
    assert copy.asked["opt_start_seq"] == 6
    if fields is SOURCE:
        assert f"Nats-Stream-Identity: {IDENTITY}\r\n".encode() in copy.requests[0].header


def test_copies_that_were_removed_are_not_copied_again() -> None:
    copy = connected(**SOURCE)
    copy.deliver(1, 1)
    copy.store.purge()
    copy.open()
    assert copy.asked["deliver_policy"] == "by_start_time"
    assert copy.asked["opt_start_time"] == "2026-01-01T00:00:00Z"


def test_new_origin_of_the_same_name_is_copied_from_its_beginning() -> None:
    copy = connected(**SOURCE)
    copy.deliver(7, 1)
    copy.open()
    copy.refuse(10225)
    assert copy.stream_sources.source_infos(copy.now_ns)[0].seq == 0
    copy.pass_time(PATIENCE)
    assert copy.asked["deliver_policy"] == "all"
    assert b"Nats-Stream-Identity: \r\n" in copy.requests[-1].header
    copy.answer(identity="another")
    copy.deliver(1, 1)
    assert copy.notes == [7, 1]
    assert copy.stream_sources.source_infos(copy.now_ns)[0].seq == 1


def test_new_origin_may_show_in_answer_only() -> None:
    copy = connected(**SOURCE)
    copy.deliver(7, 1)
    copy.open()
    copy.answer(identity="another")
    copy.deliver(1, 1)
    assert copy.notes == [7, 1]


# -- flow control


@pytest.mark.parametrize("fields", KINDS)
def test_flow_control_is_answered_with_what_is_stored(fields: dict[str, object]) -> None:
    copy = connected(**fields)
    copy.deliver(1, 1)
    copy.deliver(4, 2)
    copy.ask_flow("fc")
    copy.beat(2, stalled="fc2")
    where = b"NATS/1.0\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 4\r\n\r\n"
    assert [(each.subject, each.header) for each in copy.answers] == [("fc", where), ("fc2", where)]


def test_flow_control_is_answered_when_all_before_it_is_durable() -> None:
    copy = connected(**SOURCE)
    copy.deliver(1, 1)
    request = Inbound(DELIVER, "fc", b"NATS/1.0 100 FlowControl Request\r\n\r\n", b"")
    copy.stream_sources.receive(copy.wires[DELIVER], request, copy.now_ns)
    assert effects_of(copy.host) == []
    assert isinstance(committed(copy.host)[0], Send)


def test_new_leader_sources_from_what_is_applied() -> None:
    copy = connected(replicate=DelayedReplicator, **SOURCE)
    replicator = copy.host.proposals._replicator
    assert isinstance(replicator, DelayedReplicator)
    copy.deliver(1, 1)
    copy.deliver(2, 2)
    replicator.apply_next(copy.now_ns)
    replicator.step_down(copy.now_ns)
    copy.pass_time(0)
    copy.deliver(3, 3)
    assert not len(replicator), "the reader of a follower does not listen"
    replicator.lead(copy.now_ns)
    copy.pass_time(3)
    assert copy.asked["opt_start_seq"] == 2
    copy.answer(1)
    copy.deliver(2, 1)
    replicator.apply_all(copy.now_ns)
    assert copy.notes == [1, 2]
