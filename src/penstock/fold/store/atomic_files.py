"""File operations that leave a complete file or none: create, replace, sync, lock.

A file that must survive a power cut is written to a temporary file, synced and renamed, and its
directory is synced. A failed call raises `StoreIOError` with the path. The module does not
interpret the contents of files.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.fold.errors import StoreIOError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROBE_BYTES = 1024 * 1024
"""Bytes that a disk must accept after a failed write before a store on it is reopened."""
WRITE_BYTES = 1024 * 1024
"""Pieces are joined up to this size before they are written."""


@contextmanager
def os_errors(path: Path | str) -> Iterator[None]:
    """Turn an OSError into a StoreIOError."""
    try:
        yield
    except OSError as error:
        raise StoreIOError(error.strerror or str(error), path=path) from error


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all data; after an OSError an unknown part of it is written."""
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def write_pieces(fd: int, pieces: Iterable[bytes]) -> int:
    """Write many small pieces in few calls; return the number of bytes."""
    waiting: list[bytes] = []
    size = total = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= WRITE_BYTES:
            write_all(fd, b"".join(waiting))
            total += size
            waiting, size = [], 0
    write_all(fd, b"".join(waiting))
    return total + size


def write_new(path: Path, pieces: Iterable[bytes]) -> int:
    """Create a file and sync it, but not its directory; return its size."""
    with os_errors(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            size = write_pieces(fd, pieces)
            os.fsync(fd)
        finally:
            os.close(fd)
    return size


def replace(path: Path, pieces: Iterable[bytes]) -> int:
    """Create or replace a file in one durable step; return its size."""
    beside = temporary_beside(path)
    try:
        size = write_new(beside, pieces)
        with os_errors(path):
            os.rename(beside, path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    sync_directory(path.parent)
    return size


def temporary_beside(path: Path) -> Path:
    """Return an unused name in the same directory."""
    with os_errors(path):
        fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        os.close(fd)
        os.unlink(name)
    return Path(name)


def check_writable(path: Path | str) -> None:
    """Write and sync a temporary file beside a path; StoreIOError if the disk rejects it."""
    with os_errors(path), tempfile.TemporaryFile(dir=Path(path).parent) as file:
        file.write(bytes(PROBE_BYTES))
        file.flush()
        os.fsync(file.fileno())


def try_lock(fd: int) -> bool:
    """Lock an open file until it is closed or its process ends; False if it is locked already."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sync_file(path: Path) -> None:
    _sync(path, os.O_RDONLY)


def sync_directory(path: Path) -> None:
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    with os_errors(path):
        fd = os.open(path, flags | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
