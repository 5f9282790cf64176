"""The only file calls of the storage: one directory, plain names in it, files written by offset.

A `Disk` is a directory. Names are single names, never paths, and links are not followed, so
nothing outside the root can be reached. Files are 0600, directories 0700. What is written is
durable once `fdatasync` of the file has returned; a name (created, renamed, removed) once
`sync_dir` of its directory has. A sync that failed marks its file or directory for ever: the
kernel may have dropped the data and would report success the next time.

No buffering, no retries, no threads; any call may be made from a thread that owns the file.
`penstock.testing.simdisk.SimDisk` is the twin in memory.
"""

from __future__ import annotations

import errno as codes
import fcntl
import os
import stat
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeAlias

from penstock.store.errors import InvalidName, StoreError, SyncFailed, failure

if TYPE_CHECKING:
    from collections.abc import Callable

Bytes: TypeAlias = bytes | bytearray | memoryview
Inode: TypeAlias = tuple[int, int]
"""Device and number."""

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
NAME_BYTES_MAX: Final = 255
ZEROS_BYTES: Final = 256 * 1024
"""How much `preallocate` writes at once."""
TRUSTED_READ_BYTES: Final = 1024 * 1024
"""A longer read is first cut to the size of the file: its length may come from damaged data."""

_FILE_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a fifo must not block us
_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CLOSED: Final = -1


class File:
    """An open file of a disk. `failed`: a sync of it failed, so none will be believed again."""

    __slots__ = ("_fd", "failed", "inode", "name")

    def __init__(self, name: str, fd: int, inode: int) -> None:
        self.name = name
        self.inode = inode
        self.failed = False
        self._fd = fd

    def fileno(self) -> int:
        """The descriptor, or -1 once closed: calls with it fail with EBADF."""
        return self._fd

    def detach(self) -> int:
        """Give up the descriptor; for the disk that closes it."""
        fd, self._fd = self._fd, _CLOSED
        return fd


class Disk(Protocol):
    """A directory and the files in it. Every failed call raises `StoreError`."""

    @property
    def path(self) -> str:
        """What to call this directory in messages."""
        ...

    def open(self, name: str, *, create: bool = False, writable: bool = True) -> File:
        """Open a regular file; `create` makes it if it is not there."""
        ...

    def create(self, name: str) -> File:
        """Make a new file; an existing one is an error (EEXIST)."""
        ...

    def close_file(self, file: File) -> None:
        """Close it. Syncs nothing. Closing twice is harmless."""
        ...

    def pread(self, file: File, n: int, offset: int) -> bytes:
        """`n` bytes from `offset`; fewer only where the file ends."""
        ...

    def pwrite(self, file: File, data: Bytes, offset: int) -> None:
        """Write all of `data`. After an error any part of it may have been written."""
        ...

    def fdatasync(self, file: File) -> None:
        """Make contents and size durable. A failure is final: `SyncFailed`, now and ever."""
        ...

    def preallocate(self, file: File, size: int) -> None:
        """Fill with zeros from the end up to `size`; on failure the file has its old size.

        Overwriting blocks that exist spares each later sync the journal of a growing file, once
        the zeros themselves have been synced.
        """
        ...

    def truncate(self, file: File, size: int) -> None:
        """Cut the file, or grow it with zeros."""
        ...

    def size(self, file: File) -> int:
        """Bytes in the file now."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name here; a file of that name is replaced."""
        ...

    def unlink(self, name: str) -> None:
        """Remove a file."""
        ...

    def mkdir(self, name: str) -> None:
        """Make a directory; durable after `sync_dir` of this one."""
        ...

    def rmdir(self, name: str) -> None:
        """Remove an empty directory."""
        ...

    def subdir(self, name: str) -> Disk:
        """The disk of a directory that exists here."""
        ...

    def sync_dir(self) -> None:
        """Make the names in this directory durable, as `fdatasync` does contents."""
        ...

    def files(self) -> list[str]:
        """Names of the regular files, sorted. Names no disk could have made are left out."""
        ...

    def directories(self) -> list[str]:
        """Names of the directories, sorted."""
        ...

    def read_small(self, name: str, bytes_max: int) -> bytes:
        """The whole file; one larger than the bound is an error (EFBIG) and is not read."""
        ...

    def free_bytes(self) -> int:
        """Space left for us on the file system."""
        ...

    def lock(self) -> None:
        """Take the directory for this disk until it is closed, or raise `Locked`."""
        ...

    def close(self) -> None:
        """Let go of the directory. Open files stay open."""
        ...


def check_name(path: str, call: str, name: str) -> None:
    """Refuse a name that is not one plain entry of a directory."""
    if name in ("", ".", ".."):
        raise InvalidName(f"{path}/{name}", call, "not a name")
    if "/" in name or "\\" in name or "\0" in name:
        raise InvalidName(f"{path}/{name}", call, "a name has no separator and no NUL")
    if len(os.fsencode(name)) > NAME_BYTES_MAX:
        raise InvalidName(f"{path}/{name}", call, f"a name has at most {NAME_BYTES_MAX} bytes")


class RealDisk:
    """A directory of the machine, held open: all names are looked up below its descriptor."""

    def __init__(self, path: str, fd: int, failed: set[Inode | None]) -> None:
        """For `at` and `subdir`. `failed`: everything whose sync failed, shared below a root."""
        status = os.fstat(fd)
        self._path = path
        self._fd = fd
        self._failed = failed
        self._device = status.st_dev
        self._inode = status.st_ino

    @classmethod
    def at(cls, root: str | os.PathLike[str], *, create: bool = False) -> Self:
        """The directory the operator named; `create` makes it, durably, with its parents.

        Links on the way are followed: this one path is trusted.
        """
        path = os.path.abspath(root)
        try:
            if create:
                _make_directories(path)
            return cls(path, os.open(path, _DIRECTORY_FLAGS), set())
        except OSError as error:
            raise failure(path, "open", error.errno or codes.EIO) from error

    @property
    def path(self) -> str:
        return self._path

    # -- files

    def open(self, name: str, *, create: bool = False, writable: bool = True) -> File:
        access = os.O_RDWR if writable else os.O_RDONLY
        return self._open(name, access | (os.O_CREAT if create else 0))

    def create(self, name: str) -> File:
        return self._open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def _open(self, name: str, flags: int) -> File:
        check_name(self._path, "open", name)
        try:
            fd = os.open(name, flags | _FILE_FLAGS, FILE_MODE, dir_fd=self._fd)
        except OSError as error:
            raise self._error("open", name, error) from error
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            wrong = codes.EISDIR if stat.S_ISDIR(status.st_mode) else codes.EINVAL
            raise failure(self._place(name), "open", wrong)
        file = File(name, fd, status.st_ino)
        file.failed = (self._device, file.inode) in self._failed
        return file

    def close_file(self, file: File) -> None:
        if file.fileno() == _CLOSED:
            return
        try:
            os.close(file.detach())
        except OSError as error:
            raise self._error("close", file.name, error) from error

    def pread(self, file: File, n: int, offset: int) -> bytes:
        if n > TRUSTED_READ_BYTES:
            n = max(0, min(n, self.size(file) - offset))
        try:
            data = os.pread(file.fileno(), n, offset)
            if len(data) == n or not data:
                return data
            return self._read_on(file, n, offset, data)
        except OSError as error:
            raise self._error("pread", file.name, error) from error

    def _read_on(self, file: File, n: int, offset: int, data: bytes) -> bytes:
        parts, have = [data], len(data)
        while have < n and (more := os.pread(file.fileno(), n - have, offset + have)):
            parts.append(more)
            have += len(more)
        return b"".join(parts)

    def pwrite(self, file: File, data: Bytes, offset: int) -> None:
        fd = file.fileno()
        try:
            done = os.pwrite(fd, data, offset)
            if done == len(data):
                return
            rest = memoryview(data).cast("B")
            while done < len(rest):
                wrote = os.pwrite(fd, rest[done:], offset + done)
                if wrote == 0:
                    raise OSError(codes.EIO, "wrote nothing")
                done += wrote
        except OSError as error:
            raise self._error("pwrite", file.name, error) from error

    def fdatasync(self, file: File) -> None:
        if file.fileno() == _CLOSED:  # our mistake, not the disk's: nothing is marked
            raise failure(self._place(file.name), "fdatasync", codes.EBADF)
        if file.failed or (self._device, file.inode) in self._failed:
            file.failed = True
            raise SyncFailed(self._place(file.name), "fdatasync", codes.EIO, "failed before")
        try:
            os.fdatasync(file.fileno())
        except OSError as error:
            file.failed = True
            self._failed.add((self._device, file.inode))
            path = self._place(file.name)
            raise SyncFailed(path, "fdatasync", error.errno or codes.EIO) from error

    def preallocate(self, file: File, size: int) -> None:
        before = at = self.size(file)
        zeros = memoryview(bytes(max(0, min(ZEROS_BYTES, size - at))))
        try:
            while at < size:
                step = min(len(zeros), size - at)
                self.pwrite(file, zeros[:step], at)
                at += step
        except StoreError:
            self.truncate(file, before)
            raise

    def truncate(self, file: File, size: int) -> None:
        try:
            os.ftruncate(file.fileno(), size)
        except OSError as error:
            raise self._error("truncate", file.name, error) from error

    def size(self, file: File) -> int:
        try:
            return os.fstat(file.fileno()).st_size
        except OSError as error:
            raise self._error("size", file.name, error) from error

    def read_small(self, name: str, bytes_max: int) -> bytes:
        file = self.open(name, writable=False)
        try:
            # The bound is on what is read, not on a size asked before: the file may grow.
            data = self.pread(file, bytes_max + 1, 0)
        finally:
            self.close_file(file)
        if len(data) > bytes_max:
            raise failure(self._place(name), "read", codes.EFBIG)
        return data

    # -- names

    def rename(self, old: str, new: str) -> None:
        check_name(self._path, "rename", old)
        check_name(self._path, "rename", new)
        replaced = self._failed_inode(new) if old != new else None
        fd = self._fd
        self._call("rename", old, lambda: os.rename(old, new, src_dir_fd=fd, dst_dir_fd=fd))
        self._failed.discard(replaced)

    def unlink(self, name: str) -> None:
        check_name(self._path, "unlink", name)
        removed = self._failed_inode(name)
        self._call("unlink", name, lambda: os.unlink(name, dir_fd=self._fd))
        self._failed.discard(removed)

    def mkdir(self, name: str) -> None:
        check_name(self._path, "mkdir", name)
        self._call("mkdir", name, lambda: os.mkdir(name, DIRECTORY_MODE, dir_fd=self._fd))

    def rmdir(self, name: str) -> None:
        check_name(self._path, "rmdir", name)
        removed = self._failed_inode(name)
        self._call("rmdir", name, lambda: os.rmdir(name, dir_fd=self._fd))
        self._failed.discard(removed)

    def subdir(self, name: str) -> RealDisk:
        check_name(self._path, "subdir", name)
        try:
            fd = os.open(name, _DIRECTORY_FLAGS | os.O_NOFOLLOW, dir_fd=self._fd)
        except OSError as error:
            raise self._error("subdir", name, error) from error
        return RealDisk(self._place(name), fd, self._failed)

    def sync_dir(self) -> None:
        if self._fd == _CLOSED:
            raise failure(self._path, "sync_dir", codes.EBADF)
        key = (self._device, self._inode)
        if key in self._failed:
            raise SyncFailed(self._path, "sync_dir", codes.EIO, "failed before")
        try:
            os.fsync(self._fd)
        except OSError as error:
            self._failed.add(key)
            raise SyncFailed(self._path, "sync_dir", error.errno or codes.EIO) from error

    def files(self) -> list[str]:
        return self._list(lambda entry: entry.is_file(follow_symlinks=False))

    def directories(self) -> list[str]:
        return self._list(lambda entry: entry.is_dir(follow_symlinks=False))

    def _list(self, wanted: Callable[[os.DirEntry[str]], bool]) -> list[str]:
        if self._fd == _CLOSED:  # scandir takes -1 for the working directory
            raise failure(self._path, "list", codes.EBADF)
        try:
            with os.scandir(self._fd) as entries:
                return sorted(e.name for e in entries if wanted(e) and "\\" not in e.name)
        except OSError as error:
            raise self._error("list", "", error) from error

    # -- the directory

    def free_bytes(self) -> int:
        try:
            status = os.fstatvfs(self._fd)
        except OSError as error:
            raise self._error("free_bytes", "", error) from error
        return status.f_bavail * status.f_frsize

    def lock(self) -> None:
        if self._fd == _CLOSED:
            raise failure(self._path, "lock", codes.EBADF)
        self._call("lock", "", lambda: fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB))

    def close(self) -> None:
        if self._fd == _CLOSED:
            return
        fd, self._fd = self._fd, _CLOSED
        self._call("close", "", lambda: os.close(fd))

    def _call(self, call: str, name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as error:
            raise self._error(call, name, error) from error

    def _failed_inode(self, name: str) -> Inode | None:
        """What goes away takes its failed sync along: the next file may get its inode number."""
        if not self._failed:
            return None
        try:
            status = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _place(self, name: str) -> str:
        return f"{self._path}/{name}" if name else self._path

    def _error(self, call: str, name: str, error: OSError) -> StoreError:
        return failure(self._place(name), call, error.errno or codes.EIO)


def _make_directories(path: str) -> None:
    """Make the missing directories, the highest first, each synced into its parent."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for made in reversed(missing):
        os.mkdir(made, DIRECTORY_MODE)
        parent = os.open(os.path.dirname(made), _DIRECTORY_FLAGS)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)


if TYPE_CHECKING:
    _conforms: type[Disk] = RealDisk
