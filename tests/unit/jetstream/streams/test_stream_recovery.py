"""What a stream remembers over a restart, and what it puts right after a crash."""

from __future__ import annotations

from penstock.api.stream_config import StreamSource
from penstock.base.message import Inbound
from penstock.jetstream.streams.entries import BatchEntry, Publish
from penstock.jetstream.streams.source_progress import Progress, SourceRef
from penstock.jetstream.streams.stream import Stream
from penstock.store.contract import Cold, MessageRecord
from penstock.store.memstore import MemStore
from support.stream_run import NEW_YEAR, SECOND, Run, ack, block, config


def test_ids_are_remembered_for_the_rest_of_their_window() -> None:
    run = Run(duplicate_window=10 * SECOND)
    run.publish("s.a", header={"Nats-Msg-Id": "old"})
    run.now_ns += 5 * SECOND
    run.publish("s.a", header={"Nats-Msg-Id": "new"})
    run.now_ns += 6 * SECOND
    run.open()
    assert run.publish("s.a", header={"Nats-Msg-Id": "new"}) == ack(2, ',"duplicate": true')
    assert run.publish("s.a", header={"Nats-Msg-Id": "old"}) == ack(3)


def test_last_id_is_remembered() -> None:
    run = Run(duplicate_window=0)
    run.publish("s.a", header={"Nats-Msg-Id": "x"})
    run.open()
    assert run.publish("s.a", header={"Nats-Expected-Last-Msg-Id": "x"}) == ack(2)


def test_sequences_continue_after_removed_messages() -> None:
    run = Run()
    run.publish("s.a")
    run.publish("s.a")
    run.store.purge()
    run.open()
    assert run.publish("s.a") == ack(3)


# -- batches that a power cut tore


def batch(run: Run) -> BatchEntry:
    for number in (1, 2, 3):
        header = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(number)}
        header |= {"Nats-Batch-Commit": "1"} if number == 3 else {}
        planned = run.stream.plan(Inbound("s.a", "", block(header), b""), run.now_ns)
    assert isinstance(planned, BatchEntry)
    return planned


def test_torn_batch_is_taken_out_again() -> None:
    for stored in range(4):
        run = Run(allow_atomic=True)
        run.publish("s.x")
        for item in batch(run).items[:stored]:
            run.apply(item)
        run.open()
        assert run.seqs() == ([1, 2, 3, 4] if stored == 3 else [1])
        assert run.publish("s.y") == ack(5 if stored == 3 else 2)


def test_whole_batch_stays_although_its_end_was_deleted() -> None:
    run = Run(allow_atomic=True)
    run.apply(batch(run))
    run.store.remove(3)
    run.open()
    assert run.seqs() == [1, 2]


# -- sources


def test_each_source_continues_after_what_it_copied_last() -> None:
    sources = (StreamSource(name="A"), StreamSource(name="B"), StreamSource(name="C"))
    run = Run(sources=sources)
    one, two, three = map(Progress, sources)
    for origin, seq in ((one, 3), (two, 7), (one, 4)):
        planned = run.stream.plan_copy(Inbound("s.a", "", b"", b""), seq, origin, NEW_YEAR)
        assert isinstance(planned, Publish)
        run.apply(planned)
    run.publish("s.a")
    live = [run.stream.source_ref(each.index_name) for each in (one, two, three)]
    run.open()
    assert [run.stream.source_ref(each.index_name) for each in (one, two, three)] == live
    assert live == [SourceRef("A", "A > >", 4, ""), SourceRef("B", "B > >", 7, ""), None]


def test_source_that_comes_back_continues_where_it_was() -> None:
    source = StreamSource(name="A")
    run = Run(sources=(source,))
    origin = Progress(source)
    planned = run.stream.plan_copy(Inbound("s.a", "", b"", b""), 9, origin, NEW_YEAR)
    assert isinstance(planned, Publish)
    run.apply(planned)
    run.cfg = config()
    run.open()
    assert run.stream.source_ref(origin.index_name) is None
    run.apply(run.stream.plan_update(config(sources=(source,)), NEW_YEAR))
    assert run.stream.recover(NEW_YEAR) is None
    assert run.stream.source_ref(origin.index_name) == SourceRef("A", "A > >", 9, "")


# -- what is not in memory


class ColdStore(MemStore):
    """Answers every read first with the block it would need, then for real."""

    warm = False

    def load(self, seq: int, *, unsynced: bool = False) -> MessageRecord | object:  # type: ignore[override]
        self.warm = not self.warm
        return Cold(7) if self.warm else super().load(seq, unsynced=unsynced)


def test_recovery_waits_for_blocks_and_continues() -> None:
    store = ColdStore()
    store.append("s.a", block({"Nats-Msg-Id": "x"}), b"", NEW_YEAR)
    stream = Stream(config(allow_msg_schedules=True), store, created_ns=1)
    steps = 0
    while stream.recover(NEW_YEAR) is not None:
        steps += 1
    assert steps > 1
    msg = Inbound("s.b", "r", block({"Nats-Msg-Id": "x"}), b"")
    assert stream.plan(msg, NEW_YEAR).is_duplicate  # type: ignore[union-attr]
