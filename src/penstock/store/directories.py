"""Directories by their names below a root: opened for a call, closed after it.

Only a root keeps its descriptor, and a directory that is locked. Every other one is entered from
the root down, name by name and following no link, whenever something is to be done in it: so the
number of directories costs no descriptors. A directory must be the one it was: another that took
its name is an error (ESTALE). Names follow when a directory is renamed through the one above.
"""

from __future__ import annotations

import errno as codes
import os
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

DIRECTORY_MODE: Final = 0o700
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CLOSED: Final = -1


class Directory:
    """One directory. Calls raise OSError."""

    __slots__ = ("__weakref__", "_below", "_fd", "_is_closed", "_name", "_parent", "inode")

    def __init__(self, name: str, fd: int, parent: Directory | None) -> None:
        """For `root_at` and `below`."""
        status = os.fstat(fd)
        self.inode = (status.st_dev, status.st_ino)
        """Device and number."""
        self._name = name
        self._parent = parent
        self._fd = fd if parent is None else _CLOSED
        self._is_closed = False
        self._below: WeakSet[Directory] | None = None

    @property
    def path(self) -> str:
        return self._name if self._parent is None else f"{self._parent.path}/{self._name}"

    def use(self, act: Callable[[int], T]) -> T:
        """Does something with a descriptor of this directory."""
        if self._fd != _CLOSED:
            return act(self._fd)
        fd = self._enter()
        try:
            return act(fd)
        finally:
            os.close(fd)

    def _enter(self) -> int:
        parent, name = self._parent, self._name
        if self._is_closed or parent is None:
            raise OSError(codes.EBADF, "closed")
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
        if self._below is None:
            self._below = WeakSet()
        self._below.add(found)
        return found

    def renamed(self, old: str, new: str) -> None:
        """Something in this directory has another name."""
        for directory in self._below or ():
            if directory._name == old:
                directory._name = new

    def hold(self) -> int:
        """Keeps a descriptor from now on, until it is closed."""
        if self._fd == _CLOSED:
            self._fd = self._enter()
        return self._fd

    def close(self) -> None:
        self._is_closed = True
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
