"""The open file of an append log: one writer, atomic appends, atomic replacement.

After a failed write the file is truncated to its last good byte. If the truncation or a sync fails,
the file is poisoned: its state on disk is unknown, and further writes are rejected. A lock excludes
a second writer in this or another process; a replacement file is locked before it is renamed. The
module does not interpret the bytes.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.fold.errors import StoreIOError, StorePoisoned
from penstock.fold.store.atomic_files import (
    os_errors,
    sync_directory,
    temporary_beside,
    write_all,
    write_pieces,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import Self


class LogFile:
    """The only writer of a file. `size` is the length of its valid contents."""

    def __init__(self, path: Path, fd: int, *, sync: bool) -> None:
        self.path = path
        self.size = os.fstat(fd).st_size
        self._fd = fd
        self._sync = sync
        self._poison = ""

    @classmethod
    def open(cls, path: Path, *, sync: bool) -> Self:
        """Open or create the file, and lock it."""
        with os_errors(path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                _lock(fd, path)
                # Another writer may have replaced the file between the open and the lock.
                if not os.path.samestat(os.fstat(fd), os.stat(path)):
                    raise StoreIOError("another writer has replaced the file", path=path)
                return cls(path, fd, sync=sync)
            except BaseException:
                os.close(fd)
                raise

    def read(self) -> bytes:
        with os_errors(self.path):
            return _read_all(self._fd)

    def append(self, data: bytes) -> None:
        """Append all of the data, or none of it."""
        self.check()
        try:
            write_all(self._fd, data)
        except OSError as error:
            self._cut_back()
            raise StoreIOError(f"append: {error.strerror}", path=self.path) from error
        self.size += len(data)
        if self._sync:
            self._sync_now()

    def replace(self, pieces: Iterable[bytes]) -> None:
        """Replace the contents of the file in one durable step."""
        self.check()
        beside = temporary_beside(self.path)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        with os_errors(self.path):
            fd = os.open(beside, flags, 0o644)
        try:
            with os_errors(self.path):
                _lock(fd, beside)
                size = write_pieces(fd, pieces)
                os.fsync(fd)
                os.rename(beside, self.path)
        except BaseException:
            os.close(fd)
            with suppress(OSError):
                os.unlink(beside)
            raise
        old, self._fd, self.size = self._fd, fd, size
        os.close(old)
        try:
            sync_directory(self.path.parent)
        except StoreIOError as error:
            # After a power cut either file may be there, but later appends go only to the new one.
            self._poison = str(error)
            raise

    def keep_aside(self, suffix: str) -> Path:
        """Hard-link the current file under a second name, which a later `replace` does not change.

        An earlier file with that name is replaced.
        """
        aside = self.path.with_name(self.path.name + suffix)
        beside = temporary_beside(aside)
        with os_errors(aside):
            os.link(self.path, beside)
            os.rename(beside, aside)
        return aside

    def check(self) -> None:
        if self._poison:
            raise StorePoisoned(self._poison, path=self.path)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._poison = "the store is closed"

    def _cut_back(self) -> None:
        try:
            os.ftruncate(self._fd, self.size)
        except OSError as error:
            self._poison = f"a failed append could not be cut off: {error.strerror}"

    def _sync_now(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self._poison = f"a sync failed: {error.strerror}"
            raise StoreIOError(f"sync: {error.strerror}", path=self.path) from error


def _lock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StoreIOError("another writer has this file open", path=path) from error


def _read_all(fd: int) -> bytes:
    size = os.fstat(fd).st_size
    pieces = []
    at = 0
    while at < size:
        piece = os.pread(fd, size - at, at)
        if not piece:
            break
        pieces.append(piece)
        at += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
