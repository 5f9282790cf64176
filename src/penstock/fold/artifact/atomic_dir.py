"""Hidden staging directories, whose contents appear at the destination whole or not at all.

A stage is deleted when the work succeeds or fails. A stage of a killed process starts with
`STAGE_PREFIX` and is not locked; `sweep_stages` deletes it. A non-empty destination is rejected,
before and after the work. The module also computes the checksums of payloads in one read.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.fold.artifact.manifest import PAYLOAD_DIRECTORY, ArtifactFile
from penstock.fold.errors import ArtifactInvalid, DestinationTaken, FoldStoreError
from penstock.fold.store.atomic_files import (
    os_errors,
    sync_directory,
    sync_file,
    try_lock,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from typing import BinaryIO

    from blake3 import blake3

STAGE_PREFIX = ".slipstream-artifact-"
"""The prefix of other implementations, so that each can sweep the stages of the others."""
STAGE_SECONDS_MIN = 3600.0
"""Minimum age of a stage to be swept, because a new stage is unlocked for a moment."""
HASH_BYTES = 1024 * 1024


def staged_beside(dest: Path) -> AbstractContextManager[Path]:
    """Return a context with a new directory on the file system of `dest`, deleted at the end."""
    return staged(dest.parent)


@contextmanager
def staged(directory: Path | None) -> Iterator[Path]:
    """Create a locked stage in a directory, or in the system's temporary directory."""
    with os_errors(directory or ""):
        stage = Path(tempfile.mkdtemp(prefix=STAGE_PREFIX, dir=directory))
        lock = os.open(stage, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # without lock support `sweep_stages` deletes nothing
            try_lock(lock)
        yield stage
    finally:
        os.close(lock)
        shutil.rmtree(stage, ignore_errors=True)


def sweep_stages(directory: Path, *, now: float | None = None) -> int:
    """Delete the stages of killed processes in a directory; return their number."""
    oldest = (time.time() if now is None else now) - STAGE_SECONDS_MIN
    swept = 0
    for stage in directory.glob(f"{STAGE_PREFIX}*"):
        with suppress(OSError):
            swept += stage.stat().st_mtime < oldest and _sweep(stage)
    return swept


def _sweep(stage: Path) -> bool:
    lock = os.open(stage, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        dead = try_lock(lock)
        if dead:
            shutil.rmtree(stage, ignore_errors=True)
        return dead
    finally:
        os.close(lock)


def check_free(dest: Path) -> None:
    """Raise DestinationTaken if `dest` exists and is not an empty directory."""
    if dest.is_symlink() or (dest.exists() and not dest.is_dir()):
        raise DestinationTaken("the destination exists", path=dest)
    with os_errors(dest):
        if dest.is_dir() and any(dest.iterdir()):
            raise DestinationTaken("the destination exists and is not empty", path=dest)


def put_in_place(made: Path, dest: Path) -> None:
    """Move a file or directory to its destination, durably, without overwriting anything."""
    check_free(dest)
    with os_errors(dest):
        if dest.is_dir():
            os.rmdir(dest)
        if made.is_dir():
            os.rename(made, dest)
        else:
            os.link(made, dest)  # unlike a rename, fails if the destination exists
            os.unlink(made)
    sync_directory(dest.parent)


def payload_files(root: Path) -> list[Path]:
    """Return every file below `data/`, by path; ArtifactInvalid for links and special files."""
    found: list[Path] = []
    waiting = [root / PAYLOAD_DIRECTORY]
    with os_errors(root):
        while waiting:
            for path in waiting.pop().iterdir():
                if path.is_symlink() or not (path.is_dir() or path.is_file()):
                    raise ArtifactInvalid("neither a file nor a directory", path=path)
                (waiting if path.is_dir() else found).append(path)
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def read_bounded(path: Path, size_max: int) -> bytes | None:
    """Return a small file; None if missing, ArtifactInvalid if longer than `size_max`."""
    with os_errors(path):
        try:
            with open(path, "rb") as file:
                data = file.read(size_max + 1)
        except FileNotFoundError:
            return None
    if len(data) > size_max:
        raise ArtifactInvalid(f"longer than {size_max} bytes", path=path)
    return data


def sealed_files(root: Path) -> list[ArtifactFile]:
    """Sync the payload's files and return them with their checksums."""
    sealed = []
    for path in payload_files(root):
        size, digest = hashed(path)
        sync_file(path)
        sealed.append(ArtifactFile(path.relative_to(root).as_posix(), size, digest))
    sync_tree(root / PAYLOAD_DIRECTORY)
    return sealed


def sync_tree(root: Path) -> None:
    """Sync a directory and all directories below it."""
    for directory, _, _ in os.walk(root):
        sync_directory(Path(directory))


def hashed(path: Path, copy: Path | None = None) -> tuple[int, str]:
    """Return size and BLAKE3 of a file; with `copy`, also write a synced copy."""
    hasher = new_hasher()
    size = 0
    with os_errors(path), open(path, "rb") as source, _target(copy) as target:
        while piece := source.read(HASH_BYTES):
            hasher.update(piece)
            size += len(piece)
            target.write(piece)
        target.flush()
        if copy is not None:
            os.fsync(target.fileno())
    return size, hasher.hexdigest()


def _target(copy: Path | None) -> BinaryIO:
    return open(os.devnull if copy is None else copy, "wb" if copy is None else "xb")


def new_hasher() -> blake3:
    """Return a BLAKE3 hasher; imported on demand, because only artifacts and digests need it."""
    try:
        import blake3
    except ImportError as error:
        raise FoldStoreError("artifacts need the blake3 package: install penstock[fold]") from error
    return blake3.blake3()
