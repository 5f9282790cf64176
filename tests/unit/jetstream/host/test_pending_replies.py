"""Promises that wait for the disk: kept after the sync, never after a failure."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import msgspec
import pytest

from penstock.api.ack_protocol import parse_ack_subject
from penstock.api.consumer_config import AckPolicy, ConsumerConfig
from penstock.api.json_codec import encode
from penstock.api.stream_config import Retention, StreamConfig
from penstock.base.effects import Send
from penstock.base.message import Inbound
from penstock.jetstream.consumers.consumer import Consumer
from penstock.jetstream.consumers.consumer_context import ConsumerContext
from penstock.jetstream.host.asset_files import AccountDirectory, ConsumerMeta
from penstock.jetstream.host.stream_host import StreamHost
from penstock.jetstream.streams.batches.atomic_batch import BatchLimits
from penstock.jetstream.streams.batches.staged_batches import InFlight
from penstock.jetstream.streams.stream import Stream
from penstock.store.contract import Missing
from penstock.store.errors import DiskFull, StoreError, SyncFailed
from penstock.store.filestore import FileStore
from penstock.testing.sim_disk import DiskFault, SimDisk
from support.hosts import effects_of

if TYPE_CHECKING:
    from penstock.jetstream.host.pending_replies import Commit

NOW_NS = 1_800_000_000_000_000_000
REFUSED = b'"error"'


class Rig:
    """A host over a simulated disk; whatever leaves it is kept."""

    def __init__(self, *, lazy: bool = False, retention: Retention = Retention.LIMITS) -> None:
        self.disk = SimDisk()
        cfg = StreamConfig(name="S", subjects=("s.>",), retention=retention, duplicate_window=10**9)
        account = AccountDirectory(self.disk, make_incarnation=lambda: 7)
        self.files = account.create_stream("S", b"{}", NOW_NS)
        noise = Random(1).randbytes
        store = FileStore.open(
            self.files.messages, incarnation=7, sync_always=not lazy, noise=noise
        )
        stream = Stream(
            cfg,
            store,
            created_ns=NOW_NS,
            has_interest=lambda _subject: True,
            may_store=lambda _n: None,
            batch_limits=BatchLimits(),
            in_flight=InFlight(),
        )
        self.host = StreamHost(stream, self.files)

    def publish(self, reply: str, header: bytes = b"") -> None:
        self.host.publish(Inbound("s.x", reply, header, b"hello"), NOW_NS)

    def left(self) -> dict[str, bytes]:
        """What has left, by whom it went to."""
        return {e.subject: e.payload for e in effects_of(self.host) if isinstance(e, Send)}

    def commit(self) -> list[Commit]:
        """One whole commit; what was left to do when the disk was full."""
        commits = self.host.commit()
        return self.run(commits)

    def run(self, commits: list[Commit]) -> list[Commit]:
        failure: Exception | None = None
        try:
            for commit in commits:
                commit.work.run()
        except DiskFull as full:
            self.host.set_disk_full(full)
            return commits
        except StoreError as error:
            failure = error
        self.host.advance(commits, failure)
        return []


def with_id(name: str) -> bytes:
    return b"NATS/1.0\r\nNats-Msg-Id: %s\r\n\r\n" % name.encode()


def test_acknowledgement_leaves_with_its_sync() -> None:
    rig = Rig()
    rig.publish("a")
    assert rig.left() == {}
    rig.commit()
    assert REFUSED not in rig.left()["a"]


def test_writes_during_sync_wait_for_next_sync() -> None:
    rig = Rig()
    rig.publish("a")
    commits = rig.host.commit()
    rig.publish("b")
    rig.run(commits)
    assert set(rig.left()) == {"a"}
    rig.commit()
    assert set(rig.left()) == {"b"}


def test_after_failed_sync_nothing_that_waited_ever_leaves() -> None:
    rig = Rig()
    rig.publish("a", with_id("1"))
    commits = rig.host.commit()
    rig.publish("b", with_id("2"))
    rig.host.promise((Send("flow"),))
    rig.disk.fail_nth(1, DiskFault.SYNC_ERROR)
    rig.run(commits)
    rig.disk.heal()
    for _ in range(3):
        rig.commit()
    assert rig.left() == {}
    assert isinstance(rig.host.failure, SyncFailed)


def test_failed_host_refuses_and_confirms_no_duplicate() -> None:
    rig = Rig()
    rig.publish("a", with_id("1"))
    rig.disk.fail_nth(1, DiskFault.SYNC_ERROR)
    rig.commit()
    rig.disk.heal()
    rig.publish("again", with_id("1"))
    rig.publish("other")
    rig.host.promise((Send("flow"),))
    rig.commit()
    left = rig.left()
    assert set(left) == {"again", "other"}
    assert all(REFUSED in payload and b"sync" in payload for payload in left.values())


@pytest.mark.parametrize("fault", [DiskFault.ENOSPC, DiskFault.SHORT_WRITE])
def test_full_disk_refuses_what_comes_and_keeps_what_waits(fault: DiskFault) -> None:
    rig = Rig()
    rig.publish("a")
    rig.disk.fail_nth(1, fault, for_ever=True)
    stuck = rig.commit()
    assert stuck
    rig.publish("b")
    assert set(left := rig.left()) == {"b"}
    assert b"No space left" in left["b"]
    stuck = rig.run(stuck)
    assert stuck
    rig.disk.heal()
    assert rig.run(stuck) == []
    rig.host.set_disk_full(None)
    assert set(rig.left()) == {"a"}
    rig.publish("c")
    rig.commit()
    assert b'"seq":2' in rig.left()["c"]
    assert rig.host.failure is None


def test_lazy_stream_has_written_what_it_acknowledges() -> None:
    rig = Rig(lazy=True)
    rig.publish("a")
    commits = rig.host.commit()
    assert [commit.on_done.func for commit in commits] == [rig.host.stream.store.synced]
    rig.run(commits)
    assert set(rig.left()) == {"a"}


class Consuming(Rig):
    """A work queue with a consumer, and one message outstanding for every publish."""

    def __init__(self) -> None:
        super().__init__(retention=Retention.WORKQUEUE)
        cfg = ConsumerConfig(
            durable_name="c",
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=10**12,
            max_ack_pending=-1,
            max_deliver=-1,
            max_waiting=512,
        )
        meta = ConsumerMeta(name="c", config=msgspec.Raw(encode(cfg)), created_ns=NOW_NS)
        files = self.files.create_consumer(meta)
        around = ConsumerContext(
            stream_name="S",
            store=self.host.stream.store,
            has_interest=lambda _subject, _queue: True,
            nuid=lambda: "n",
            by_interest=True,
        )
        self.consumer = Consumer(
            "c", cfg, around, files.state, created_ns=NOW_NS, now_ns=NOW_NS, recovered=False
        )
        self.host.add_consumer(self.consumer, files)

    def deliver(self, count: int) -> None:
        for _ in range(count):
            self.publish("")
        self.commit()
        effects = self.consumer.request("inbox", b"", b"%d" % count, NOW_NS)
        self.host.touched(self.consumer, effects)
        while self.host.is_busy:
            for _ in self.host.ready(NOW_NS):
                pass
        self.left()

    def ack(self, seq: int, reply: str) -> None:
        ref = parse_ack_subject(f"$JS.ACK.S.c.1.{seq}.{seq}.{NOW_NS}.0")
        assert ref is not None
        acked = self.consumer.ack(ref, reply, b"", b"+ACK", NOW_NS)
        self.host.acked(self.consumer, acked.effects, acked.acked_spans, is_awaited=bool(reply))


def test_ack_is_confirmed_when_it_is_durable() -> None:
    rig = Consuming()
    rig.deliver(2)
    rig.ack(1, "confirmed")
    assert rig.left() == {}
    rig.commit()
    assert set(rig.left()) == {"confirmed"}
    assert rig.host.stream.state().messages == 1


def test_ack_beyond_log_capacity_is_confirmed_when_durable() -> None:
    """Then the whole state is written, which takes two syncs."""
    rig = Consuming()
    rig.deliver(1)
    rig.ack(1, "first")
    rig.commit()
    assert set(rig.left()) == {"first"}
    rig.deliver(20_000)
    state = rig.host.registry.files["c"].state
    rig.ack(7, "confirmed")
    commits = 0
    while "confirmed" not in rig.left():
        assert state.durable_seq < state.recorded_seq
        rig.commit()
        commits += 1
    assert commits > 1
    assert state.durable_seq == state.recorded_seq


def test_ack_is_never_confirmed_by_disk_that_failed() -> None:
    rig = Consuming()
    rig.deliver(2)
    rig.ack(1, "confirmed")
    rig.disk.fail_nth(1, DiskFault.SYNC_ERROR, for_ever=True)
    rig.commit()
    rig.disk.heal()
    rig.ack(2, "next")
    rig.ack(1, "again")
    for _ in range(3):
        rig.commit()
    assert rig.left() == {}


def test_ack_waits_until_full_disk_has_space() -> None:
    rig = Consuming()
    rig.deliver(2)
    rig.disk.fail_nth(1, DiskFault.ENOSPC, for_ever=True)
    rig.ack(1, "confirmed")
    stuck = rig.commit()
    assert rig.left() == {}
    rig.disk.heal()
    rig.run(stuck)
    rig.host.set_disk_full(None)
    rig.commit()
    assert set(rig.left()) == {"confirmed"}


def test_acked_messages_leave_work_queue_after_crash() -> None:
    rig = Consuming()
    rig.deliver(3)
    rig.consumer.log.acked(2)  # its removal was not written any more
    rig.host.chores.sweep(NOW_NS)
    store = rig.host.stream.store
    assert [isinstance(store.load(seq), Missing) for seq in (1, 2, 3)] == [False, True, False]


def test_deletion_releases_what_waits_and_what_sync_is_out_for() -> None:
    rig = Rig()
    rig.publish("a")
    commits = rig.host.commit()
    rig.publish("b")
    rig.host.deleted()
    assert list(rig.left()) == ["a", "b"]
    rig.run(commits)
    assert rig.left() == {}


def test_deletion_does_not_release_what_failed_disk_lost() -> None:
    rig = Rig()
    rig.publish("a")
    rig.disk.fail_nth(1, DiskFault.SYNC_ERROR)
    rig.commit()
    rig.host.deleted()
    assert rig.left() == {}
