"""Directories by their names below a root: opened for a call, closed after it.

Only a root keeps its descriptor. Every call enters any other directory from the root down, name by
name, following no link, so the number of directories costs no descriptors. A directory must stay
the same one: if another directory takes its name, calls raise ESTALE. A rename through the parent
directory updates the names below.
Threads may use the same directory: shared state changes only in single dictionary calls.
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
        """Called by `root_at` and `below`."""
        status = os.fstat(fd)
        self.inode = (status.st_dev, status.st_ino)
        """Device and inode number."""
        self._name = name
        self._parent = parent
        self._fd = fd if parent is None else _CLOSED
        self._below: dict[str, ref[Directory]] = {}

    @property
    def path(self) -> str:
        return self._name if self._parent is None else f"{self._parent.path}/{self._name}"

    def use(self, act: Callable[[int], T]) -> T:
        """Call `act` with a descriptor of this directory and return its result."""
        if self._fd != _CLOSED:
            return act(self._fd)
        fd = self.enter()
        try:
            return act(fd)
        finally:
            os.close(fd)

    def enter(self) -> int:
        """Return a new descriptor of this directory; the caller closes it."""
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
        """Return an existing directory inside this one."""
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

        def on_collected(kept: ref[Directory]) -> None:
            if below.get(name) is kept:
                below.pop(name, None)

        below[name] = ref(directory, on_collected)

    def renamed(self, old: str, new: str) -> None:
        """Record that an entry of this directory was renamed."""
        directory = self._known(old)
        if directory is not None:
            directory._name = new
            self._below.pop(old, None)
            self._note(new, directory)

    def close(self) -> None:
        """Close a root: afterwards neither it nor the directories below can be used."""
        if self._fd != _CLOSED:
            fd, self._fd = self._fd, _CLOSED
            os.close(fd)


def root_at(path: str, *, create: bool) -> Directory:
    """Return the directory at a path. Follows links on the way."""
    if create:
        _make(path)
    return Directory(path, os.open(path, _FLAGS), None)


def _make(path: str) -> None:
    """Create the missing directories, the highest first, each synced into its parent."""
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

    Servers, and tools that change files, take an exclusive lock; read-only tools share it.
    Raises Locked if another holder conflicts, StoreError if the call fails.
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
