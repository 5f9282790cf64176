"""Snapshots: windows, chunks, patience, and what is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.api.advisories import SnapshotComplete
from penstock.api.request_bodies import SnapshotRequest
from penstock.api.stream_config import Storage
from penstock.jetstream.account.asset_factory import build_host
from penstock.jetstream.archive.snapshot_session import (
    CHUNK_BYTES_DEFAULT,
    NO_FLOW,
    NO_INTEREST,
    STEP_MESSAGES,
    WHOLE,
    SnapshotSession,
    capture,
)
from penstock.jetstream.archive.stream_archive import (
    ArchiveExtent,
    SavedMessage,
    StreamArchiveReader,
)
from penstock.records.s2_stream import S2Inflater
from penstock.store.memstore import MemStore
from support.archives import (
    CLIENT,
    START_NS,
    Wire,
    account,
    configured,
    contents,
    publish,
    settle,
    stream,
)
from support.forgetful_store import ForgetfulStore

if TYPE_CHECKING:
    from penstock.jetstream.archive.stream_archive import Item
    from penstock.jetstream.host.stream_host import StreamHost

CHUNK = 1024


class Listeners:
    """Whether anybody listens."""

    def __init__(self) -> None:
        self.are_there = True

    def __call__(self, subject: str) -> bool:
        return self.are_there


def begun(
    host: StreamHost, listeners: Listeners | None = None, **request: Any
) -> tuple[SnapshotSession, Wire]:
    asked = SnapshotRequest(deliver_subject="to", **{"chunk_size": CHUNK, **request})
    extent, head = capture(host, START_NS, has_consumers=True)
    snapshot = SnapshotSession(
        host,
        asked,
        head=head,
        last_seq=extent.state.last_seq,
        inlet="acks",
        client=CLIENT,
        has_interest=listeners or Listeners(),
        now_ns=START_NS,
    )
    snapshot.listening(is_there=listeners is None or listeners.are_there)
    return snapshot, Wire(snapshot)


def taken(wire: Wire) -> bytes:
    """The whole archive, every chunk acknowledged."""
    wire.run()
    while not wire.transfer.is_over:
        wire.deliver(b"", "")
    return b"".join(sent.payload for sent in wire.sent)


def items(data: bytes) -> tuple[list[Item], bool]:
    inflater, reader = S2Inflater(), StreamArchiveReader(message_bytes_max=1 << 20)
    inflater.feed(data)
    found = []
    while (piece := inflater.next()) is not None:
        reader.feed(piece)
        while (item := reader.next()) is not None:
            found.append(item)
    return found, reader.is_whole


def messages(data: bytes) -> list[tuple[Any, ...]]:
    found, is_whole = items(data)
    assert is_whole
    return [tuple(item) for item in found if isinstance(item, SavedMessage)]


def noisy(host: StreamHost, count: int) -> None:
    """Messages that do not compress."""
    for number in range(count):
        publish(host, str(number % 3), bytes((number * i * i + 3 * i) % 253 for i in range(300)))
    settle(host)


@pytest.fixture
def host() -> StreamHost:
    made = stream(account(), storage=Storage.MEMORY)
    noisy(made, 30)
    return made


def test_archive_has_every_message_in_order(host: StreamHost) -> None:
    host.stream.store.remove(7)
    _, wire = begun(host)
    data = taken(wire)
    assert messages(data) == contents(host)
    extent = items(data)[0][0]
    assert isinstance(extent, ArchiveExtent)
    assert (extent.state.messages, extent.state.last_seq) == (29, 30)


def test_full_chunks_want_answer_and_the_last_one_does_not(host: StreamHost) -> None:
    _, wire = begun(host)
    taken(wire)
    *chunks, last, end = wire.sent
    assert [len(sent.payload) for sent in chunks] == [CHUNK] * len(chunks)
    assert [sent.reply for sent in chunks] == [
        f"acks.{CHUNK}.{n}" for n in range(1, len(chunks) + 1)
    ]
    assert 0 < len(last.payload) < CHUNK
    assert (last.reply, end.payload, end.header) == ("", b"", WHOLE)
    [told] = wire.told
    assert isinstance(told.event, SnapshotComplete)
    assert (told.subject, told.event.error) == ("$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_COMPLETE.S", "")


def test_small_archive_ends_without_status() -> None:
    _, wire = begun(stream(account()), chunk_size=0)
    wire.run()
    chunk, end = wire.sent
    assert len(chunk.payload) < CHUNK_BYTES_DEFAULT
    assert (chunk.reply, end.payload, end.header) == ("", b"", b"")


def test_no_more_chunks_are_out_than_window_allows(host: StreamHost) -> None:
    _, wire = begun(host, window_size=3 * CHUNK)
    wire.run()
    assert len(wire.sent) == 3
    wire.deliver(b"", "")
    assert len(wire.sent) == 4
    for _ in range(5):
        wire.transfer.received("", b"", wire.now_ns)
    wire.run()
    assert len(wire.sent) == 7  # acknowledgements that nothing waited for do not widen the window


def test_sizes_are_kept_within_bounds(host: StreamHost) -> None:
    _, wire = begun(host, chunk_size=1, window_size=-5)
    wire.run()
    [sent] = wire.sent
    assert len(sent.payload) == CHUNK


def test_receiver_that_does_not_answer_is_given_up(host: StreamHost) -> None:
    snapshot, wire = begun(host, window_size=2 * CHUNK)
    wire.run()
    wire.now_ns += 4_999_999_999
    wire.run()
    assert not snapshot.is_over
    wire.wait()
    assert snapshot.is_over
    assert (wire.sent[-1].header, wire.now_ns) == (NO_FLOW, START_NS + 5_000_000_000)
    assert isinstance(wire.told[0].event, SnapshotComplete)
    assert wire.told[0].event.error == "no flow response"


def test_receiver_that_leaves_ends_it(host: StreamHost) -> None:
    listeners = Listeners()
    snapshot, wire = begun(host, listeners, window_size=2 * CHUNK)
    wire.run()
    listeners.are_there = False
    wire.run()
    assert snapshot.is_over
    assert wire.sent[-1].header == NO_INTEREST


def test_receiver_may_be_late_but_not_for_ever(host: StreamHost) -> None:
    listeners = Listeners()
    listeners.are_there = False
    late, wire = begun(host, listeners)
    wire.run()
    assert not wire.sent
    listeners.are_there = True
    late.listening(is_there=True)
    assert messages(taken(wire)) == contents(host)

    listeners.are_there = False
    late, wire = begun(host, listeners)
    wire.run()
    wire.wait()
    assert late.is_over
    assert [sent.header for sent in wire.sent] == [NO_INTEREST]


def test_subscriber_of_everything_gets_time_to_subscribe(host: StreamHost) -> None:
    snapshot, wire = begun(host)
    snapshot.listening(is_there=False)
    wire.run()
    assert not wire.sent
    wire.wait()
    assert messages(taken(wire)) == contents(host)


def test_concurrent_writes_are_left_out(host: StreamHost) -> None:
    before = contents(host)
    _, wire = begun(host, window_size=CHUNK)
    wire.run()
    noisy(host, 5)
    assert messages(taken(wire)) == before


def test_messages_removed_before_reading_are_missing() -> None:
    host = stream(account())
    noisy(host, 15 * STEP_MESSAGES)
    _, wire = begun(host, window_size=CHUNK)
    wire.run()
    host.stream.store.remove(1400)
    host.stream.store.purge(before_seq=800)
    found = {message[0] for message in messages(taken(wire))}
    assert found >= {*range(800, 1501)} - {1400}
    assert 1400 not in found


def test_damaged_records_are_missing_and_reported() -> None:
    host = damaged_stream()
    snapshot, wire = begun(host)
    assert [message[0] for message in messages(taken(wire))] == [1, 2, 5, 6, *range(8, 31)]
    problem = "stream S: messages 3-4, 7-7 are damaged, and not in the snapshot"
    assert snapshot.problem == problem
    assert wire.sent[-1].header == WHOLE
    [told] = wire.told
    assert isinstance(told.event, SnapshotComplete)
    assert told.event.error == problem


def test_snapshot_that_checks_fails_of_what_is_damaged() -> None:
    _, wire = begun(damaged_stream(), jsck=True)
    taken(wire)
    failed = b"NATS/1.0 500 snapshot check detected 3 bad messages\r\n\r\n"
    assert wire.sent[-1].header == failed


def damaged_stream() -> StreamHost:
    """30 messages, of which some cannot be read, and one more that is written later."""
    host = stream(account(), storage=Storage.MEMORY)
    noisy(host, 30)
    store = host.stream.store
    assert isinstance(store, MemStore)
    for seq in (3, 4, 7):
        store._note_damage(seq)
    return host


def test_stream_that_is_deleted_ends_it() -> None:
    host = stream(account())
    noisy(host, 20 * STEP_MESSAGES)
    snapshot, wire = begun(host, window_size=CHUNK)
    wire.run()
    host.close()
    while not snapshot.is_over:
        wire.deliver(b"", "")
    assert wire.sent[-1].header.startswith(b"NATS/1.0 500 ")


class Reading:
    """The work of fetching a block."""

    def __init__(self, cold: object) -> None:
        self.cold = cold

    def run(self) -> None:
        return None


class ChillyStore(ForgetfulStore):
    """Has nothing in memory that was not fetched just now."""

    def fetch(self, cold: object) -> Reading:
        return Reading(cold)

    def fetched(self, work: Reading) -> None:
        self.warm(work.cold)


def cold_stream() -> StreamHost:
    store: Any = ChillyStore()
    host = build_host(account(), configured(), store, None, created_ns=START_NS)
    noisy(host, 30)
    return host


def test_blocks_that_are_not_in_memory_are_fetched() -> None:
    host = cold_stream()
    _, wire = begun(host, window_size=CHUNK)
    data = taken(wire)
    assert wire.works == 30
    assert [message[0] for message in messages(data)] == [*range(1, 31)]


def test_block_that_cannot_be_read_ends_it_with_reason() -> None:
    host = cold_stream()
    snapshot, wire = begun(host)
    while (step := snapshot.step(START_NS)).work is None:
        assert step.more
    snapshot.worked(step.work, OSError("unreadable"))
    wire.run()
    assert snapshot.is_over
    assert wire.sent[-1].header == b"NATS/1.0 500 unreadable\r\n\r\n"


def test_failed_snapshot_ends_with_its_reason(host: StreamHost) -> None:
    snapshot, wire = begun(host)
    snapshot.fail("internal failure")
    wire.run()
    assert snapshot.is_over
    assert wire.sent[-1].header == b"NATS/1.0 500 internal failure\r\n\r\n"
