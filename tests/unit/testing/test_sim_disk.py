"""The simulator itself: what a power cut may take, what it may not, and how calls fail."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.store.errors import DiskFull, StoreError, SyncFailed
from penstock.testing.sim_disk import DiskFault, SimDisk
from penstock.testing.sim_files import SECTOR, Choice, Lose

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.store.io.disk import File
    from penstock.testing.sim_files import NameChange, SimDirectory

SEEDS = range(300)


def written(disk: SimDisk, name: str, data: bytes) -> File:
    """A file whose contents and name are durable."""
    file = disk.open(name, create=True)
    disk.pwrite(file, data, 0)
    disk.fdatasync(file)
    disk.sync_dir()
    return file


def outcomes(disk: SimDisk, look: Callable[[SimDisk], object]) -> set[object]:
    """What is found after many random power cuts."""
    return {look(disk.crash(seed)) for seed in SEEDS}


def read(name: str) -> Callable[[SimDisk], object]:
    return lambda disk: disk.read_small(name, 1 << 20) if name in disk.files() else None


def names(disk: SimDisk) -> tuple[str, ...]:
    return tuple(disk.files())


# -- contents


def test_synced_bytes_survive_every_cut() -> None:
    disk = SimDisk()
    written(disk, "a", b"x" * 10_000)
    assert outcomes(disk, read("a")) == {b"x" * 10_000}
    assert read("a")(disk.crash(Lose())) == b"x" * 10_000


def test_unsynced_bytes_may_vanish_or_stay() -> None:
    disk = SimDisk()
    file = written(disk, "a", b"old")
    disk.pwrite(file, b"new", 0)
    assert outcomes(disk, read("a")) == {b"old", b"new"}
    assert read("a")(disk.crash(Lose())) == b"old"
    assert read("a")(disk.crash(Choice())) == b"new"


def test_unsynced_writes_are_lost_in_any_order() -> None:
    disk = SimDisk()
    file = written(disk, "a", bytes(8192))
    disk.pwrite(file, b"1", 0)
    disk.pwrite(file, b"2", 4096)
    found = outcomes(disk, lambda d: (d.read_small("a", 9000)[0], d.read_small("a", 9000)[4096]))
    assert found == {(0, 0), (49, 0), (0, 50), (49, 50)}


def test_page_may_hold_any_version_since_sync_but_none_before() -> None:
    disk = SimDisk()
    file = written(disk, "a", b"0")
    disk.pwrite(file, b"1", 0)
    disk.fdatasync(file)
    for version in (b"2", b"3", b"4"):
        disk.pwrite(file, version, 0)
    assert outcomes(disk, read("a")) == {b"1", b"2", b"3", b"4"}


def test_write_tears_between_sectors_and_never_inside_one() -> None:
    disk = SimDisk()
    file = written(disk, "a", b"o" * 4096)
    disk.pwrite(file, b"n" * 4096, 0)
    tears = set()
    for seed in SEEDS:
        data = disk.crash(seed).read_small("a", 4096)
        sectors = [data[i : i + SECTOR] for i in range(0, 4096, SECTOR)]
        assert all(sector in (b"o" * SECTOR, b"n" * SECTOR) for sector in sectors)
        tears |= {n for n in range(1, 8) if sectors[n - 1] != sectors[n]}
    assert tears == set(range(1, 8))


def test_file_may_have_grown_without_its_contents_and_the_other_way_round() -> None:
    disk = SimDisk()
    file = written(disk, "a", b"")
    disk.pwrite(file, b"new", 0)
    assert outcomes(disk, read("a")) == {b"", b"new", bytes(3)}


def test_cut_file_may_be_long_again() -> None:
    disk = SimDisk()
    file = written(disk, "a", b"x" * 5000)
    disk.truncate(file, 10)
    found = outcomes(disk, read("a"))
    assert {b"x" * 10, b"x" * 5000} <= found
    disk.fdatasync(file)
    assert outcomes(disk, read("a")) == {b"x" * 10}


def test_truncated_bytes_are_not_restored_by_growing() -> None:
    disk = SimDisk()
    file = written(disk, "a", b"")
    disk.pwrite(file, b"x" * 5000, 0)
    for choice in (Lose(pages=False, names=False), Lose()):
        after = disk.crash(choice)
        assert after.read_small("a", 5000) == b""
        again = after.open("a")
        after.truncate(again, 5000)
        assert after.pread(again, 5000, 0) == bytes(5000)


def test_preallocated_zeros_survive_only_when_synced() -> None:
    disk = SimDisk()
    file = written(disk, "a", b"x")
    disk.preallocate(file, 9000)
    assert outcomes(disk, read("a")) == {b"x", b"x" + bytes(8999)}
    disk.fdatasync(file)
    assert outcomes(disk, read("a")) == {b"x" + bytes(8999)}


def test_many_unsynced_versions_of_page_are_bounded_and_keep_both_ends() -> None:
    disk = SimDisk()
    file = written(disk, "a", b"0000")
    for n in range(1, 1000):
        disk.pwrite(file, b"%04d" % n, 0)
    versions = disk.contents("a").versions[0]
    assert len(versions) <= 64
    assert (versions[0][:4], versions[-1][:4]) == (b"0000", b"0999")


# -- names


def test_new_name_survives_only_after_its_directory_was_synced() -> None:
    disk = SimDisk()
    disk.fdatasync(disk.create("a"))
    assert outcomes(disk, names) == {(), ("a",)}
    assert names(disk.crash(Lose())) == ()
    disk.sync_dir()
    assert outcomes(disk, names) == {("a",)}


def test_removed_name_may_come_back_until_directory_was_synced() -> None:
    disk = SimDisk()
    written(disk, "a", b"abc")
    disk.unlink("a")
    assert outcomes(disk, read("a")) == {None, b"abc"}
    disk.sync_dir()
    assert outcomes(disk, names) == {()}


def test_rename_happens_wholly_or_not_at_all() -> None:
    disk = SimDisk()
    written(disk, "a", b"old")
    written(disk, "a.tmp", b"new")
    disk.rename("a.tmp", "a")

    def look(disk: SimDisk) -> tuple[tuple[str, bytes], ...]:
        return tuple((name, disk.read_small(name, 3)) for name in disk.files())

    assert outcomes(disk, look) == {(("a", b"old"), ("a.tmp", b"new")), (("a", b"new"),)}
    disk.sync_dir()
    assert outcomes(disk, look) == {(("a", b"new"),)}


def test_rename_does_not_sync_what_it_names() -> None:
    disk = SimDisk()
    written(disk, "a", b"old")
    file = disk.create("a.tmp")
    disk.pwrite(file, b"new", 0)
    disk.rename("a.tmp", "a")
    disk.sync_dir()
    assert outcomes(disk, read("a")) == {b"", b"new", bytes(3)}


def test_changes_that_rest_on_lost_one_are_lost_with_it() -> None:
    disk = SimDisk()
    disk.create("a")
    disk.rename("a", "b")
    disk.rename("b", "c")
    assert outcomes(disk, names) == {(), ("a",), ("b",), ("c",)}


def test_removal_never_hits_another_file_than_one_that_was_removed() -> None:
    disk = SimDisk()
    written(disk, "a", b"old")
    written(disk, "a.tmp", b"new")
    disk.rename("a.tmp", "a")
    disk.unlink("a")
    assert outcomes(disk, names) == {("a", "a.tmp"), ("a",), ()}


def test_new_file_does_not_overtake_removal_of_its_namesake() -> None:
    class OnlyTheCreation(Choice):
        def names(self, directory: SimDirectory, pending: list[NameChange]) -> list[bool]:
            return [False, True]

    disk = SimDisk()
    written(disk, "a", b"old")
    disk.unlink("a")
    disk.create("a")
    assert read("a")(disk.crash(OnlyTheCreation())) == b"old"
    assert outcomes(disk, read("a")) == {b"old", None, b""}


def test_independent_changes_of_names_may_overtake_each_other() -> None:
    disk = SimDisk()
    written(disk, "old", b"")
    disk.create("new")
    disk.unlink("old")
    assert outcomes(disk, names) == {("old",), (), ("new", "old"), ("new",)}


def test_directory_that_was_not_synced_takes_its_files_along() -> None:
    disk = SimDisk()
    disk.mkdir("d")
    below = disk.subdir("d")
    written(below, "x", b"abc")
    assert {tuple(disk.crash(seed).directories()) for seed in SEEDS} == {(), ("d",)}
    disk.sync_dir()
    for seed in SEEDS:
        assert disk.crash(seed).subdir("d").read_small("x", 3) == b"abc"


def test_syncing_directory_syncs_no_names_below_or_above_it() -> None:
    disk = SimDisk()
    disk.mkdir("d")
    disk.sync_dir()
    below = disk.subdir("d")
    below.create("x")
    disk.sync_dir()
    assert outcomes(disk, lambda d: names(d.subdir("d"))) == {(), ("x",)}
    disk.create("top")
    below.sync_dir()
    assert outcomes(disk, names) == {(), ("top",)}


# -- cutting


def test_cut_leaves_disk_it_was_made_of_alone() -> None:
    disk = SimDisk()
    file = written(disk, "a", b"old")
    disk.pwrite(file, b"new", 0)
    after = disk.crash(Lose())
    again = after.open("a")
    after.pwrite(again, b"xxx", 0)
    after.fdatasync(again)
    after.unlink("a")
    assert disk.read_small("a", 3) == b"new"
    assert names(disk) == ("a",)
    disk.pwrite(file, b"yyy", 0)
    assert after.pread(again, 3, 0) == b"xxx"


def test_bytes_left_by_power_cut_are_durable() -> None:
    disk = SimDisk()
    file = written(disk, "a", b"old")
    disk.pwrite(file, b"new" * 3000, 0)
    disk.create("b")
    for seed in SEEDS:
        after = disk.crash(seed)
        twice = after.crash(Lose())
        assert names(twice) == names(after)
        assert read("a")(twice) == read("a")(after)


@given(seed=st.integers(0, 1 << 32))
def test_one_seed_gives_one_outcome(seed: int) -> None:
    disk = SimDisk()
    for n in range(4):
        disk.pwrite(disk.create(f"{n}"), b"x" * 3000, n * 1000)
    one, other = disk.crash(seed), disk.crash(seed)
    assert names(one) == names(other)
    assert all(one.read_small(n, 9000) == other.read_small(n, 9000) for n in names(one))


def test_files_open_before_cut_mean_nothing_after_it() -> None:
    disk = SimDisk()
    file = written(disk, "a", b"abc")
    with pytest.raises(StoreError) as caught:
        disk.crash(0).pread(file, 3, 0)
    assert caught.value.errno == errno.EBADF


def test_cut_frees_lock() -> None:
    disk = SimDisk()
    disk.lock()
    disk.crash(0).lock()


# -- failing calls


def run(disk: SimDisk) -> None:
    """Seven calls of different kinds."""
    file = disk.create("a")
    disk.pwrite(file, b"abcd", 0)
    disk.fdatasync(file)
    disk.sync_dir()
    disk.rename("a", "b")
    disk.preallocate(file, 100)
    disk.pread(file, 1, 0)


@pytest.mark.parametrize(
    ("fault", "calls"),
    [
        (DiskFault.EIO, 7),
        (DiskFault.ENOSPC, 3),
        (DiskFault.SHORT_WRITE, 2),
        (DiskFault.SYNC_ERROR, 2),
    ],
)
def test_each_call_fault_can_strike_fails_once_in_turn(fault: DiskFault, calls: int) -> None:
    failed = []
    for n in range(1, calls + 1):
        disk = SimDisk()
        disk.fail_nth(n, fault)
        with pytest.raises(StoreError) as caught:
            run(disk)
        failed.append(caught.value.call)
        assert disk.faults_struck == 1
    assert len(set(failed)) == calls
    disk = SimDisk()
    disk.fail_nth(calls + 1, fault)
    run(disk)
    assert disk.faults_struck == 0


def test_fault_strikes_once_or_until_disk_is_healed() -> None:
    disk = SimDisk()
    file = disk.create("a")
    disk.fail_nth(2, DiskFault.ENOSPC)
    disk.pwrite(file, b"1", 0)
    with pytest.raises(DiskFull):
        disk.pwrite(file, b"2", 0)
    disk.pwrite(file, b"3", 0)
    disk.fail_nth(1, DiskFault.ENOSPC, for_ever=True)
    for _ in range(3):
        with pytest.raises(DiskFull):
            disk.pwrite(file, b"4", 0)
    disk.heal()
    disk.pwrite(file, b"5", 0)
    assert disk.read_small("a", 9) == b"5"


def test_short_write_leaves_its_first_half() -> None:
    disk = SimDisk()
    file = disk.create("a")
    disk.fail_nth(1, DiskFault.SHORT_WRITE)
    with pytest.raises(DiskFull):
        disk.pwrite(file, b"abcd", 0)
    assert disk.read_small("a", 9) == b"ab"


def test_preallocation_that_fails_leaves_size_as_it_was() -> None:
    disk = SimDisk()
    file = written(disk, "a", b"abc")
    disk.fail_nth(1, DiskFault.SHORT_WRITE)
    with pytest.raises(DiskFull):
        disk.preallocate(file, 100)
    assert disk.size(file) == 3


def test_writes_of_failed_sync_stay_in_doubt() -> None:
    disk = SimDisk()
    file = written(disk, "a", b"old")
    disk.pwrite(file, b"new", 0)
    disk.fail_nth(1, DiskFault.SYNC_ERROR)
    with pytest.raises(SyncFailed):
        disk.fdatasync(file)
    assert file.failed
    for handle in (file, disk.open("a")):
        with pytest.raises(SyncFailed):
            disk.fdatasync(handle)
    assert outcomes(disk, read("a")) == {b"old", b"new"}


def test_names_failed_sync_covered_stay_in_doubt_for_ever() -> None:
    disk = SimDisk()
    disk.create("a")
    disk.fail_nth(1, DiskFault.EIO)
    with pytest.raises(SyncFailed):
        disk.sync_dir()
    with pytest.raises(SyncFailed):
        disk.sync_dir()
    assert outcomes(disk, names) == {(), ("a",)}


def test_full_disk_takes_what_fits_and_continues_when_space_is_freed() -> None:
    disk = SimDisk()
    disk.set_capacity(100)
    other = written(disk, "b", b"y" * 60)
    file = disk.create("a")
    with pytest.raises(DiskFull):
        disk.pwrite(file, b"x" * 50, 0)
    assert disk.size(file) == 40
    assert disk.free_bytes() == 0
    disk.pwrite(other, b"z" * 60, 0)
    disk.unlink("b")
    disk.pwrite(file, b"x" * 50, 0)
    assert disk.free_bytes() == 50
