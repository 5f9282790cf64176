"""File calls that leave a whole file or none: new ones, replaced ones, and their directories.

A file that is to be trusted after a power cut is written beside its place, synced, renamed, and the
directory is synced. A failed call arrives as a `StoreIOError` with the path. Nothing here knows
what is in the files.
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
"""How much a disk that refused a write must take before a store on it is opened again."""
WRITE_BYTES = 1024 * 1024
"""Pieces are gathered up to this length before they are written."""


@contextmanager
def told_as_store_error(path: Path | str) -> Iterator[None]:
    """Turn an OSError into a StoreIOError."""
    try:
        yield
    except OSError as error:
        raise StoreIOError(error.strerror or str(error), path=path) from error


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all of it; OSError if not, with an unknown part of it written."""
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def write_pieces(fd: int, pieces: Iterable[bytes]) -> int:
    """Write many small pieces in few calls; returns how many bytes they were."""
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
    """Make a file that was not there, synced; its directory is not. Returns its size."""
    with told_as_store_error(path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            size = write_pieces(fd, pieces)
            os.fsync(fd)
        finally:
            os.close(fd)
    return size


def replace(path: Path, pieces: Iterable[bytes]) -> int:
    """Put a file in the place of another, or of none, in one durable step. Returns its size."""
    beside = temporary_beside(path)
    try:
        size = write_new(beside, pieces)
        with told_as_store_error(path):
            os.rename(beside, path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    sync_directory(path.parent)
    return size


def temporary_beside(path: Path) -> Path:
    """A name in the same directory that nobody has."""
    with told_as_store_error(path):
        fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        os.close(fd)
        os.unlink(name)
    return Path(name)


def check_writable(path: Path | str) -> None:
    """Write and sync a temporary file beside a path; StoreIOError if the disk does not take it."""
    with told_as_store_error(path), tempfile.TemporaryFile(dir=Path(path).parent) as file:
        file.write(bytes(PROBE_BYTES))
        file.flush()
        os.fsync(file.fileno())


def try_lock(fd: int) -> bool:
    """Lock what is open, until it is closed or its process dies; False if another has it."""
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
    with told_as_store_error(path):
        fd = os.open(path, flags | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
