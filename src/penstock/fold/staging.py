"""A hidden directory beside a destination: what is made in it appears there whole, or not at all.

The directory goes when the work is done or has failed; what a killed process leaves starts with
`STAGE_PREFIX` and may be deleted. A destination that holds anything is refused, before and after
the work. Checksums of payloads are made here, while files are read once.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.fold.errors import ArtifactInvalid, DestinationTaken, StoreError
from penstock.fold.files import sync_directory, sync_file, told_as_store_error
from penstock.fold.manifest import PAYLOAD_DIRECTORY, ArtifactFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from blake3 import blake3

STAGE_PREFIX = ".slipstream-artifact-"
"""As other implementations call theirs, so that one broom sweeps both."""
HASH_BYTES = 1024 * 1024


@contextmanager
def staged_beside(dest: Path) -> Iterator[Path]:
    """A new directory on the file system of `dest`, gone at the end."""
    with told_as_store_error(dest):
        stage = Path(tempfile.mkdtemp(prefix=STAGE_PREFIX, dir=dest.parent))
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def check_free(dest: Path) -> None:
    """DestinationTaken if anything but an empty directory is at `dest`."""
    if dest.is_symlink() or (dest.exists() and not dest.is_dir()):
        raise DestinationTaken("the destination exists", path=dest)
    with told_as_store_error(dest):
        if dest.is_dir() and any(dest.iterdir()):
            raise DestinationTaken("the destination exists and is not empty", path=dest)


def put_in_place(made: Path, dest: Path) -> None:
    """Rename what was made to its destination, durably. Nothing is overwritten."""
    check_free(dest)
    with told_as_store_error(dest):
        if dest.is_dir():
            os.rmdir(dest)
        if made.is_dir():
            os.rename(made, dest)
        else:
            os.link(made, dest)  # unlike a rename, fails if there is a file by now
            os.unlink(made)
    sync_directory(dest.parent)


def payload_files(root: Path) -> list[Path]:
    """Every file below `data/`, by path. ArtifactInvalid if anything is not a plain file."""
    found: list[Path] = []
    waiting = [root / PAYLOAD_DIRECTORY]
    with told_as_store_error(root):
        while waiting:
            for path in waiting.pop().iterdir():
                if path.is_symlink() or not (path.is_dir() or path.is_file()):
                    raise ArtifactInvalid("neither a file nor a directory", path=path)
                (waiting if path.is_dir() else found).append(path)
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def sealed_files(root: Path) -> list[ArtifactFile]:
    """The payload's files with their checksums, all synced."""
    sealed = []
    for path in payload_files(root):
        size, digest = hashed(path)
        sync_file(path)
        sealed.append(ArtifactFile(path.relative_to(root).as_posix(), size, digest))
    sync_tree(root / PAYLOAD_DIRECTORY)
    return sealed


def sync_tree(root: Path) -> None:
    """Sync a directory and those below it."""
    for directory, _, _ in os.walk(root):
        sync_directory(Path(directory))


def hashed(path: Path, copy: Path | None = None) -> tuple[int, str]:
    """Size and BLAKE3 of a file, while copying it if wanted; the copy is synced."""
    hasher = new_hasher()
    size = 0
    with told_as_store_error(path), open(path, "rb") as source, _target(copy) as target:
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
    """A BLAKE3; its library is wanted by artifacts alone, so only they ask for it."""
    try:
        import blake3
    except ImportError as error:
        raise StoreError("artifacts need the blake3 package: install penstock[fold]") from error
    return blake3.blake3()
