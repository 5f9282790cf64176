"""Directories by their names below a root: opened for a call, closed after it.

Only a root keeps its descriptor. Every other directory is entered from the root down, name by name
and following no link, whenever something is to be done in it: so their number costs no descriptors.
A directory must be the one it was: another that took its name is an error (ESTALE). Names follow
when a directory is renamed through the one above.
Threads may use the same directory: whatever is shared changes in single calls of a dictionary.
"""

from __future__ import annotations

import errno as codes
import fcntl
import os
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import ref

from penstock.store.errors import failure

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

DIRECTORY_MODE: Final = 0o700
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CLOSED: Final = -1


class Directory:
    """One directory. Calls raise OSError."""

    __slots__ = ("__weakref__", "_below", "_fd", "_name", "_parent", "inode")

    def __init__(self, name: str, fd: int, parent: Directory | None) -> None:
        """For `root_at` and `below`."""
        status = os.fstat(fd)
        self.inode = (status.st_dev, status.st_ino)
        """Device and number."""
        self._name = name
        self._parent = parent
        self._fd = fd if parent is None else _CLOSED
        self._below: dict[str, ref[Directory]] = {}

    @property
    def path(self) -> str:
        return self._name if self._parent is None else f"{self._parent.path}/{self._name}"

    def use(self, act: Callable[[int], T]) -> T:
        """Does something with a descriptor of this directory."""
        if self._fd != _CLOSED:
            return act(self._fd)
        fd = self.enter()
        try:
            return act(fd)
        finally:
            os.close(fd)

    def enter(self) -> int:
        """A new descriptor of this directory, the caller's to close."""
        parent, name = self._parent, self._name
        if parent is None:
            return os.open(".", _FLAGS, dir_fd=self._fd)
        fd = parent.use(lambda at: os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=at))
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != self.inode:
            os.close(fd)
            raise OSError(codes.ESTALE, "another directory has this name now")
        return fd

    def below(self, name: str) -> Directory:
        """A directory that exists in this one."""
        fd = self.use(lambda at: os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=at))
        try:
            found = Directory(name, fd, self)
        finally:
            os.close(fd)
        known = self._known(name)
        if known is not None and known.inode == found.inode:
            return known
        self._note(name, found)
        return found

    def _known(self, name: str) -> Directory | None:
        kept = self._below.get(name)
        return None if kept is None else kept()

    def _note(self, name: str, directory: Directory) -> None:
        below = self._below

        def gone(kept: ref[Directory]) -> None:
            if below.get(name) is kept:
                below.pop(name, None)

        below[name] = ref(directory, gone)

    def renamed(self, old: str, new: str) -> None:
        """Something in this directory has another name."""
        directory = self._known(old)
        if directory is not None:
            directory._name = new
            self._below.pop(old, None)
            self._note(new, directory)

    def close(self) -> None:
        """Lets go of a root: neither it nor what is below can be used any more."""
        if self._fd != _CLOSED:
            fd, self._fd = self._fd, _CLOSED
            os.close(fd)


def root_at(path: str, *, create: bool) -> Directory:
    """A directory by its path. Links on the way are followed."""
    if create:
        _make(path)
    return Directory(path, os.open(path, _FLAGS), None)


def _make(path: str) -> None:
    """Make the missing directories, the highest first, each synced into its parent."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for made in reversed(missing):
        os.mkdir(made, DIRECTORY_MODE)
        parent = os.open(os.path.dirname(made), _FLAGS)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)


def hold_directory(path: str | os.PathLike[str], *, alone: bool) -> int:
    """Lock a directory and return the descriptor that holds the lock; closing it releases it.

    Servers, and tools that change files, hold a directory alone; tools that only read share it.
    Raises Locked if another holder does not allow that, StoreError if the call fails.
    """
    fd = _CLOSED
    try:
        fd = os.open(path, _FLAGS)
        fcntl.flock(fd, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError as error:
        if fd != _CLOSED:
            os.close(fd)
        raise failure(os.fspath(path), "lock", error.errno or codes.EIO) from error
    return fd
