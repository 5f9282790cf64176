"""The real disk: what the machine could do to it, and what it must not let through."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from typing import TYPE_CHECKING

import pytest

from penstock.store.errors import CorruptRecord, DiskFull, NotFound, StoreError, SyncFailed
from penstock.store.io.disk import RealDisk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def disk(root: Path) -> Iterator[RealDisk]:
    made = RealDisk.at(root, create=True)
    yield made
    made.close()


def failing(code: int) -> object:
    def call(*args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    return call


# -- who may read, and what is followed


def test_files_and_directories_are_for_owner_only(disk: RealDisk, root: Path) -> None:
    disk.create("a")
    disk.open("b", create=True)
    disk.mkdir("d")
    assert [stat.S_IMODE((root / n).stat().st_mode) for n in "abd"] == [0o600, 0o600, 0o700]
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_descriptors_are_not_inherited_by_other_programs(disk: RealDisk) -> None:
    file = disk.create("a")
    assert fcntl.fcntl(file.fileno(), fcntl.F_GETFD) & fcntl.FD_CLOEXEC


def test_links_lead_nowhere(disk: RealDisk, root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (tmp_path / "elsewhere").mkdir()
    (root / "file").symlink_to(secret)
    (root / "directory").symlink_to(tmp_path / "elsewhere")
    for call in (lambda: disk.open("file"), lambda: disk.open("file", create=True)):
        with pytest.raises(StoreError) as caught:
            call()
        assert caught.value.errno == errno.ELOOP
    with pytest.raises(StoreError):
        disk.read_small("file", 100)
    with pytest.raises(StoreError):
        disk.subdir("directory")
    assert (disk.files(), disk.directories()) == ([], [])
    assert secret.read_bytes() == b"secret"


def test_pipe_in_place_of_file_is_refused_and_does_not_block(disk: RealDisk, root: Path) -> None:
    os.mkfifo(root / "pipe")
    for writable in (False, True):
        with pytest.raises(StoreError) as caught:
            disk.open("pipe", writable=writable)
        assert caught.value.errno == errno.EINVAL
    assert disk.files() == []


def test_name_no_disk_could_have_made_is_not_listed(disk: RealDisk, root: Path) -> None:
    (root / "a\\b").touch()
    (root / "a").touch()
    assert disk.files() == ["a"]


def test_directory_stays_the_same_when_its_path_is_taken_by_another(
    disk: RealDisk, root: Path
) -> None:
    disk.create("mine")
    root.rename(root.parent / "moved")
    root.mkdir()
    assert disk.files() == ["mine"]


def test_root_is_made_with_its_parents_and_only_when_asked(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c"
    with pytest.raises(NotFound):
        RealDisk.at(deep)
    RealDisk.at(deep, create=True).close()
    RealDisk.at(deep, create=True).close()
    assert deep.is_dir()
    with pytest.raises(StoreError):
        RealDisk.at(_file(tmp_path), create=True)


def _file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.touch()
    return path


def test_every_new_root_directory_is_synced_into_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def watching(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", watching)
    RealDisk.at(tmp_path / "a" / "b", create=True).close()
    assert synced == [str(tmp_path), str(tmp_path / "a")]


def test_closing_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    disk = RealDisk.at(tmp_path)
    file = disk.create("a")
    disk.mkdir("d")
    below = disk.subdir("d")
    disk.read_small("a", 10)
    disk.files()
    with pytest.raises(StoreError):
        disk.open("d")
    disk.close_file(file)
    below.close()
    disk.close()
    assert len(os.listdir("/proc/self/fd")) == before


# -- calls that do less than asked


def test_short_writes_and_reads_are_completed(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite, pread = os.pwrite, os.pread
    file = disk.create("a")
    data = os.urandom(1000)
    monkeypatch.setattr(os, "pwrite", lambda fd, d, at: pwrite(fd, bytes(d)[:7], at))
    disk.pwrite(file, data, 5)
    disk.pwrite(file, memoryview(data), 2000)
    monkeypatch.setattr(os, "pread", lambda fd, n, at: pread(fd, min(n, 9), at))
    assert disk.pread(file, 1000, 5) == data
    assert disk.pread(file, 5000, 2000) == data


def test_write_that_gets_nowhere_is_error_not_loop(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.create("a")
    monkeypatch.setattr(os, "pwrite", lambda fd, d, at: 0)
    with pytest.raises(StoreError) as caught:
        disk.pwrite(file, b"abc", 0)
    assert caught.value.errno == errno.EIO


def test_absurd_length_is_never_allocated(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    pread = os.pread

    def watching(fd: int, n: int, at: int) -> bytes:
        asked.append(n)
        return pread(fd, n, at)

    file = disk.create("a")
    disk.pwrite(file, b"abc", 0)
    monkeypatch.setattr(os, "pread", watching)
    assert disk.pread(file, 1 << 45, 1) == b"bc"
    assert max(asked) <= 3


# -- a full disk


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_is_distinguished_from_other_errors(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    file = disk.create("a")
    monkeypatch.setattr(os, "pwrite", failing(code))
    with pytest.raises(DiskFull) as caught:
        disk.pwrite(file, b"abc", 0)
    assert (caught.value.call, caught.value.errno) == ("pwrite", code)
    assert isinstance(caught.value.__cause__, OSError)


def test_preallocation_that_does_not_fit_gives_back_what_it_took(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    file = disk.create("a")
    disk.pwrite(file, b"abc", 0)

    def fills_up(fd: int, data: bytes, at: int) -> int:
        if at > 300_000:
            raise OSError(errno.ENOSPC, "full")
        return pwrite(fd, data, at)

    monkeypatch.setattr(os, "pwrite", fills_up)
    with pytest.raises(DiskFull):
        disk.preallocate(file, 1_000_000)
    assert disk.size(file) == 3
    assert disk.pread(file, 10, 0) == b"abc"


# -- a failed sync


@pytest.fixture
def failed(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> RealDisk:
    """A disk on which the sync of file `a` has failed, and would succeed now."""
    file = disk.create("a")
    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", failing(errno.ENOSPC))
        with pytest.raises(SyncFailed) as caught:
            disk.fdatasync(file)
    assert (caught.value.call, caught.value.errno) == ("fdatasync", errno.ENOSPC)
    assert not isinstance(caught.value, DiskFull)
    assert file.failed
    with pytest.raises(SyncFailed):
        disk.fdatasync(file)
    disk.close_file(file)
    return disk


def test_no_later_sync_of_file_is_believed(failed: RealDisk) -> None:
    again = failed.open("a")
    assert again.failed
    with pytest.raises(SyncFailed):
        failed.fdatasync(again)


def test_failed_file_stays_failed_under_another_name(failed: RealDisk) -> None:
    failed.rename("a", "b")
    with pytest.raises(SyncFailed):
        failed.fdatasync(failed.open("b"))


def test_handle_opened_before_failure_is_not_believed_either(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = disk.create("a"), disk.open("a")
    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", failing(errno.EIO))
        with pytest.raises(SyncFailed):
            disk.fdatasync(one)
    with pytest.raises(SyncFailed):
        disk.fdatasync(other)
    assert other.failed


def test_failed_file_can_be_read_and_removed_and_its_successor_syncs(failed: RealDisk) -> None:
    assert failed.read_small("a", 10) == b""
    failed.unlink("a")
    for n in range(8):  # file systems like to hand out the same inode again
        failed.fdatasync(failed.create(f"new {n}"))


def test_rename_that_fails_forgets_no_failure(failed: RealDisk) -> None:
    with pytest.raises(NotFound):
        failed.rename("gone", "a")
    with pytest.raises(SyncFailed):
        failed.fdatasync(failed.open("a"))


def test_other_files_are_not_touched_by_failure(failed: RealDisk) -> None:
    failed.fdatasync(failed.create("b"))
    failed.sync_dir()


def test_failed_sync_of_directory_is_final_also_when_it_is_opened_again(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.mkdir("d")
    below = disk.subdir("d")
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", failing(errno.EIO))
        with pytest.raises(SyncFailed):
            below.sync_dir()
    for again in (below, disk.subdir("d")):
        with pytest.raises(SyncFailed):
            again.sync_dir()
    disk.sync_dir()


# -- errors


def test_corrupt_record_reports_where_and_why() -> None:
    error = CorruptRecord("s/1.blk", 4096, "hash differs")
    assert isinstance(error, StoreError)
    assert (error.path, error.offset, error.reason) == ("s/1.blk", 4096, "hash differs")
    assert str(error) == "read 's/1.blk': corrupt at byte 4096: hash differs"
