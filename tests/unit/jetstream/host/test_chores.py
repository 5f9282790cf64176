"""Purges and rollups of a host take their results from applied entries, also if applied later."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from penstock.api.stream_config import StreamConfig
from penstock.base.effects import Send
from penstock.base.message import Inbound
from penstock.jetstream.host.stream_host import StreamHost
from penstock.jetstream.streams.entries import Purge
from penstock.jetstream.streams.replicated_stream import ReplicatedStream
from penstock.store.contract import SLICE_MSGS
from penstock.store.memstore import MemStore
from support.hosts import committed
from support.replicators import DelayedReplicator

if TYPE_CHECKING:
    from collections.abc import Generator

NOW_NS = 1_800_000_000_000_000_000
MSGS = 2 * SLICE_MSGS + 10
ROLLUP = b"NATS/1.0\r\nNats-Rollup: all\r\n\r\n"


@pytest.fixture
def host() -> StreamHost:
    """A host whose entries are applied when a test says so; its messages are applied."""
    config = StreamConfig(name="S", subjects=("s.>",), allow_rollup_hdrs=True)
    stream = ReplicatedStream(config, MemStore(), created_ns=NOW_NS)
    host = StreamHost(stream, None, replicate=DelayedReplicator)
    for number in range(MSGS):
        host.publish(Inbound(f"s.{number % 2}", "", b"", b""), NOW_NS)
    delayed(host).apply_all()
    return host


def delayed(host: StreamHost) -> DelayedReplicator:
    replicator = host.proposals._replicator
    assert isinstance(replicator, DelayedReplicator)
    return replicator


def rolled_up(host: StreamHost) -> DelayedReplicator:
    """The host has applied the message of a rollup, and the first slice of its removals."""
    host.publish(Inbound("s.0", "r", ROLLUP, b"all"), NOW_NS)
    replicator = delayed(host)
    replicator.apply_next()
    return replicator


def finish(purge: Generator[Any, None, int | None], replicator: DelayedReplicator) -> int:
    """Apply one entry after each step of the purge; return its result."""
    while True:
        try:
            next(purge)
        except StopIteration as stop:
            return int(stop.value)
        if len(replicator):
            replicator.apply_next()


def acks(host: StreamHost) -> list[int]:
    sent = [each for each in committed(host) if isinstance(each, Send)]
    return [json.loads(each.payload)["seq"] for each in sent]


def test_purge_counts_what_its_slices_removed_when_applied(host: StreamHost) -> None:
    replicator = delayed(host)
    purge = host.chores.purge(Purge(NOW_NS, "s.1"), NOW_NS)
    next(purge)
    assert host.stream.state().messages == MSGS, "a proposed slice changes nothing"
    assert finish(purge, replicator) == MSGS // 2
    assert host.stream.state().messages == MSGS // 2


def test_purge_has_no_result_if_slice_is_dropped(host: StreamHost) -> None:
    replicator = delayed(host)
    purge = host.chores.purge(Purge(NOW_NS, "s.>", keep=1), NOW_NS)
    next(purge)
    replicator.apply_next()
    left = host.stream.state().messages
    next(purge)
    next(purge)
    replicator.step_down()
    with pytest.raises(StopIteration) as stop:
        next(purge)
    assert stop.value.value is None
    assert host.stream.state().messages == left


def test_ack_of_rollup_follows_its_last_slice(host: StreamHost) -> None:
    replicator = rolled_up(host)
    seen = []
    while host.stream.state().messages > 1:
        host.chores.go_on(NOW_NS)
        assert not host.chores.are_left, "the slice is in flight"
        host.chores.go_on(NOW_NS)
        assert len(replicator) <= 1, "one slice is proposed at a time"
        assert not acks(host)
        replicator.apply_next()
        seen.append(host.stream.state().messages)
    assert len(seen) > 1
    assert acks(host) == [MSGS + 1]
    assert host.stream.state().messages == 1


def test_rollup_is_not_acked_if_its_slice_is_dropped(host: StreamHost) -> None:
    replicator = rolled_up(host)
    host.chores.go_on(NOW_NS)
    replicator.step_down()
    host.chores.go_on(NOW_NS)
    assert not len(replicator)
    assert not acks(host)


def test_new_leader_finishes_rollup(host: StreamHost) -> None:
    replicator = rolled_up(host)
    replicator.step_down(NOW_NS)
    assert not host.chores.are_left
    replicator.lead(NOW_NS)
    while host.chores.are_left or len(replicator):
        host.chores.go_on(NOW_NS)
        replicator.apply_all()
    assert host.stream.state().messages == 1
    assert not acks(host), "the publisher asked the leader before"
