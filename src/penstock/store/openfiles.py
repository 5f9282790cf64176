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

import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from penstock.store.disk import File

OPEN_FILES_MAX: Final = 512
"""Descriptors kept for files that nobody uses at the moment."""

Inode: TypeAlias = tuple[int, int]
"""Device and number."""


class OpenFiles:
    """The descriptors of a tree of directories, and whose syncs failed."""

    __slots__ = ("_idle", "_idle_max", "failed")

    def __init__(self, idle_max: int = OPEN_FILES_MAX) -> None:
        self.failed: set[Inode | None] = set()
        """Everything whose sync failed; it is never believed again."""
        self._idle: OrderedDict[File, int] = OrderedDict()
        self._idle_max = idle_max

    def take(self, file: File) -> int | None:
        """The descriptor, for the caller alone until it is given back; None if it is parked."""
        return self._idle.pop(file, None)

    def give(self, file: File, fd: int) -> None:
        """The caller is done with it."""
        self._idle[file] = fd
        if len(self._idle) > self._idle_max:
            self._park(*self._idle.popitem(last=False))

    def _park(self, file: File, fd: int) -> None:
        try:
            if file.is_unsynced and not file.failed:
                os.fdatasync(fd)
                file.is_unsynced = False
        except OSError:
            file.failed = True
            self.failed.add((os.fstat(fd).st_dev, file.inode))
        finally:
            os.close(fd)
