"""Entries that are applied later: nothing leaves before them, and nothing at all if they drop."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from penstock.api.ack_protocol import parse_ack_subject
from penstock.api.consumer_config import AckPolicy, ConsumerConfig
from penstock.api.stream_config import Retention
from penstock.base.effects import Send
from penstock.base.message import Inbound
from penstock.jetstream.consumers.consumer import Consumer
from penstock.jetstream.consumers.consumer_context import ConsumerContext
from penstock.jetstream.consumers.state.consumer_state import MemoryLog
from penstock.jetstream.host.stream_host import StreamHost
from penstock.jetstream.streams.entries import Expire, Publish, Remove
from penstock.jetstream.streams.replicated_stream import ReplicatedStream
from penstock.jetstream.streams.retention import limits_of
from penstock.store.errors import StoreError
from penstock.store.memstore import MemStore
from support.hosts import committed, effects_of, turned
from support.messages import stored_in
from support.replicators import DelayedReplicator
from support.stream_run import NEW_YEAR, SECOND, block, config

if TYPE_CHECKING:
    from collections.abc import Generator

    from penstock.base.effects import Effect


def host_of(**fields: Any) -> tuple[StreamHost, DelayedReplicator]:
    cfg = config(**fields)
    stream = ReplicatedStream(cfg, MemStore(limits_of(cfg)), created_ns=NEW_YEAR)
    host = StreamHost(stream, None, replicate=DelayedReplicator)
    replicator = host.proposals._replicator
    assert isinstance(replicator, DelayedReplicator)
    return host, replicator


def publish(host: StreamHost, payload: bytes, fields: dict[str, str] | None = None) -> None:
    host.publish(Inbound("s.a", payload.decode(), block(fields), payload), NEW_YEAR)


def said(effects: list[Effect]) -> dict[str, dict[str, Any]]:
    """What each publisher heard."""
    sent = [each for each in effects if isinstance(each, Send)]
    return {each.subject: json.loads(each.payload) for each in sent}


def all_of(host: StreamHost) -> dict[str, dict[str, Any]]:
    return said([*effects_of(host), *committed(host)])


def outcome(steps: Generator[Any, None, Any]) -> Any:
    with pytest.raises(StopIteration) as end:
        next(steps)
    return end.value.value


def test_ack_leaves_when_its_entry_is_applied() -> None:
    host, replicator = host_of()
    publish(host, b"1")
    publish(host, b"2")
    assert all_of(host) == {}
    assert stored_in(host.stream.store) == {}
    replicator.apply_next()
    assert all_of(host) == {"1": {"stream": "S", "seq": 1}}
    replicator.apply_next()
    assert all_of(host) == {"2": {"stream": "S", "seq": 2}}


def test_duplicate_is_confirmed_after_the_message_it_repeats() -> None:
    host, replicator = host_of()
    publish(host, b"1", {"Nats-Msg-Id": "a"})
    publish(host, b"2", {"Nats-Msg-Id": "a"})
    assert all_of(host) == {}
    replicator.apply_all()
    assert all_of(host)["2"] == {"stream": "S", "seq": 1, "duplicate": True}


def test_after_step_down_nothing_is_confirmed() -> None:
    host, replicator = host_of()
    publish(host, b"1", {"Nats-Msg-Id": "a"})
    publish(host, b"2", {"Nats-Msg-Id": "a"})
    replicator.step_down()
    publish(host, b"3")
    replicator.apply_all()
    assert all_of(host) == {}
    replicator.lead()
    publish(host, b"4", {"Nats-Msg-Id": "a"})
    replicator.apply_all()
    assert all_of(host) == {"4": {"stream": "S", "seq": 1}}


def test_message_that_must_wait_is_planned_when_the_entry_is_applied() -> None:
    host, replicator = host_of(allow_rollup_hdrs=True)
    publish(host, b"1")
    publish(host, b"2", {"Nats-Rollup": "all"})
    publish(host, b"3", {"Nats-Expected-Last-Subject-Sequence": "2"})
    publish(host, b"4")
    assert len(replicator) == 2, "the last two wait, in order"
    replicator.apply_all()
    assert [all_of(host)[str(n)]["seq"] for n in (1,)] == [1]
    assert list(stored_in(host.stream.store)) == [2, 3, 4]


def test_follower_stores_what_is_decided_and_says_nothing() -> None:
    host, replicator = host_of()
    replicator.step_down()
    host.proposals.applied(Publish(NEW_YEAR, "s.a", b"", b"x", "r"), None, NEW_YEAR)
    assert [each.payload for each in stored_in(host.stream.store).values()] == [b"x"]
    assert all_of(host) == {}


def test_expiry_is_planned_once_and_holds_messages_back_until_it_is_applied() -> None:
    host, replicator = host_of(max_age=SECOND)
    publish(host, b"1")
    replicator.apply_all()
    turned(host, NEW_YEAR)
    late_ns = NEW_YEAR + 2 * SECOND
    publish(host, b"2")
    host.tick(late_ns)
    host.publish(Inbound("s.a", "3", b"", b"3"), late_ns)
    assert len(replicator) == 1, "the tick waits for the message before it, and holds the next"
    replicator.apply_next(late_ns)
    kinds = [type(each) for each in replicator.entries()]
    assert kinds == [Expire, Publish]
    host.tick(late_ns)
    turned(host, late_ns)
    host.tick(late_ns)
    assert [type(each) for each in replicator.entries()].count(Expire) == 1
    replicator.apply_all(late_ns)
    assert list(stored_in(host.stream.store)) == [3]


def test_api_change_ends_with_its_outcome() -> None:
    host, replicator = host_of()
    publish(host, b"1")
    replicator.apply_all()
    change = host.proposals.change(Remove(NEW_YEAR, (1,)))
    next(change)
    replicator.apply_all()
    assert outcome(change).removed.msgs == 1
    dropped = host.proposals.change(Remove(NEW_YEAR, (2,)))
    next(dropped)
    replicator.step_down()
    assert outcome(dropped) is None
    assert outcome(host.proposals.change(Remove(NEW_YEAR, (2,)))) is None


def test_store_that_fails_refuses_the_publisher(monkeypatch: pytest.MonkeyPatch) -> None:
    host, replicator = host_of()
    publish(host, b"1")

    def fail(*args: object, **options: object) -> None:
        raise StoreError("block", "write", 5, "no more")

    monkeypatch.setattr(host.stream.store, "append", fail)
    replicator.apply_all()
    assert all_of(host)["1"]["error"]["err_code"] == 10077
    assert host.failure is not None


def consumer_of(host: StreamHost) -> Consumer:
    cfg = ConsumerConfig(
        durable_name="c",
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=10 * SECOND,
        max_ack_pending=-1,
        max_deliver=-1,
        max_waiting=10,
    )
    around = ConsumerContext(
        stream_name="S",
        store=host.stream.store,
        has_interest=lambda _subject, _queue: True,
        nuid=lambda: "n",
        by_interest=host.stream.cfg.retention is not Retention.LIMITS,
    )
    consumer = Consumer(
        "c", cfg, around, MemoryLog(), created_ns=1, now_ns=NEW_YEAR, recovered=False
    )
    host.add_consumer(consumer, None)
    return consumer


def test_new_leader_removes_what_was_acked_before() -> None:
    host, replicator = host_of(retention=Retention.WORKQUEUE)
    consumer = consumer_of(host)
    for payload in (b"1", b"2", b"3"):
        publish(host, payload)
    replicator.apply_all()
    turned(host, NEW_YEAR)
    host.touched(consumer, consumer.request("inbox", b"", b"3", NEW_YEAR))
    turned(host, NEW_YEAR)
    ref = parse_ack_subject(f"$JS.ACK.S.c.1.2.2.{NEW_YEAR}.0")
    assert ref is not None
    acked = consumer.ack(ref, "", b"", b"+ACK", NEW_YEAR)
    host.acked(consumer, acked.effects, acked.acked_spans, is_awaited=False)
    assert [type(each) for each in replicator.entries()] == [Remove]
    replicator.step_down()
    assert list(stored_in(host.stream.store)) == [1, 2, 3]
    replicator.lead()
    replicator.apply_all()
    assert list(stored_in(host.stream.store)) == [1, 3], "the removal is proposed again"


def test_pull_requests_end_when_leader_steps_down() -> None:
    host, replicator = host_of()
    consumer = consumer_of(host)
    host.touched(consumer, consumer.request("inbox", b"", b"1", NEW_YEAR))
    replicator.step_down()
    ended = [each for each in effects_of(host) if isinstance(each, Send)]
    assert [each.header for each in ended] == [b"NATS/1.0 409 Leadership Change\r\n\r\n"]
