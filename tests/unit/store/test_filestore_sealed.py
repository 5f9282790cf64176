"""Full blocks end with a footer: opened unread, cold until asked for, never believed blindly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.store.block_file import TRAILER_BYTES, unpack_trailer
from penstock.store.contract import Cold, Missing
from penstock.store.format.block_frames import Binding
from penstock.store.index.block_images import blocks_of
from penstock.testing.damage import flip_bit, lose, swap
from penstock.testing.sim_disk import SimDisk
from penstock.testing.sim_files import Choice, Lose
from support.files import INCARNATION, contents, files, fill, opened, payload, sync, warmed

if TYPE_CHECKING:
    from penstock.store.io.disk import File

N = 60


class CountingDisk(SimDisk):
    """Counts the bytes that are read."""

    read_bytes = 0

    def pread(self, file: File, n: int, offset: int) -> bytes:
        data = super().pread(file, n, offset)
        CountingDisk.read_bytes += len(data)
        return data


def settled(n: int = N, **options: object) -> SimDisk:
    """A disk with a store of n messages that was closed."""
    disk = SimDisk()
    store = opened(disk, **options)
    fill(store, n)
    store.close()
    return disk


def test_only_the_newest_block_is_scanned_after_crash_or_close() -> None:
    disk = SimDisk()
    store = opened(disk)
    fill(store, N)
    sync(store)
    crashed = opened(disk.crash(Lose()))
    assert crashed.recovery.scanned == 1
    assert crashed.recovery.blocks > 5
    store.close()
    closed = opened(disk.crash(Lose()))
    assert closed.recovery.scanned == 1
    assert not crashed.recovery.clean
    assert closed.recovery.clean
    assert contents(crashed) == contents(closed) == {s: payload(s) for s in range(1, N + 1)}


def test_opening_reads_far_less_than_there_is() -> None:
    disk = CountingDisk()
    store = opened(disk, block_bytes=100_000)
    fill(store, 2000, payload_bytes=500)
    store.close()
    stored = sum(map(len, files(disk).values()))
    CountingDisk.read_bytes = 0
    opened(disk, block_bytes=100_000)
    assert CountingDisk.read_bytes * 8 < stored


def test_sealed_blocks_are_cold_when_store_is_opened_and_come_when_asked_for() -> None:
    store = opened(settled())
    assert isinstance(store.load(1), Cold)
    assert warmed(store, lambda: store.load(1)).payload == payload(1)


def test_images_beyond_bound_leave_memory() -> None:
    store = opened(SimDisk(), warm_bytes_max=150_000)
    fill(store, N)
    sync(store)
    warm = [block for block in blocks_of(store._log) if block.warm and block.sealed]
    assert 0 < len(warm) <= 2
    assert contents(store) == {seq: payload(seq) for seq in range(1, N + 1)}


def test_footer_that_does_not_hold_costs_scan_and_nothing_else() -> None:
    disk = settled()
    data = files(disk)["2.blk"]
    trailer = unpack_trailer(data[-TRAILER_BYTES:], Binding(INCARNATION, 2), len(data))
    assert trailer is not None
    index = range(trailer.used * 8, (trailer.used + trailer.index_bytes) * 8, 37)
    for bit in (*index, *range((len(data) - TRAILER_BYTES) * 8, len(data) * 8, 37)):
        harmed = disk.crash(Choice())
        flip_bit(harmed, "2.blk", bit)
        store = opened(harmed)
        assert contents(store) == {seq: payload(seq) for seq in range(1, N + 1)}, bit
        assert store.recovery.scanned == 2, bit
        assert store.recovery.damaged == ()


def test_footer_is_written_again_after_scan() -> None:
    disk = settled()
    flip_bit(disk, "2.blk", (len(files(disk)["2.blk"]) - 20) * 8)
    store = opened(disk)
    fill(store, 1)
    sync(store)
    assert opened(disk.crash(Lose())).recovery.scanned == 1


def test_damaged_record_of_cold_block_is_reported_when_it_is_read_and_from_then_on() -> None:
    disk = settled()
    at = files(disk)["1.blk"].index(payload(3))
    flip_bit(disk, "1.blk", at * 8)
    store = opened(disk)
    assert store.state().damaged == ()
    assert warmed(store, lambda: store.load(3)) is Missing.DAMAGED
    assert store.state().damaged == ((3, 3),)
    assert store.state().msgs == N - 1
    assert warmed(store, lambda: store.next_match((), 3)).seq == 4


@pytest.mark.parametrize("bit", range(0, 72 * 8, 41))
def test_damaged_header_costs_no_message(bit: int) -> None:
    disk = settled()
    for name in ("1.blk", max(files(disk), key=lambda name: int(name.split(".")[0]))):
        harmed = disk.crash(Choice())
        flip_bit(harmed, name, bit)
        store = opened(harmed)
        assert contents(store) == {seq: payload(seq) for seq in range(1, N + 1)}
        assert store.recovery.repaired == (name,)
        assert fill(store, 1) == [N + 1]


def test_swapped_files_are_read_as_what_they_report_they_are() -> None:
    disk = settled()
    swap(disk, "2.blk", "3.blk")
    store = opened(disk)
    assert contents(store) == {seq: payload(seq) for seq in range(1, N + 1)}
    assert store.recovery.repaired == ("2.blk", "3.blk")


def test_lost_block_is_damage_of_exactly_its_sequences_and_breaks_link() -> None:
    disk = settled()
    before = opened(disk.crash(Choice()))
    block = blocks_of(before._log)[1]
    lose(disk, "2.blk")
    store = opened(disk)
    assert store.recovery.damaged == ((block.first_seq, block.last_seq),)
    assert store.recovery.unlinked == ("3.blk",)
    assert store.load(block.first_seq) is Missing.DAMAGED


def test_stale_block_breaks_link() -> None:
    disk = SimDisk()
    store = opened(disk, block_bytes=2000)
    fill(store, 4)
    store.close()
    stale = files(disk)["1.blk"]
    store = opened(disk, block_bytes=2000)
    fill(store, N)
    store.close()
    file = disk.open("1.blk")
    disk.truncate(file, len(stale))
    disk.pwrite(file, stale, 0)
    disk.fdatasync(file)
    assert opened(disk, block_bytes=2000).recovery.unlinked == ("2.blk",)


def test_lost_page_of_the_last_batch_is_torn_and_one_that_was_durable_is_damage() -> None:
    disk = SimDisk()
    store = opened(disk, block_bytes=1 << 20)
    fill(store, 5)
    sync(store)
    fill(store, 5)
    sync(store)
    place = files(disk)["1.blk"]
    for seq, told in ((2, "damaged"), (7, "torn")):
        harmed = disk.crash(Choice())
        flip_bit(harmed, "1.blk", place.index(payload(seq)) * 8)
        found = opened(harmed, block_bytes=1 << 20)
        assert getattr(found.recovery, told) == ((seq, seq),)
        assert sorted(contents(found)) == [s for s in range(1, 11) if s != seq]
        assert fill(found, 1) == [11]


def test_after_close_every_loss_is_damage() -> None:
    disk = settled(10, block_bytes=1 << 20)
    for seq in (1, 5, 10):
        harmed = disk.crash(Choice())
        flip_bit(harmed, "1.blk", files(disk)["1.blk"].index(payload(seq)) * 8)
        assert opened(harmed, block_bytes=1 << 20).recovery.damaged == ((seq, seq),)


def test_closing_store_that_did_nothing_writes_nothing() -> None:
    disk = settled()
    before = files(disk)
    opened(disk).close()
    assert files(disk) == before


def test_closed_store_has_no_zeros_after_its_records() -> None:
    disk = settled(3, block_bytes=1 << 20)
    assert len(files(disk)["1.blk"]) < 1000


def test_number_of_unreadable_block_is_never_used_again() -> None:
    disk = settled()
    file = disk.open("99.blk", create=True)
    disk.pwrite(file, b"nothing of ours", 0)
    disk.fdatasync(file)
    store = opened(disk)
    assert store.recovery.unreadable == ("99.blk",)
    fill(store, N)
    sync(store)
    assert files(disk)["99.blk"] == b"nothing of ours"
    assert "100.blk" in files(disk)
