"""A fast lane at the end of a turn: what it commits itself, and what it leaves to others."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from penstock.broker.router import LaneListener, Router
from penstock.jetstream.streams.batches.atomic_batch import BatchLimits
from penstock.jetstream.streams.batches.staged_batches import InFlight, StagedBatches
from penstock.jetstream.streams.dedupe import DuplicateWindow
from penstock.jetstream.streams.lanes.publish_lane import StreamLane
from penstock.server.net.io_loop import IoLoop
from penstock.server.net.turn_listener import QUICK_NS, SMOOTHING, CommitPace, TurnListener
from penstock.store.filestore import FileStore
from penstock.subjects.trie import SubList, Subscription
from penstock.testing.sim_disk import DiskFault, SimDisk

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.store.io.disk import File

NO_LIMIT = -1
TRIES_MAX = 1000
WINDOW_NS = 120 * 10**9
SLOW_NS = 10**9


class LeftMessages(LaneListener):
    """Collects the subjects of the messages that the lane leaves."""

    def __init__(self) -> None:
        self.subjects: list[str] = []

    def received(self, subject: str, *_: object) -> None:
        self.subjects.append(subject)


class SlowDisk(SimDisk):
    """Its syncs take a while without sleeping, so no test waits for a clock."""

    wait_ns = 0

    def fdatasync(self, file: File) -> None:
        until = time.monotonic_ns() + self.wait_ns
        while time.monotonic_ns() < until:
            continue
        super().fdatasync(file)


class Stage:
    """A lane over a store in simulated files, on a plane without sockets."""

    def __init__(self, *, sync_always: bool = True) -> None:
        self.disk = SlowDisk()
        self.store = FileStore.open(
            self.disk, incarnation=7, noise=lambda n: bytes(n), sync_always=sync_always
        )
        self.router, self.interest = Router(seed=1), SubList()
        self.pace, self.write_pace = CommitPace(), CommitPace()
        self.io_loop = IoLoop(router=self.router, arm=lambda *_: None, write_deadline_ns=10**10)
        self.io_loop.add_interest(self.interest)
        self.io_loop.set_listener(TurnListener(self.pace, self.write_pace))
        self.ids = DuplicateWindow(WINDOW_NS)
        self.acks: list[bytes] = []
        self.left = LeftMessages()
        self.lane = StreamLane(
            router=self.router,
            interest=self.interest,
            listener=self.left,
            prefix=b'{"stream":"S","seq":',
            name=b"S",
            ids=self.ids,
            batches=StagedBatches(BatchLimits(), InFlight()),
            **self.store.lane_parts(),
        )
        self.lane.room = 1 << 40
        self.lane.configure(
            is_open=True,
            packs=True,
            acks_wanted=True,
            discard_new=False,
            msgs_max=NO_LIMIT,
            bytes_max=NO_LIMIT,
            per_subject_max=NO_LIMIT,
            payload_max=1 << 20,
        )
        self.lane.set_unattended(True)
        self._listen("s", self.lane, lane=True)
        self._listen("in", lambda _subject, _reply, _header, payload, _: self.acks.append(payload))
        self.publish()
        self.commit_as_usual()  # from now on the file is open
        self.lane.take_results()

    def _listen(self, subject: str, call: Callable[..., None] | StreamLane, **how: Any) -> None:
        self.interest.insert(Subscription(subject, value=call), call=True, **how)

    def publish(self, reply: str = "", header: bytes = b"") -> None:
        self.io_loop.publish(self.interest, "s", b"x", reply=reply, header=header)
        self.io_loop.flush_and_close()

    def commit_as_usual(self) -> None:
        """As the edge does: all lanes that have something to say, one commit."""
        self.router.take_lanes()
        self.lane.commit()
        while (work := self.store.pending_sync()) is not None:
            work.run()
            self.store.synced(work)
        self.lane.release()
        self.lane.send_acks()
        self.io_loop.flush_and_close()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_publishes_it_took_are_durable_and_acknowledged_alone(stage: Stage) -> None:
    stage.publish("in")
    assert stage.store.durable_seq == 2
    assert stage.acks == [b'{"stream":"S","seq":2}']


def test_others_are_not_troubled_as_long_as_they_looked_moment_ago(stage: Stage) -> None:
    for _ in range(TRIES_MAX):
        stage.publish()
        if stage.router.take_lanes() == []:
            return
        stage.lane.take_results()  # they look, and are asked again 10 ms later
    raise AssertionError("they receive every message")


def test_commit_latency_estimator_records_long_commits(stage: Stage) -> None:
    stage.disk.wait_ns = SMOOTHING * QUICK_NS + 1
    assert stage.pace.is_quick
    stage.publish("in")
    assert stage.store.durable_seq == 2
    assert not stage.pace.is_quick


def test_slow_disk_is_not_waited_for(stage: Stage) -> None:
    stage.pace.took(SLOW_NS)
    stage.publish("in")
    assert stage.store.durable_seq == 1
    assert stage.acks == []
    assert stage.lane.waiting == 1
    stage.commit_as_usual()
    assert stage.acks == [b'{"stream":"S","seq":2}']


def test_failed_sync_acknowledges_nothing(stage: Stage) -> None:
    stage.disk.fail_nth(1, DiskFault.SYNC_ERROR)
    stage.publish("in")
    assert stage.acks == []
    assert stage.store.visible_seq == 1
    assert stage.router.take_lanes() == [stage.lane]


def test_message_for_others_is_committed_then_reported(stage: Stage) -> None:
    stage.lane.set_unattended(False)
    stage.publish("in")
    assert stage.acks == [b'{"stream":"S","seq":2}']
    assert stage.router.take_lanes() == [stage.lane]


def test_nothing_is_committed_after_message_for_others(stage: Stage) -> None:
    stage.publish("in", header=b"NATS/1.0\r\nNats-Rollup: all\r\n\r\n")
    assert stage.left.subjects == ["s"]
    assert stage.router.take_lanes() == [stage.lane]
    assert stage.store.last_seq == 1


@pytest.mark.parametrize(
    "lines",
    [
        "",
        "Key: value\r\n",
        "Nats-Msg-Id: 1\r\n",
        "Nats-Expected-Stream: S\r\nNats-Expected-Last-Sequence: 1\r\n",
        "Nats-Expected-Last-Subject-Sequence: 1\r\nKV-Operation: DEL\r\n",
        "Key: a\nNats-Rollup: all\r\n",
    ],
)
def test_it_takes_headers_that_ask_for_what_is(stage: Stage, lines: str) -> None:
    stage.publish("in", header=f"NATS/1.0\r\n{lines}\r\n".encode())
    assert stage.acks == [b'{"stream":"S","seq":2}']
    assert stage.left.subjects == []


@pytest.mark.parametrize(
    "header",
    [
        "NATS/1.0 503\r\n\r\n",
        "NATS/1.0\r\nKey: value",
        "NATS/1.0\r\nNats-Msg-Id:\r\n\r\n",
        "NATS/1.0\r\nNats-Msg-Id: 1\r\nNats-Msg-Id: 2\r\n\r\n",
        "NATS/1.0\r\nNats-TTL: 1s\r\n\r\n",
        "NATS/1.0\r\nNats-Batch-Id: 1\r\n\r\n",
        "NATS/1.0\r\nNats-Expected-Stream: T\r\n\r\n",
        "NATS/1.0\r\nNats-Expected-Last-Sequence: 2\r\n\r\n",
        "NATS/1.0\r\nNats-Expected-Last-Sequence: 1 \r\n\r\n",
        "NATS/1.0\r\nNats-Expected-Last-Sequence: 18446744073709551617\r\n\r\n",
        "NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 0\r\n\r\n",
        "NATS/1.0\r\nNats-Expected-Last-Msg-Id: 1\r\n\r\n",
        "NATS/1.0\r\nKey: " + 65536 * "x" + "\r\n\r\n",
    ],
)
def test_headers_it_cannot_answer_are_for_others(stage: Stage, header: str) -> None:
    stage.publish("in", header=header.encode())
    assert stage.left.subjects == ["s"]
    assert stage.store.last_seq == 1


def test_id_that_was_seen_is_answered_and_not_stored(stage: Stage) -> None:
    for number in (1, 2, 1):
        stage.publish("in", header=b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number)
    assert stage.acks[2] == b'{"stream":"S","seq":2,"duplicate": true}'
    assert stage.store.last_seq == 3


def test_id_is_found_regardless_of_its_publisher(stage: Stage) -> None:
    stage.ids.add(b"theirs", 1, time.time_ns())
    stage.publish("in", header=b"NATS/1.0\r\nNats-Msg-Id: theirs\r\n\r\n")
    assert stage.acks == [b'{"stream":"S","seq":1,"duplicate": true}']
    stage.publish("in", header=b"NATS/1.0\r\nNats-Msg-Id: ours\r\n\r\n")
    assert stage.ids.find(b"ours", time.time_ns()) == 2
    assert stage.ids.last_id == b"ours"
    stage.publish("in")
    assert stage.ids.last_id == b""


def test_first_id_is_reported_so_that_it_is_expired() -> None:
    stage = Stage(sync_always=False)
    for _ in range(TRIES_MAX):
        stage.publish()
        if stage.router.take_lanes() == []:
            break
        stage.lane.take_results()
    stage.publish(header=b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n")
    assert stage.router.take_lanes() == [stage.lane]


def test_acknowledgement_that_is_stored_in_turn_is_committed_later(stage: Stage) -> None:
    stage.publish("s")  # as if a stream took the acknowledgements of its own messages
    assert stage.store.last_seq > 2
    stage.commit_as_usual()
    assert stage.store.durable_seq == stage.store.last_seq


def test_lazy_store_is_written_to_and_not_synced() -> None:
    stage = Stage(sync_always=False)
    durable = stage.store.durable_seq
    stage.publish("in")
    assert len(stage.acks) == 1
    assert stage.store.durable_seq == durable
    assert stage.store.pending_sync(write_only=True) is None


def test_slow_syncs_do_not_delay_lazy_store() -> None:
    stage = Stage(sync_always=False)
    stage.pace.took(SLOW_NS)
    stage.pace.running = 1
    stage.publish("in")
    assert len(stage.acks) == 1
    assert stage.store.pending_sync(write_only=True) is None


def test_slow_writes_of_lazy_store_are_left_to_thread() -> None:
    stage = Stage(sync_always=False)
    stage.write_pace.took(SLOW_NS)
    stage.publish("in")
    assert stage.acks == []
    assert stage.lane.waiting == 1
