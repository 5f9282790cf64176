"""Few descriptors for many open files: what is parked is as good as open."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from penstock.store.errors import NotFound, StoreError, SyncFailed
from penstock.store.io.directories import root_at
from penstock.store.io.disk import RealDisk
from penstock.store.io.open_files import OpenFiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILES = 50
IDLE_MAX = 3


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    return RealDisk(root_at(str(tmp_path), create=False), OpenFiles(IDLE_MAX))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_many_open_files_need_few_descriptors_and_are_all_there(disk: RealDisk) -> None:
    before = descriptors()
    below = [disk]
    for name in "abc":
        below[-1].mkdir(name)
        below.append(below[-1].subdir(name))
    files = [below[number % 4].create(f"f{number}") for number in range(FILES)]
    for number, file in enumerate(files):
        below[number % 4].pwrite(file, b"%d" % number, 0)
    assert descriptors() <= before + IDLE_MAX
    for number, file in enumerate(files):
        at = below[number % 4]
        at.fdatasync(file)
        assert at.pread(file, 10, 0) == b"%d" % number
        assert at.size(file) == len(str(number))
        at.close_file(file)
        with pytest.raises(StoreError):
            at.pread(file, 1, 0)
    assert descriptors() == before


def park_all(disk: RealDisk) -> None:
    for number in range(IDLE_MAX):
        disk.create(f"other{number}")


def test_parked_file_was_synced_before(disk: RealDisk, syncs: list[int]) -> None:
    file = disk.create("a")
    disk.pwrite(file, b"x", 0)
    park_all(disk)
    assert len(syncs) == 1
    disk.pread(file, 1, 0)
    disk.fdatasync(file)
    for number in range(IDLE_MAX):
        disk.open(f"other{number}")
    assert len(syncs) == 2, "what is synced is parked as it is"


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    made: list[int] = []
    real: Callable[[int], None] = os.fdatasync

    def fdatasync(fd: int) -> None:
        made.append(fd)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    return made


def test_sync_that_fails_while_parking_is_final(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.create("a")
    disk.pwrite(file, b"x", 0)

    def fails(fd: int) -> None:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fails)
        park_all(disk)
    with pytest.raises(SyncFailed):
        disk.fdatasync(file)
    with pytest.raises(SyncFailed):
        disk.fdatasync(disk.open("a"))


def test_parked_file_is_found_again_in_directory_that_was_renamed(disk: RealDisk) -> None:
    disk.mkdir("old")
    below = disk.subdir("old")
    file = below.create("a")
    below.pwrite(file, b"x", 0)
    disk.rename("old", "new")
    park_all(disk)
    assert below.path == f"{disk.path}/new"
    assert below.pread(file, 1, 0) == b"x"
    below.sync_dir()


def test_nothing_else_is_taken_for_parked_file(disk: RealDisk) -> None:
    file = disk.create("a")
    park_all(disk)
    disk.create("b")
    disk.rename("b", "a")
    with pytest.raises(StoreError) as caught:
        disk.pread(file, 1, 0)
    assert caught.value.errno == errno.ESTALE


def test_nothing_else_is_taken_for_directory(disk: RealDisk, tmp_path: Path) -> None:
    disk.mkdir("a")
    below = disk.subdir("a")
    (tmp_path / "a").rmdir()
    with pytest.raises(NotFound):
        below.files()
    (tmp_path / "kept").mkdir()
    (tmp_path / "a").symlink_to(tmp_path / "kept")
    with pytest.raises(StoreError):
        below.files()


def test_threads_use_files_of_their_own_without_harm(disk: RealDisk) -> None:
    def work(thread: int) -> bool:
        files = [disk.create(f"{thread}-{number}") for number in range(4)]
        for turn in range(100):
            for file in files:
                disk.pwrite(file, b"%d %d" % (thread, turn), 0)
                if disk.pread(file, 20, 0) != b"%d %d" % (thread, turn):
                    return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(4)))


def test_unchanged_store_needs_no_sync(disk: RealDisk, syncs: list[int]) -> None:
    file = disk.create("a")
    disk.pwrite(file, b"x", 0)
    disk.close_file(file)
    again = disk.open("a")
    disk.fdatasync(again)
    assert len(syncs) == 1, "before, everything does"
    disk.sync_file_system()
    disk.fdatasync(again)
    assert len(syncs) == 1
    disk.pwrite(again, b"y", 0)
    disk.fdatasync(again)
    assert len(syncs) == 2


def test_changes_of_one_handle_are_synced_by_another(disk: RealDisk, syncs: list[int]) -> None:
    disk.create("a")
    disk.sync_file_system()
    one, other = disk.open("a"), disk.open("a")
    for _ in range(2):
        for writer, syncer in ((one, other), (other, one), (one, one)):
            disk.pwrite(writer, b"x", 0)
            before = len(syncs)
            disk.fdatasync(syncer)
            assert len(syncs) == before + 1


def test_names_that_changed_are_synced_and_others_not(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    disk.sync_file_system()
    disk.sync_dir()
    assert not synced
    changes: list[Callable[[], object]] = [
        lambda: disk.create("a"),
        lambda: disk.rename("a", "b"),
        lambda: disk.unlink("b"),
        lambda: disk.mkdir("c"),
        lambda: disk.rmdir("c"),
    ]
    for number, change in enumerate(changes, 1):
        change()
        disk.sync_dir()
        disk.sync_dir()
        assert len(synced) == number
