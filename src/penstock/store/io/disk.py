"""All file calls of the storage: one directory, plain names in it, files written by offset.

A `Disk` is a directory. Names are single names, never paths, and links are not followed, so no
call can reach anything outside the root. Files are 0600, directories 0700. Written data is durable
once `fdatasync` of the file has returned; a name (created, renamed, removed) once `sync_dir` of its
directory has. A failed sync marks its file or directory permanently: the kernel may have dropped
the data and would report success the next time.

No buffering, no retries, no threads; a thread that owns a file may make any call on it. An open
file may have no descriptor (`open_files`); a directory other than the root has one only during a
call. `penstock.testing.sim_disk.SimDisk` is the in-memory counterpart.
"""

from __future__ import annotations

import errno as codes
import fcntl
import os
import stat
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeAlias, TypeVar

from penstock.store.errors import InvalidName, StoreError, SyncFailed, failure
from penstock.store.io.directories import DIRECTORY_MODE, Directory, root_at
from penstock.store.io.open_files import OpenFiles, read_fully, sync_file_system, write_fully

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.store.io.open_files import Inode

Bytes: TypeAlias = bytes | bytearray | memoryview
T = TypeVar("T")

FILE_MODE: Final = 0o600
NAME_BYTES_MAX: Final = 255
ZEROS_BYTES: Final = 256 * 1024
"""Bytes that `preallocate` writes at once."""
TRUSTED_READ_BYTES: Final = 1024 * 1024
"""A longer read is first limited to the file size: its length may come from damaged data."""

_FILE_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a fifo must not block us
_CLOSED: Final = -1


class File:
    """An open file of a disk. `failed`: a sync of it failed, so every later sync fails, too."""

    __slots__ = ("_fd", "access", "failed", "inode", "is_unsynced", "name")

    def __init__(self, name: str, fd: int, inode: int, access: int = os.O_RDWR) -> None:
        self.name = name
        self.inode = inode
        self.access = access
        self.failed = False
        self.is_unsynced = False
        """Whether the file was written to after the last sync."""
        self._fd = fd

    def fileno(self) -> int:
        """Return the original descriptor, or -1 once closed: calls with it fail with EBADF."""
        return self._fd

    def detach(self) -> int:
        """Give up the descriptor; called by the disk that closes it."""
        fd, self._fd = self._fd, _CLOSED
        return fd


class Disk(Protocol):
    """A directory and the files in it. Every failed call raises `StoreError`."""

    @property
    def path(self) -> str:
        """The path of this directory for messages."""
        ...

    @property
    def descriptors(self) -> OpenFiles | None:
        """Lends descriptors to compiled code; None: that code has to call the disk."""
        ...

    def open(self, name: str, *, create: bool = False, writable: bool = True) -> File:
        """Open a regular file; with `create`, create it if it is missing."""
        ...

    def create(self, name: str) -> File:
        """Create a new file; an existing one is an error (EEXIST)."""
        ...

    def close_file(self, file: File) -> None:
        """Close a file without a sync. Closing twice is harmless."""
        ...

    def pread(self, file: File, n: int, offset: int) -> bytes:
        """Return `n` bytes from `offset`; fewer only at the end of the file."""
        ...

    def pwrite(self, file: File, data: Bytes, offset: int) -> None:
        """Write all of `data`. After an error any part of it may have been written."""
        ...

    def fdatasync(self, file: File) -> None:
        """Make contents and size durable. A failure is final: `SyncFailed` now and always."""
        ...

    def preallocate(self, file: File, size: int) -> None:
        """Fill with zeros from the end up to `size`; on failure the file has its old size.

        Overwriting existing blocks saves each later sync the journal write of a growing file,
        once the zeros themselves have been synced.
        """
        ...

    def truncate(self, file: File, size: int) -> None:
        """Shorten the file, or extend it with zeros."""
        ...

    def size(self, file: File) -> int:
        """Return the current file size in bytes."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory here; a file of the new name is replaced."""
        ...

    def unlink(self, name: str) -> None:
        """Remove a file."""
        ...

    def mkdir(self, name: str) -> None:
        """Create a directory; durable after `sync_dir` of this one."""
        ...

    def rmdir(self, name: str) -> None:
        """Remove an empty directory."""
        ...

    def subdir(self, name: str) -> Disk:
        """Return the disk of a directory that exists here."""
        ...

    def sync_dir(self) -> None:
        """Make the names in this directory durable, as `fdatasync` does for contents."""
        ...

    def files(self) -> list[str]:
        """Return the names of the regular files, sorted, without names no disk could create."""
        ...

    def directories(self) -> list[str]:
        """Return the names of the directories, sorted."""
        ...

    def read_small(self, name: str, bytes_max: int) -> bytes:
        """Return the whole file; one larger than the bound is an error (EFBIG)."""
        ...

    def free_bytes(self) -> int:
        """Return the space available to this process on the file system."""
        ...

    def lock(self) -> None:
        """Lock the directory for this disk until it is closed, or raise `Locked`."""
        ...

    def close(self) -> None:
        """Release the directory. Open files stay open."""
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
    """A directory of the machine: all names are looked up below the descriptor of its root.

    A file whose name was removed or now belongs to another file may only be closed: it may have
    been parked.
    """

    __slots__ = ("_directory", "_is_closed", "_is_root", "_lock", "_open")

    def __init__(self, directory: Directory, open_files: OpenFiles) -> None:
        """Called by `at` and `subdir`; all disks below a root share `open_files`."""
        self._directory = directory
        self._open = open_files
        self._is_root = False
        self._is_closed = False
        self._lock = _CLOSED

    @classmethod
    def at(cls, root: str | os.PathLike[str], *, create: bool = False) -> Self:
        """Open the directory the operator configured; `create` creates it and its parents durably.

        Follows links on the way: this one path is trusted.
        """
        path = os.path.abspath(root)
        try:
            disk = cls(root_at(path, create=create), OpenFiles())
        except OSError as error:
            raise failure(path, "open", error.errno or codes.EIO) from error
        disk._is_root = True
        return disk

    @property
    def path(self) -> str:
        return self._directory.path

    @property
    def descriptors(self) -> OpenFiles | None:
        return self._open

    def _at(self, call: str, name: str, act: Callable[[int], T]) -> T:
        """Call `act` with the descriptor of this directory."""
        self._check_open(call, name)
        try:
            return self._directory.use(act)
        except OSError as error:
            raise self._error(call, name, error) from error

    # -- files

    def open(self, name: str, *, create: bool = False, writable: bool = True) -> File:
        access = os.O_RDWR if writable else os.O_RDONLY
        return self._opened(name, access, os.O_CREAT if create else 0)

    def create(self, name: str) -> File:
        return self._opened(name, os.O_RDWR, os.O_CREAT | os.O_EXCL)

    def _opened(self, name: str, access: int, flags: int) -> File:
        check_name(self.path, "open", name)
        if flags:
            self._open.unsynced.add(self._directory.inode)
        fd, status = self._open_regular(name, access | flags)
        file = File(name, fd, status.st_ino, access)
        file.failed = (status.st_dev, file.inode) in self._open.failed
        self._open.release(file, fd)
        return file

    def _open_regular(self, name: str, flags: int) -> tuple[int, os.stat_result]:
        flags |= _FILE_FLAGS
        fd = self._at("open", name, lambda at: os.open(name, flags, FILE_MODE, dir_fd=at))
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            wrong = codes.EISDIR if stat.S_ISDIR(status.st_mode) else codes.EINVAL
            raise failure(self._place(name), "open", wrong)
        return fd, status

    def _take(self, file: File, call: str) -> int:
        """Return the descriptor of an open file; the caller gives it back."""
        fd = self._open.acquire(file)
        if fd is not None:
            return fd
        if file.fileno() == _CLOSED:
            raise failure(self._place(file.name), call, codes.EBADF)
        fd, status = self._open_regular(file.name, file.access)
        if status.st_ino != file.inode:
            os.close(fd)
            raise failure(self._place(file.name), call, codes.ESTALE)
        return fd

    def _with(self, file: File, call: str, act: Callable[[int], T]) -> T:
        fd = self._take(file, call)
        try:
            return act(fd)
        except OSError as error:
            raise self._error(call, file.name, error) from error
        finally:
            self._open.release(file, fd)

    def close_file(self, file: File) -> None:
        file.detach()
        fd = self._open.acquire(file)
        if fd is not None:
            self._call("close", file.name, lambda: os.close(fd))

    def pread(self, file: File, n: int, offset: int) -> bytes:
        if n > TRUSTED_READ_BYTES:
            n = max(0, min(n, self.size(file) - offset))
        return self._with(file, "pread", lambda fd: read_fully(fd, n, offset))

    def pwrite(self, file: File, data: Bytes, offset: int) -> None:
        self._note_change(file)
        self._with(file, "pwrite", lambda fd: write_fully(fd, data, offset))

    def fdatasync(self, file: File) -> None:
        inode = (self._directory.inode[0], file.inode)
        fd = self._take(file, "fdatasync")  # a closed file is a caller error: mark nothing
        try:
            if file.failed or inode in self._open.failed:
                file.failed = True
                raise SyncFailed(self._place(file.name), "fdatasync", codes.EIO, "failed before")
            if file.is_unsynced or self._open.needs_sync(inode):
                os.fdatasync(fd)
            file.is_unsynced = False
            self._open.unsynced.discard(inode)
        except OSError as error:
            file.failed = True
            self._open.failed.add(inode)
            path = self._place(file.name)
            raise SyncFailed(path, "fdatasync", error.errno or codes.EIO) from error
        finally:
            self._open.release(file, fd)

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

    def _note_change(self, file: File) -> None:
        if not file.is_unsynced:
            file.is_unsynced = True
            self._open.unsynced.add((self._directory.inode[0], file.inode))

    def truncate(self, file: File, size: int) -> None:
        self._note_change(file)
        self._with(file, "truncate", lambda fd: os.ftruncate(fd, size))

    def size(self, file: File) -> int:
        return self._with(file, "size", lambda fd: os.fstat(fd).st_size)

    def read_small(self, name: str, bytes_max: int) -> bytes:
        file = self.open(name, writable=False)
        try:
            # Bound the bytes read, not an earlier size: the file may grow.
            data = self.pread(file, bytes_max + 1, 0)
        finally:
            self.close_file(file)
        if len(data) > bytes_max:
            raise failure(self._place(name), "read", codes.EFBIG)
        return data

    # -- names

    def _change(self, call: str, name: str, act: Callable[[int], None]) -> None:
        self._open.unsynced.add(self._directory.inode)
        self._at(call, name, act)

    def rename(self, old: str, new: str) -> None:
        check_name(self.path, "rename", old)
        check_name(self.path, "rename", new)
        replaced = self._failed_inode(new) if old != new else None
        self._change("rename", old, lambda fd: os.rename(old, new, src_dir_fd=fd, dst_dir_fd=fd))
        self._open.failed.discard(replaced)
        self._directory.renamed(old, new)

    def unlink(self, name: str) -> None:
        check_name(self.path, "unlink", name)
        removed = self._failed_inode(name)
        self._change("unlink", name, lambda fd: os.unlink(name, dir_fd=fd))
        self._open.failed.discard(removed)

    def mkdir(self, name: str) -> None:
        check_name(self.path, "mkdir", name)
        self._change("mkdir", name, lambda fd: os.mkdir(name, DIRECTORY_MODE, dir_fd=fd))

    def rmdir(self, name: str) -> None:
        check_name(self.path, "rmdir", name)
        removed = self._failed_inode(name)
        self._change("rmdir", name, lambda fd: os.rmdir(name, dir_fd=fd))
        self._open.failed.discard(removed)

    def subdir(self, name: str) -> RealDisk:
        check_name(self.path, "subdir", name)
        self._check_open("subdir", name)
        try:
            return RealDisk(self._directory.below(name), self._open)
        except OSError as error:
            raise self._error("subdir", name, error) from error

    def sync_dir(self) -> None:
        inode = self._directory.inode
        if inode in self._open.failed:
            raise SyncFailed(self.path, "sync_dir", codes.EIO, "failed before")
        self._check_open("sync_dir", "")
        if self._open.needs_sync(inode):
            self._at("sync_dir", "", self._sync)
            self._open.unsynced.discard(inode)

    def sync_file_system(self) -> None:
        """Make everything on this file system durable at once.

        The caller holds the lock of a root. Afterwards only data changed through this disk needs
        a sync. Otherwise opening ten thousand stores would sync each of their files.
        """
        self._open.is_synced = self._at("syncfs", "", sync_file_system)

    def _sync(self, fd: int) -> None:
        try:
            os.fsync(fd)
        except OSError as error:
            self._open.failed.add(self._directory.inode)
            raise SyncFailed(self.path, "sync_dir", error.errno or codes.EIO) from error

    def files(self) -> list[str]:
        return self._list(lambda entry: entry.is_file(follow_symlinks=False))

    def directories(self) -> list[str]:
        return self._list(lambda entry: entry.is_dir(follow_symlinks=False))

    def _list(self, wanted: Callable[[os.DirEntry[str]], bool]) -> list[str]:
        def names(fd: int) -> list[str]:
            with os.scandir(fd) as entries:
                return sorted(e.name for e in entries if wanted(e) and "\\" not in e.name)

        return self._at("list", "", names)

    # -- the directory

    def free_bytes(self) -> int:
        status = self._at("free_bytes", "", os.fstatvfs)
        return status.f_bavail * status.f_frsize

    def lock(self) -> None:
        self._check_open("lock", "")
        self._call("lock", "", self._take_lock)

    def _take_lock(self) -> None:
        """Take the lock. It lasts as long as its descriptor, so the descriptor is kept."""
        if self._lock == _CLOSED:
            self._lock = self._directory.enter()
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        self._is_closed = True
        if self._lock != _CLOSED:
            fd, self._lock = self._lock, _CLOSED
            self._call("close", "", lambda: os.close(fd))
        if self._is_root:
            self._call("close", "", self._directory.close)

    def _call(self, call: str, name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as error:
            raise self._error(call, name, error) from error

    def _check_open(self, call: str, name: str) -> None:
        if self._is_closed:
            raise failure(self._place(name), call, codes.EBADF)

    def _failed_inode(self, name: str) -> Inode | None:
        """Return the inode of `name` if syncs have failed, so that the caller can drop its mark
        when the file is removed: a new file may get the same inode number."""
        if not self._open.failed:
            return None
        try:
            status = self._at(
                "stat", name, lambda fd: os.stat(name, dir_fd=fd, follow_symlinks=False)
            )
        except StoreError:
            return None
        return status.st_dev, status.st_ino

    def _place(self, name: str) -> str:
        return f"{self.path}/{name}" if name else self.path

    def _error(self, call: str, name: str, error: OSError) -> StoreError:
        return failure(self._place(name), call, error.errno or codes.EIO)


if TYPE_CHECKING:
    _conforms: type[Disk] = RealDisk
