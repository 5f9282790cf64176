"""Descriptors of open files: a bounded number of them, however many files are open.

An open file that was not used for a while is parked: its descriptor is closed, and the next call
opens the file again by its name. So ten thousand idle streams hold no descriptors. Before a file
with unsynced writes is parked it is synced, for an error of the machine's own writing would be
told to nobody.

A descriptor is either among the idle ones or in the hands of the one who took it out. Taking and
giving back are single calls of a dictionary, which the interpreter does not interrupt; so threads
may use files of the same disk, each its own, without a lock.
"""

from __future__ import annotations

import errno as codes
import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from penstock.store.io.disk import Bytes, File

OPEN_FILES_MAX: Final = 512
"""Descriptors kept for files that nobody uses at the moment."""

Inode: TypeAlias = tuple[int, int]
"""Device and number."""


class OpenFiles:
    """The descriptors of a tree of directories, and whose syncs failed."""

    __slots__ = ("_idle", "_idle_max", "failed", "is_settled", "unsynced")

    def __init__(self, idle_max: int = OPEN_FILES_MAX) -> None:
        self.failed: set[Inode | None] = set()
        """Everything whose sync failed; it is never believed again."""
        self.unsynced: set[Inode] = set()
        """Files and directories that were changed through here and not synced since."""
        self.is_settled = False
        """Everything that was there before is durable: only what is unsynced needs a sync."""
        self._idle: OrderedDict[File, int] = OrderedDict()
        self._idle_max = idle_max

    def needs_sync(self, inode: Inode) -> bool:
        return not self.is_settled or inode in self.unsynced

    def take(self, file: File) -> int | None:
        """The descriptor, for the caller alone until it is given back; None if it is parked."""
        return self._idle.pop(file, None)

    def give(self, file: File, fd: int) -> None:
        """The caller is done with it."""
        self._idle[file] = fd
        if len(self._idle) > self._idle_max:
            self._park(*self._idle.popitem(last=False))

    def changed(self, file: File, fd: int) -> None:
        """It is about to be written to by who holds its descriptor."""
        file.is_unsynced = True
        self.unsynced.add((os.fstat(fd).st_dev, file.inode))

    def failed_sync(self, file: File, fd: int) -> None:
        """A sync by who holds its descriptor has failed: none will be believed again."""
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
    """Syncs the file system a descriptor belongs to; False if this machine cannot tell it was."""
    import ctypes  # rarely needed

    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        return False
    if syncfs(fd) != 0:
        raise OSError(ctypes.get_errno(), "syncfs")
    return True


def read_fully(fd: int, n: int, offset: int) -> bytes:
    """`n` bytes, fewer only where the file ends."""
    data = os.pread(fd, n, offset)
    if len(data) == n or not data:
        return data
    parts, have = [data], len(data)
    while have < n and (more := os.pread(fd, n - have, offset + have)):
        parts.append(more)
        have += len(more)
    return b"".join(parts)


def write_fully(fd: int, data: Bytes, offset: int) -> None:
    """All of it, or an error."""
    done = os.pwrite(fd, data, offset)
    if done == len(data):
        return
    rest = memoryview(data).cast("B")
    while done < len(rest):
        wrote = os.pwrite(fd, rest[done:], offset + done)
        if wrote == 0:
            raise OSError(codes.EIO, "wrote nothing")
        done += wrote
