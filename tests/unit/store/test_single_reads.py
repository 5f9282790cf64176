"""One message of a cold block is read alone; a reader of more of it gets the block."""

from __future__ import annotations

import pytest

from penstock.store.contract import Cold, Missing
from penstock.store.filestore import LOOSE_MAX, FileStore
from penstock.store.format.compression import BlockCompression
from penstock.store.index.block_images import warm_blocks
from penstock.store.index.record_log import MessageRecord
from penstock.testing.damage import flip_bit
from penstock.testing.sim_disk import SimDisk
from support.files import compact, files, fill, opened, payload

N = 2000
BLOCK_BYTES = 100_000


def settled(disk: SimDisk | None = None, **options: object) -> FileStore:
    """A store of many blocks, opened again: only the newest is in memory."""
    disk = disk or SimDisk()
    store = opened(disk, block_bytes=BLOCK_BYTES, **options)
    fill(store, N, payload_bytes=500)
    store.close()
    return opened(disk, block_bytes=BLOCK_BYTES, **options)


def fetched(store: FileStore, seq: int) -> int:
    """Answers one question; how many bytes were read for it."""
    cold = store.load(seq)
    assert isinstance(cold, Cold)
    work = store.fetch(cold)
    work.run()
    store.fetched(work)
    found = store.load(seq)
    assert isinstance(found, MessageRecord)
    assert found.payload[:10] == payload(seq)[:10]
    return len(work.data)  # type: ignore[attr-defined]


def test_single_message_does_not_load_its_block() -> None:
    store = settled()
    warm = warm_blocks(store._log)
    for seq in range(100, N - 400, 300):
        assert fetched(store, seq) < 1000
    assert warm_blocks(store._log) == warm


def test_neighbour_of_the_last_one_loads_block() -> None:
    store = settled()
    assert fetched(store, 500) < 1000
    assert fetched(store, 501) > BLOCK_BYTES // 2
    assert isinstance(store.load(502), MessageRecord)


def test_many_looks_at_one_block_load_it() -> None:
    store = settled(SimDisk())
    read = []
    for turn in range(12):
        seq = 10 + 5 * turn
        if isinstance(store.load(seq), MessageRecord):
            break
        read.append(fetched(store, seq))
        fetched(store, 700 + 150 * (turn % 5) + turn)  # elsewhere, so that none is a neighbour
    else:
        pytest.fail("the block was never loaded")
    assert read[-1] > BLOCK_BYTES // 2


def test_few_single_messages_are_kept() -> None:
    store = settled()
    for seq in range(70, N - 400, 67):
        if isinstance(store.load(seq), Cold):
            fetched(store, seq)
    assert 0 < len(store._log.loose) <= LOOSE_MAX


def test_damaged_record_read_alone_is_reported_as_any_other() -> None:
    disk = SimDisk()
    settled(disk)
    name = min(name for name in files(disk) if name.endswith(".blk"))
    flip_bit(disk, name, 8 * 20_000 + 3)
    store = opened(disk, block_bytes=BLOCK_BYTES)
    answers = []
    for seq in range(1, 200):
        cold = store.load(seq + 1000)  # elsewhere, so that none is a neighbour
        assert cold is not None
        answer = store.load(seq)
        while isinstance(answer, Cold):
            work = store.fetch(answer)
            work.run()
            store.fetched(work)
            answer = store.load(seq)
        answers.append(answer)
    assert [a for a in answers if isinstance(a, Missing)]


def test_entries_that_moved_while_reading_are_requested_again() -> None:
    store = settled()
    cold = store.load(500)
    assert isinstance(cold, Cold)
    assert cold.seq == 500
    work = store.fetch(cold)
    work.run()
    work.layout += 1  # type: ignore[attr-defined]
    store.fetched(work)
    assert isinstance(store.load(500), Cold)


def test_blocks_that_are_not_plain_are_read_whole() -> None:
    disk = SimDisk()
    settled(disk, compression=BlockCompression.ZSTD)
    store = opened(disk, block_bytes=BLOCK_BYTES, compression=BlockCompression.ZSTD)
    assert compact(store)
    store.close()
    store = opened(disk, block_bytes=BLOCK_BYTES, compression=BlockCompression.ZSTD)
    assert fetched(store, 500) > BLOCK_BYTES // 2
