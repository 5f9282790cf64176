"""Cut the power while batches are stored: each is there whole, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.api.stream_config import Storage
from penstock.base.message import Inbound
from penstock.jetstream.streams import stream_recovery
from penstock.jetstream.streams.entries import Answer, NotLoaded
from penstock.jetstream.streams.stream import Stream
from penstock.store.contract import Cold, MessageRecord
from penstock.store.filestore import FileStore
from penstock.testing.crash_states import crash_states
from penstock.testing.recording_disk import RecordingDisk
from penstock.testing.sim_disk import SimDisk
from support.stream_run import NEW_YEAR, block, config

if TYPE_CHECKING:
    from penstock.store.io.disk import Disk

BLOCK_BYTES = 2_000
STATES = 400
SIZES = (3, 1, 6, 2, 4, 5)


def opened(disk: Disk, *, lazy: bool = False) -> Stream:
    store = FileStore.open(
        disk, incarnation=9, noise=bytes, block_bytes=BLOCK_BYTES, sync_always=not lazy
    )
    stream = Stream(config(allow_atomic=True, storage=Storage.FILE), store, created_ns=1)
    while (cold := stream.recover(NEW_YEAR)) is not None:
        fetch(store, cold)
    return stream


def fetch(store: FileStore, cold: Cold) -> None:
    work = store.fetch(cold)
    work.run()
    store.fetched(work)


def publish(stream: Stream, header: dict[str, str], payload: bytes) -> None:
    planned = stream.plan(Inbound("s.a", "", block(header), payload), NEW_YEAR)
    assert not isinstance(planned, NotLoaded)
    if not isinstance(planned, Answer):
        stream.apply(planned)


def live(disk: RecordingDisk, *, lazy: bool) -> None:
    """Batches with a message between; what is durable is marked with its last sequence."""
    stream = opened(disk, lazy=lazy)
    for number, size in enumerate(SIZES * 2):
        for at in range(1, size + 1):
            header = {"Nats-Batch-Id": f"b{number}", "Nats-Batch-Sequence": str(at)}
            header |= {"Nats-Batch-Commit": "1"} if at == size else {}
            publish(stream, header, b"%d %d" % (number, size))
        if number % 3:
            publish(stream, {}, b"single")
        if number % 2:
            work = stream.store.pending_sync()
            assert work is not None
            work.run()
            stream.store.synced(work)
            disk.mark(stream.last_seq)


def held(stream: Stream) -> list[bytes]:
    """The payloads of all messages."""
    store, found, seq = stream.store, [], 0
    while (record := store.next_match((), seq, unsynced=True)) is not None:
        if isinstance(record, MessageRecord):
            found.append(record.payload)
            seq = record.seq + 1
        else:
            assert isinstance(store, FileStore)
            fetch(store, record)
    return found


def check_every_cut(*, lazy: bool) -> None:
    disk = RecordingDisk(SimDisk())
    live(disk, lazy=lazy)
    for image in crash_states(disk, seed=1, images_max=STATES):
        stream = opened(image.disk, lazy=lazy)
        payloads = held(stream)
        for payload in set(payloads) - {b"single"}:
            size = int(payload.split()[1])
            assert payloads.count(payload) == size, image.description
        if image.marks:
            assert stream.last_seq >= image.marks[-1], image.description  # type: ignore[operator]


@pytest.mark.parametrize("lazy", [False, True])
def test_batch_is_there_whole_or_not_at_all(lazy: bool) -> None:
    check_every_cut(lazy=lazy)


def test_without_taking_torn_batches_out_check_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_recovery, "_drop_torn_batches", lambda _ledger: iter(()))
    with pytest.raises(AssertionError):
        check_every_cut(lazy=False)
