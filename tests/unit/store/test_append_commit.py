"""The short way of a commit: the same bytes and promises as the ordinary one, or nothing at all."""

from __future__ import annotations

import os
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from penstock.store.append_commit import PREALLOCATE_BYTES, CommitPlan
from penstock.store.contract import Appended
from penstock.store.errors import StoreError, SyncFailed
from penstock.store.filestore import FileStore
from penstock.store.io.disk import RealDisk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SUBJECTS = ("a", "b", "a.long.one")
PAGE_BYTES = 4096
MIB = 1 << 20
SIZE = 40_000


def opened(place: Path, **options: Any) -> FileStore:
    place.mkdir(exist_ok=True)
    return FileStore.open(RealDisk.at(place), incarnation=7, noise=os.urandom, **options)


def put(store: FileStore, n: int = 1) -> None:
    for _ in range(n):
        seq = store.last_seq + 1
        stored = store.append(SUBJECTS[seq % 3], b"", b"%d" % seq * (seq % 50), seq)
        assert isinstance(stored, Appended)


def commit_as_usual(store: FileStore) -> None:
    while (work := store.pending_sync()) is not None:
        work.run()
        store.synced(work)


def begun(place: Path, *, sync_always: bool = True) -> FileStore:
    """A store whose file is open, with space behind what is in it."""
    store = opened(place, sync_always=sync_always)
    put(store)
    commit_as_usual(store)
    return store


def contents(place: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in place.iterdir()}


@contextmanager
def standing_in(store: FileStore, device: str) -> Iterator[None]:
    """Whatever is done to the store's block file is done to a device instead."""
    [block] = store._files.open.values()
    fd = store._disk.descriptors.acquire(block.file)  # type: ignore[union-attr]
    assert fd is not None
    store._disk.descriptors.release(block.file, fd)  # type: ignore[union-attr]
    kept, other = os.dup(fd), os.open(device, os.O_RDWR)
    os.dup2(other, fd)
    os.close(other)
    try:
        yield
    finally:
        os.dup2(kept, fd)
        os.close(kept)


def test_it_writes_bytes_ordinary_way_would_write(tmp_path: Path) -> None:
    ordinary, short = begun(tmp_path / "ordinary"), begun(tmp_path / "short")
    for n in (1, 3, 1, 200, 2):
        for store in (ordinary, short):
            put(store, n)
        commit_as_usual(ordinary)
        assert short.appender.commit()
        assert short.durable_seq == short.visible_seq == ordinary.durable_seq == short.last_seq
        assert not short.sync_wanted
    assert contents(tmp_path / "short") == contents(tmp_path / "ordinary")
    ordinary.close()
    short.close()
    assert contents(tmp_path / "short") == contents(tmp_path / "ordinary")


def test_plan_is_append_while_only_open_block_grows(tmp_path: Path) -> None:
    store = opened(tmp_path / "s", block_bytes=MIB)
    put(store)
    assert store.appender.plan is CommitPlan.FULL  # there is no file yet
    commit_as_usual(store)
    assert store.appender.plan is CommitPlan.NOTHING
    put(store)
    assert store.appender.plan is CommitPlan.APPEND
    assert store.appender.unwritten_bytes > 0
    assert store.appender.commit()
    assert store.appender.plan is CommitPlan.NOTHING
    store.erase(1)
    assert store.appender.plan is CommitPlan.FULL
    commit_as_usual(store)
    put_sized(store, MIB)  # which needs a new block
    assert store.appender.plan is CommitPlan.FULL


def test_both_executors_of_append_write_same_bytes(tmp_path: Path) -> None:
    in_place, on_thread = begun(tmp_path / "in_place"), begun(tmp_path / "on_thread")
    for _ in range(3 * PREALLOCATE_BYTES // SIZE):
        for store in (in_place, on_thread):
            put_sized(store, SIZE)
            assert store.appender.plan is CommitPlan.APPEND
        assert in_place.appender.commit()
        work = on_thread.pending_sync()
        assert work is not None
        work.run()
        on_thread.synced(work)
        assert on_thread.durable_seq == in_place.durable_seq == in_place.last_seq
        assert contents(tmp_path / "in_place") == contents(tmp_path / "on_thread")


def test_it_is_not_open_before_there_is_file(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    put(store)
    assert not store.appender.commit()
    assert store.durable_seq == 0


def test_it_is_closed_while_commit_is_out(tmp_path: Path) -> None:
    store = begun(tmp_path / "s")
    put(store)
    work = store.pending_sync()
    assert work is not None
    put(store)
    assert not store.appender.commit()
    work.run()
    store.synced(work)
    assert store.durable_seq == 2
    assert store.appender.commit()
    assert store.durable_seq == 3


def test_it_leaves_to_others_what_is_more_than_appending(tmp_path: Path) -> None:
    store = begun(tmp_path / "s")
    put(store)
    store.erase(1)
    assert not store.appender.commit()
    commit_as_usual(store)
    put(store)
    assert store.appender.commit()


def test_file_without_descriptor_is_left_to_others(tmp_path: Path) -> None:
    store = begun(tmp_path / "s")
    [block] = store._files.open.values()
    fd = store._disk.descriptors.acquire(block.file)  # type: ignore[union-attr]
    assert fd is not None
    os.close(fd)
    put(store)
    assert not store.appender.commit()
    commit_as_usual(store)
    put(store)
    assert store.appender.commit()
    assert store.durable_seq == 3


def test_rows_it_could_not_write_are_written_by_others(tmp_path: Path) -> None:
    store = begun(tmp_path / "s")
    put(store)
    with standing_in(store, "/dev/full"):
        assert not store.appender.commit()
    assert store.visible_seq == 1
    commit_as_usual(store)
    assert store.visible_seq == 2
    store.close()
    assert opened(tmp_path / "s").last_seq == 2


def test_sync_that_failed_is_final(tmp_path: Path) -> None:
    store = begun(tmp_path / "s")
    put(store)
    with standing_in(store, "/dev/null"):  # which takes everything, and cannot be synced
        assert not store.appender.commit()
    work = store.pending_sync()
    assert work is not None
    with pytest.raises(SyncFailed) as failure:
        work.run()
    store.synced(work, failure.value)
    assert store.visible_seq == 1
    with pytest.raises(StoreError):
        put(store)
    assert not store.appender.commit()


def test_in_lazy_store_it_writes_and_the_next_sync_makes_it_durable(tmp_path: Path) -> None:
    store = begun(tmp_path / "s", sync_always=False)
    before = store.durable_seq
    put(store, 5)
    assert store.appender.commit()
    assert store.visible_seq == store.last_seq
    assert store.durable_seq == before
    found = opened(tmp_path / "s", sync_always=False)  # as after a kill
    assert found.state().msgs == store.state().msgs
    commit_as_usual(store)
    assert store.durable_seq == store.last_seq


def test_lazy_store_syncs_ordinary_way_before_it_shows_what_is_not_reserved(
    tmp_path: Path,
) -> None:
    store = begun(tmp_path / "s", sync_always=False)
    while not store.sync_wanted:
        put(store, 100)
    put(store)
    assert not store.appender.commit()


# -- much at once: straight from the image


def put_sized(store: FileStore, size: int) -> None:
    seq = store.last_seq + 1
    assert isinstance(store.append("s", b"", bytes([seq % 251]) * size, seq), Appended)


def grown(place: Path) -> FileStore:
    """A store with an image so large that it begins where a page does."""
    store = opened(place)
    put_sized(store, MIB + 1)
    commit_as_usual(store)
    return store


def check_whole(store: FileStore, sizes: list[int]) -> None:
    assert store.last_seq == len(sizes)
    for seq, size in enumerate(sizes, 1):
        found = store.load(seq)
        if found is not None and hasattr(found, "block"):
            work = store.fetch(found)
            work.run()
            store.fetched(work)
            found = store.load(seq)
        assert found.payload == bytes([seq % 251]) * size  # type: ignore[union-attr]


def test_large_writes_are_whole_pages_padded_with_zeros(tmp_path: Path) -> None:
    store = grown(tmp_path / "s")
    put_sized(store, 300_001)
    assert store.appender.commit()
    if not store.appender.is_direct:
        pytest.skip("this file system wants everything copied")
    [block] = store._files.open.values()
    [file] = (tmp_path / "s").glob("*.blk")
    data = file.read_bytes()
    assert len(data) == block.allocated
    assert len(data) % PAGE_BYTES == 0
    assert block.written < len(data) < block.written + PAGE_BYTES
    assert not data[block.written :].strip(b"\0")
    check_whole(opened(tmp_path / "s"), [MIB + 1, 300_001])  # as after a kill
    store.close()
    assert file.stat().st_size % PAGE_BYTES


@pytest.mark.parametrize("seed", range(4))
def test_much_and_little_in_any_order_are_found_as_ordinary_way_writes_them(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    places = [tmp_path / "ordinary", tmp_path / "short"]
    # Nothing stays warm: images lie in memory that holds what an older block said.
    options = {"block_bytes": 3 * MIB, "warm_bytes_max": 0}
    ordinary, short = (opened(place, **options) for place in places)
    sizes: list[int] = []
    for _ in range(60):
        commit = [chance.choice((0, 30, 4000, 66_000, 300_000))] * chance.choice((1, 2, 5))
        for size in commit:
            put_sized(ordinary, size)
            put_sized(short, size)
        sizes += commit
        commit_as_usual(ordinary)
        if not short.appender.commit():
            commit_as_usual(short)
        assert short.durable_seq == short.visible_seq == len(sizes)
        if chance.random() < 0.1:
            found = opened(places[1], **options)
            assert found.recovery.torn_bytes == 0
            check_whole(found, sizes)
    ordinary.close()
    short.close()
    assert contents(places[1]) == contents(places[0])
    check_whole(opened(places[1], **options), sizes)


def test_pages_are_copied_without_direct_io(tmp_path: Path) -> None:
    store = grown(tmp_path / "s")
    put_sized(store, 300_000)
    with standing_in(store, "/dev/full"):  # it refuses O_DIRECT, and then the write
        assert not store.appender.commit()
    assert not store.appender.is_direct
    assert store.visible_seq == 1
    commit_as_usual(store)
    put_sized(store, 300_000)
    assert store.appender.commit()
    [block] = store._files.open.values()
    [file] = (tmp_path / "s").glob("*.blk")
    assert file.stat().st_size == block.written
    check_whole(opened(tmp_path / "s"), [MIB + 1, 300_000, 300_000])
