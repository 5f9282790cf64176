"""Packs an artifact as one uncompressed tar; the same artifact always gives the same bytes.

A tar is not trusted. Unpacking accepts only the manifest, EXTRA.json and the files that the
manifest declares, with the declared sizes and checksums. It writes plain files below the target and
ignores owner, mode and time. The manifest in the tar must be byte-for-byte the requested one.
"""

from __future__ import annotations

import os
import tarfile
from typing import TYPE_CHECKING

from penstock.fold.artifact.atomic_dir import HASH_BYTES, new_hasher, payload_files, sync_tree
from penstock.fold.artifact.manifest import (
    EXTRA_BYTES_MAX,
    EXTRA_FILE,
    MANIFEST_FILE,
    PAYLOAD_DIRECTORY,
    decode_manifest,
)
from penstock.fold.errors import ArtifactInvalid
from penstock.fold.store.atomic_files import os_errors, sync_directory

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO

    from penstock.fold.artifact.manifest import ArtifactFile, Manifest

FILE_MODE = 0o644
DIRECTORY_MODE = 0o755


def pack(artifact: Path, manifest: Manifest, target: Path) -> None:
    """Pack the artifact as a tar; raise unless its files are exactly those of the manifest."""
    files = payload_files(artifact)
    sizes = {path.relative_to(artifact).as_posix(): path.stat().st_size for path in files}
    if sizes != {file.path: file.size for file in manifest.files}:
        raise ArtifactInvalid("the files are not those of the manifest", path=artifact)
    extra = artifact / EXTRA_FILE
    named = [artifact / MANIFEST_FILE, *([extra] if extra.is_file() else [])]
    directories = {parent for path in files for parent in path.parents if parent != artifact}
    inner = {path for path in directories if path.is_relative_to(artifact)}
    whole = [*named, *sorted({artifact / PAYLOAD_DIRECTORY, *inner, *files})]
    with (
        os_errors(target),
        tarfile.open(target, "x", format=tarfile.GNU_FORMAT) as tar,
    ):
        for path in whole:
            tar.add(path, path.relative_to(artifact).as_posix(), recursive=False, filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove owner, time and mode of the local machine."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    member.mode = DIRECTORY_MODE if member.isdir() else FILE_MODE
    return member


def unpack(tar: Path, pointer: bytes, target: Path) -> None:
    """Unpack the artifact to `target`, verified and synced, or raise ArtifactInvalid."""
    declared = {file.path: file for file in decode_manifest(pointer).files}
    with os_errors(target):
        (target / PAYLOAD_DIRECTORY).mkdir(parents=True)
    try:
        with tarfile.open(tar, "r:") as archive:
            found = _unpack_all(archive, pointer, declared, target)
    except (tarfile.TarError, EOFError, UnicodeError) as error:
        raise ArtifactInvalid(f"the payload is no tar: {error}", path=tar) from error
    missing = {MANIFEST_FILE, *declared} - found
    if missing:
        raise ArtifactInvalid(f"{min(missing)} is not in the payload", path=tar)
    sync_tree(target / PAYLOAD_DIRECTORY)
    sync_directory(target)


def _unpack_all(
    archive: tarfile.TarFile, pointer: bytes, declared: dict[str, ArtifactFile], target: Path
) -> set[str]:
    found: set[str] = set()
    for member in archive:
        name = member.name.removeprefix("./").rstrip("/")
        if member.isdir():
            continue  # needed directories are created with their files
        source = archive.extractfile(member) if member.isreg() and not member.issparse() else None
        if source is None or name in found:
            raise ArtifactInvalid(f"{name!r} in the payload", path=target)
        found.add(name)
        if name == MANIFEST_FILE:
            _take_manifest(source, pointer, target)
        elif name == EXTRA_FILE and member.size <= EXTRA_BYTES_MAX:
            _write(source, target / name)
        elif name in declared:
            _take_file(source, declared[name], target)
        else:
            raise ArtifactInvalid(f"{name!r} in the payload is not declared", path=target)
    return found


def _take_manifest(source: IO[bytes], pointer: bytes, target: Path) -> None:
    if source.read(len(pointer) + 1) != pointer:
        raise ArtifactInvalid("the payload is of another artifact than the pointer", path=target)
    source.seek(0)
    _write(source, target / MANIFEST_FILE)


def _take_file(source: IO[bytes], file: ArtifactFile, target: Path) -> None:
    path = target / file.path
    with os_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    if _write(source, path) != (file.size, file.blake3):
        raise ArtifactInvalid(f"{file.path} is not what the manifest says", path=target)


def _write(source: IO[bytes], path: Path) -> tuple[int, str]:
    """Copy to a new file and sync it; return its size and checksum."""
    hasher = new_hasher()
    size = 0
    with os_errors(path), open(path, "xb") as file:
        while piece := source.read(HASH_BYTES):
            hasher.update(piece)
            size += len(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return size, hasher.hexdigest()
