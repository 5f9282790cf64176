"""What a file of any disk does."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from penstock.store.errors import NotFound, StoreError

if TYPE_CHECKING:
    from penstock.store.io.disk import Disk


def test_written_bytes_are_read_back(disk: Disk) -> None:
    file = disk.create("a")
    disk.pwrite(file, b"hello", 0)
    disk.pwrite(file, bytearray(b"J"), 0)
    disk.pwrite(file, memoryview(b"world")[1:], 5)
    assert disk.pread(file, 9, 0) == b"Jelloorld"
    assert disk.pread(file, 3, 2) == b"llo"
    assert disk.size(file) == 9


def test_read_stops_where_file_ends(disk: Disk) -> None:
    file = disk.create("a")
    disk.pwrite(file, b"abc", 0)
    assert disk.pread(file, 100, 1) == b"bc"
    assert disk.pread(file, 1, 3) == b""
    assert disk.pread(file, 1, 1 << 40) == b""
    assert disk.pread(file, 0, 0) == b""


def test_read_of_absurd_length_returns_whole_file(disk: Disk) -> None:
    file = disk.create("a")
    disk.pwrite(file, b"abc", 0)
    assert disk.pread(file, 1 << 50, 0) == b"abc"
    assert disk.pread(file, 1 << 50, 1 << 50) == b""


@pytest.mark.parametrize("size", [4095, 4096, 4097, 3 * 1024 * 1024 + 1])
def test_writes_of_any_size_may_cross_pages(disk: Disk, size: int) -> None:
    data = bytes(i * 7 % 251 for i in range(1000)) * (size // 1000 + 1)
    file = disk.create("a")
    disk.pwrite(file, data[:size], 123)
    assert disk.pread(file, size, 123) == data[:size]
    assert disk.pread(file, 123, 0) == bytes(123)


def test_empty_write_changes_nothing(disk: Disk) -> None:
    file = disk.create("a")
    disk.pwrite(file, b"", 100)
    assert disk.size(file) == 0


def test_hole_reads_as_zeros(disk: Disk) -> None:
    file = disk.create("a")
    disk.pwrite(file, b"x", 10_000)
    assert disk.pread(file, 10_001, 0) == bytes(10_000) + b"x"


def test_truncated_bytes_do_not_return_when_file_grows(disk: Disk) -> None:
    file = disk.create("a")
    disk.pwrite(file, b"x" * 10_000, 0)
    disk.truncate(file, 5000)
    disk.truncate(file, 9000)
    assert disk.pread(file, 20_000, 0) == b"x" * 5000 + bytes(4000)


def test_preallocation_fills_with_zeros_and_keeps_contents(disk: Disk) -> None:
    file = disk.create("a")
    disk.pwrite(file, b"abc", 0)
    disk.preallocate(file, 700_000)
    assert disk.size(file) == 700_000
    assert disk.pread(file, 700_000, 0) == b"abc" + bytes(699_997)
    disk.preallocate(file, 10)
    assert disk.size(file) == 700_000


def test_file_keeps_its_contents_over_close_and_open(disk: Disk) -> None:
    file = disk.create("a")
    disk.pwrite(file, b"abc", 0)
    disk.fdatasync(file)
    disk.close_file(file)
    disk.close_file(file)
    again = disk.open("a")
    assert disk.pread(again, 3, 0) == b"abc"


def test_create_refuses_name_that_is_taken(disk: Disk) -> None:
    disk.create("a")
    with pytest.raises(StoreError) as caught:
        disk.create("a")
    assert caught.value.errno == errno.EEXIST


def test_open_fails_on_missing_file_unless_it_may_create_it(disk: Disk) -> None:
    with pytest.raises(NotFound):
        disk.open("a")
    file = disk.open("a", create=True)
    disk.pwrite(file, b"abc", 0)
    assert disk.size(disk.open("a", create=True)) == 3


def test_file_opened_for_reading_refuses_writes(disk: Disk) -> None:
    disk.create("a")
    file = disk.open("a", writable=False)
    with pytest.raises(StoreError) as caught:
        disk.pwrite(file, b"x", 0)
    assert caught.value.errno == errno.EBADF
    with pytest.raises(StoreError) as caught:
        disk.truncate(file, 0)
    assert caught.value.errno == errno.EINVAL
    disk.fdatasync(file)


def test_closed_file_raises_on_every_call(disk: Disk) -> None:
    file = disk.create("a")
    disk.close_file(file)
    calls = [
        lambda: disk.pread(file, 1, 0),
        lambda: disk.pwrite(file, b"x", 0),
        lambda: disk.fdatasync(file),
        lambda: disk.truncate(file, 0),
        lambda: disk.preallocate(file, 10),
        lambda: disk.size(file),
    ]
    for call in calls:
        with pytest.raises(StoreError) as caught:
            call()
        assert caught.value.errno == errno.EBADF
    assert file.fileno() == -1
    disk.fdatasync(disk.open("a"))


def test_negative_offsets_are_refused(disk: Disk) -> None:
    file = disk.create("a")
    calls = [
        lambda: disk.pread(file, 1, -1),
        lambda: disk.pread(file, -1, 0),
        lambda: disk.pwrite(file, b"x", -1),
        lambda: disk.truncate(file, -1),
    ]
    for call in calls:
        with pytest.raises(StoreError) as caught:
            call()
        assert caught.value.errno == errno.EINVAL


def test_small_file_is_read_whole_up_to_its_bound(disk: Disk) -> None:
    file = disk.create("a")
    disk.pwrite(file, b"abc", 0)
    assert disk.read_small("a", 3) == b"abc"
    with pytest.raises(StoreError) as caught:
        disk.read_small("a", 2)
    assert caught.value.errno == errno.EFBIG
    with pytest.raises(NotFound):
        disk.read_small("b", 2)


def test_open_file_stays_readable_after_unlink(disk: Disk) -> None:
    file = disk.create("a")
    disk.pwrite(file, b"abc", 0)
    disk.unlink("a")
    assert disk.pread(file, 3, 0) == b"abc"
    disk.fdatasync(file)


def test_errors_name_call_and_path(disk: Disk) -> None:
    with pytest.raises(NotFound) as caught:
        disk.open("gone")
    error = caught.value
    assert (error.call, error.errno) == ("open", errno.ENOENT)
    assert error.path == f"{disk.path}/gone"
    assert "gone" in str(error)
