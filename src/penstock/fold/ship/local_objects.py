"""Objects as plain files below a directory; a power cut leaves only complete files.

The pointer is swapped under an operating system lock on a file beside it. The lock ends with the
process that holds it, so there are no stale locks. This works between processes and containers of
one machine, and on shared file systems that support such locks.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from penstock.fold.artifact.atomic_dir import read_bounded
from penstock.fold.errors import ObjectMissing, StoreIOError, TransportError
from penstock.fold.ship.object_store import PART_BYTES, Bounds, ListedObject, Seen
from penstock.fold.store.atomic_files import os_errors, replace, sync_directory, try_lock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from penstock.fold.ship.object_store import Progress

LOCK_RETRY_SECONDS = 0.005


class LocalObjects:
    """`Objects` below `root`, which is created by the first write."""

    def __init__(self, root: Path, *, bounds: Bounds | None = None) -> None:
        self._root = root
        self._bounds = bounds or Bounds()

    async def read(self, path: str, size_max: int) -> Seen | None:
        return await asyncio.to_thread(_read, self._root / path, size_max)

    async def swap(self, path: str, body: bytes, seen: Seen | None) -> bool:
        return await asyncio.to_thread(self._swap, self._root / path, body, seen)

    def _swap(self, path: Path, body: bytes, seen: Seen | None) -> bool:
        _make_directory(path.parent)
        with self._locked(path):
            with os_errors(path):
                there = path.read_bytes() if path.exists() else None
            if there != (None if seen is None else seen.body):
                return False
            replace(path, [body])
        return True

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        deadline = time.monotonic() + self._bounds.request
        lock = path.with_name(f".{path.name}.lock")
        with os_errors(lock):
            fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            while not _lock(fd, lock):
                if time.monotonic() > deadline:
                    raise TransportError("another process holds the lock", path=lock)
                time.sleep(LOCK_RETRY_SECONDS)
            yield
        finally:
            os.close(fd)

    async def upload(self, path: str, file: Path, progress: Progress) -> None:
        target = self._root / path
        await asyncio.to_thread(_make_directory, target.parent)
        part = target.with_name(f"{target.name}.{os.getpid()}-{time.monotonic_ns()}")
        try:
            await _copy(file, part, progress)
            with os_errors(target):
                os.rename(part, target)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
        await asyncio.to_thread(sync_directory, target.parent)

    async def download(self, path: str, file: Path, progress: Progress) -> None:
        source = self._root / path
        try:
            await _copy(source, file, progress)
        except StoreIOError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise ObjectMissing("there is no such object", path=source) from error
            raise

    async def listed(self, directory: str) -> AsyncIterator[ListedObject]:
        with os_errors(directory):
            for one in await asyncio.to_thread(_scan, self._root / directory):
                yield one

    async def delete(self, path: str) -> None:
        with os_errors(path):
            (self._root / path).unlink(missing_ok=True)


def _make_directory(directory: Path) -> None:
    """Create a directory and its parents, durably."""
    if directory.is_dir():
        return
    _make_directory(directory.parent)
    with os_errors(directory):
        directory.mkdir(exist_ok=True)
    sync_directory(directory.parent)


def _lock(fd: int, path: Path) -> bool:
    with os_errors(path):
        return try_lock(fd)


def _read(path: Path, size_max: int) -> Seen | None:
    body = read_bounded(path, size_max)
    return None if body is None else Seen(body)


async def _copy(source: Path, target: Path, progress: Progress) -> None:
    """Make a synced copy in a thread; call `progress` on the event loop."""
    loop = asyncio.get_running_loop()

    def progress_on_loop(done: int, total: int) -> None:
        loop.call_soon_threadsafe(progress, done, total)

    with os_errors(source):
        await asyncio.to_thread(_copy_now, source, target, progress_on_loop)


def _copy_now(source: Path, target: Path, progress: Progress) -> None:
    with open(source, "rb") as reading, open(target, "wb") as writing:
        total = os.fstat(reading.fileno()).st_size
        while piece := reading.read(PART_BYTES):
            writing.write(piece)
            progress(writing.tell(), total)
        writing.flush()
        os.fsync(writing.fileno())


def _scan(directory: Path) -> list[ListedObject]:
    found = []
    with suppress(FileNotFoundError):
        for entry in os.scandir(directory):
            with suppress(FileNotFoundError):
                found.append(ListedObject(entry.name, entry.stat().st_mtime))
    return found
