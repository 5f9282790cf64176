"""Descriptors of open files: a bounded number of them, however many files are open.

A file that was not used for a while is parked: its descriptor is closed, and the next call opens
the file again by name. So ten thousand idle streams hold no descriptors. A file with unsynced
writes is synced before it is parked, because an error of later kernel writeback would be lost.

A descriptor is either in the idle table or held by the caller that took it. Taking and giving back
are single dictionary calls, which the interpreter does not interrupt; so threads may use different
files of the same disk without a lock.
"""

from __future__ import annotations

import errno as codes
import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from penstock.store.io.disk import Bytes, File

OPEN_FILES_MAX: Final = 512
"""Maximum number of descriptors kept for files that are not in use."""

Inode: TypeAlias = tuple[int, int]
"""Device and inode number."""


class OpenFiles:
    """The descriptors of a tree of directories, and the files whose syncs failed."""

    __slots__ = ("_idle", "_idle_max", "failed", "is_synced", "unsynced")

    def __init__(self, idle_max: int = OPEN_FILES_MAX) -> None:
        self.failed: set[Inode | None] = set()
        """Files and directories whose sync failed; no later sync of them is trusted."""
        self.unsynced: set[Inode] = set()
        """Files and directories changed through this object and not synced since."""
        self.is_synced = False
        """Whether all earlier data is durable, so that only `unsynced` entries need a sync."""
        self._idle: OrderedDict[File, int] = OrderedDict()
        self._idle_max = idle_max

    def needs_sync(self, inode: Inode) -> bool:
        return not self.is_synced or inode in self.unsynced

    def acquire(self, file: File) -> int | None:
        """Return the descriptor, which the caller owns until `release`; None if it is parked."""
        return self._idle.pop(file, None)

    def release(self, file: File, fd: int) -> None:
        """Give the descriptor back."""
        self._idle[file] = fd
        if len(self._idle) > self._idle_max:
            self._park(*self._idle.popitem(last=False))

    def changed(self, file: File, fd: int) -> None:
        """Record that the holder of the descriptor is about to write to the file."""
        file.is_unsynced = True
        self.unsynced.add((os.fstat(fd).st_dev, file.inode))

    def failed_sync(self, file: File, fd: int) -> None:
        """Record that a sync by the holder of the descriptor failed; later syncs fail, too."""
        file.failed = True
        self.failed.add((os.fstat(fd).st_dev, file.inode))

    def _park(self, file: File, fd: int) -> None:
        try:
            if file.is_unsynced and not file.failed:
                os.fdatasync(fd)
                file.is_unsynced = False
                self.unsynced.discard((os.fstat(fd).st_dev, file.inode))
        except OSError:
            self.failed_sync(file, fd)
        finally:
            os.close(fd)


def sync_file_system(fd: int) -> bool:
    """Sync the file system of a descriptor; return False if the system has no `syncfs`."""
    import ctypes  # rarely needed

    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        return False
    if syncfs(fd) != 0:
        raise OSError(ctypes.get_errno(), "syncfs")
    return True


def read_fully(fd: int, n: int, offset: int) -> bytes:
    """Return `n` bytes, fewer only at the end of the file."""
    data = os.pread(fd, n, offset)
    if len(data) == n or not data:
        return data
    parts, have = [data], len(data)
    while have < n and (more := os.pread(fd, n - have, offset + have)):
        parts.append(more)
        have += len(more)
    return b"".join(parts)


def write_fully(fd: int, data: Bytes, offset: int) -> None:
    """Write all of `data`, or raise OSError."""
    done = os.pwrite(fd, data, offset)
    if done == len(data):
        return
    rest = memoryview(data).cast("B")
    while done < len(rest):
        wrote = os.pwrite(fd, rest[done:], offset + done)
        if wrote == 0:
            raise OSError(codes.EIO, "wrote nothing")
        done += wrote
