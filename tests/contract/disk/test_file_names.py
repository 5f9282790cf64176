"""What the names of any disk do."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from penstock.store.errors import InvalidName, Locked, NotFound, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.store.io.disk import Disk

BAD_NAMES = ["", ".", "..", "a/b", "/a", "../a", "a\\b", "a\0b", "x" * 256, "é" * 128]


def refusal(call: Callable[[], object]) -> int:
    with pytest.raises(StoreError) as caught:
        call()
    return caught.value.errno


@pytest.mark.parametrize("name", BAD_NAMES)
def test_only_plain_names_are_accepted(disk: Disk, name: str) -> None:
    disk.create("a")
    calls = [
        lambda: disk.open(name, create=True),
        lambda: disk.create(name),
        lambda: disk.rename("a", name),
        lambda: disk.rename(name, "b"),
        lambda: disk.unlink(name),
        lambda: disk.mkdir(name),
        lambda: disk.rmdir(name),
        lambda: disk.subdir(name),
        lambda: disk.read_small(name, 10),
    ]
    for call in calls:
        with pytest.raises(InvalidName):
            call()
    assert disk.files() == ["a"]
    assert disk.directories() == []


def test_odd_but_plain_names_work(disk: Disk) -> None:
    names = sorted(["...", "a b", "-rf", "x" * 255, "é" * 127, "$JS", "*", ">"])
    for name in names:
        disk.create(name)
    assert disk.files() == names


def test_lists_are_sorted_and_distinguish_files_from_directories(disk: Disk) -> None:
    for name in ("2.blk", "10.blk", "1.blk"):
        disk.create(name)
    disk.mkdir("obs")
    assert disk.files() == ["1.blk", "10.blk", "2.blk"]
    assert disk.directories() == ["obs"]


def test_rename_replaces_file_and_keeps_open_handles(disk: Disk) -> None:
    new, old = disk.create("new"), disk.create("old")
    disk.pwrite(new, b"new", 0)
    disk.pwrite(old, b"old", 0)
    disk.rename("new", "old")
    assert disk.files() == ["old"]
    assert disk.read_small("old", 10) == b"new"
    assert disk.pread(old, 3, 0) == b"old"
    disk.pwrite(new, b"N", 0)
    assert disk.read_small("old", 10) == b"New"


def test_rename_to_itself_changes_nothing(disk: Disk) -> None:
    disk.pwrite(disk.create("a"), b"abc", 0)
    disk.rename("a", "a")
    assert disk.read_small("a", 10) == b"abc"


def test_rename_refuses_what_would_lose_directory(disk: Disk) -> None:
    disk.create("file")
    disk.mkdir("empty")
    disk.mkdir("full")
    disk.subdir("full").create("x")
    assert refusal(lambda: disk.rename("file", "empty")) == errno.EISDIR
    assert refusal(lambda: disk.rename("empty", "file")) == errno.ENOTDIR
    assert refusal(lambda: disk.rename("empty", "full")) == errno.ENOTEMPTY
    assert refusal(lambda: disk.rename("gone", "file")) == errno.ENOENT
    disk.rename("full", "empty")
    assert disk.directories() == ["empty"]
    assert disk.subdir("empty").files() == ["x"]


def test_unlink_and_rmdir_remove_their_own_kind_only(disk: Disk) -> None:
    disk.create("file")
    disk.mkdir("directory")
    disk.subdir("directory").create("x")
    assert refusal(lambda: disk.unlink("directory")) == errno.EISDIR
    assert refusal(lambda: disk.rmdir("file")) == errno.ENOTDIR
    assert refusal(lambda: disk.rmdir("directory")) == errno.ENOTEMPTY
    assert refusal(lambda: disk.unlink("gone")) == errno.ENOENT
    assert refusal(lambda: disk.rmdir("gone")) == errno.ENOENT
    disk.subdir("directory").unlink("x")
    disk.rmdir("directory")
    disk.unlink("file")
    assert (disk.files(), disk.directories()) == ([], [])


def test_subdirectory_is_disk(disk: Disk) -> None:
    disk.mkdir("a")
    below = disk.subdir("a")
    file = below.create("x")
    below.pwrite(file, b"abc", 0)
    below.fdatasync(file)
    below.sync_dir()
    disk.sync_dir()
    assert disk.subdir("a").read_small("x", 3) == b"abc"
    assert disk.files() == []
    assert below.path == f"{disk.path}/a"


def test_directories_are_not_opened_as_files_nor_files_as_directories(disk: Disk) -> None:
    disk.create("file")
    disk.mkdir("directory")
    assert refusal(lambda: disk.open("directory")) == errno.EISDIR
    assert refusal(lambda: disk.open("directory", writable=False)) == errno.EISDIR
    assert refusal(lambda: disk.subdir("file")) == errno.ENOTDIR
    assert refusal(lambda: disk.mkdir("file")) == errno.EEXIST
    assert refusal(lambda: disk.mkdir("directory")) == errno.EEXIST
    with pytest.raises(NotFound):
        disk.subdir("gone")


def test_one_owner_at_time_holds_directory(disk: Disk) -> None:
    disk.mkdir("a")
    one, other = disk.subdir("a"), disk.subdir("a")
    one.lock()
    one.lock()
    with pytest.raises(Locked):
        other.lock()
    one.close()
    other.lock()
    other.close()


def test_closed_disk_raises_on_every_call(disk: Disk) -> None:
    disk.mkdir("a")
    below = disk.subdir("a")
    file = below.create("x")
    below.close()
    below.close()
    calls = [
        lambda: below.open("x"),
        lambda: below.create("y"),
        lambda: below.rename("x", "y"),
        lambda: below.unlink("x"),
        lambda: below.mkdir("d"),
        lambda: below.rmdir("d"),
        lambda: below.subdir("d"),
        lambda: below.sync_dir(),
        lambda: below.files(),
        lambda: below.directories(),
        lambda: below.lock(),
    ]
    for call in calls:
        assert refusal(call) == errno.EBADF
    below.pwrite(file, b"open files go on", 0)
    below.fdatasync(file)
    disk.subdir("a").sync_dir()


def test_free_space_is_positive(disk: Disk) -> None:
    assert disk.free_bytes() > 0
