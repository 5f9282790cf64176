"""Sources of artifacts, from which a fold starts or is repaired after the bucket dropped records.

`ArtifactSource` is the interface that repair and bootstrap use; `PublishedArtifact` implements it
for object stores, `LocalArtifacts` for a directory. Artifacts are not trusted: the import verifies
every byte. Calls may raise `ArtifactInvalid` or the errors of the transport; nothing is retried.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock.fold.artifact.artifact_import import read_manifest
from penstock.fold.artifact.manifest import MANIFEST_FILE
from penstock.fold.errors import ArtifactInvalid

if TYPE_CHECKING:
    from penstock.fold.artifact.manifest import Manifest


class ArtifactSource(Protocol):
    """The newest artifact of a fold."""

    async def latest(self) -> Manifest | None:
        """Return the manifest without fetching the artifact; None if there is none."""
        ...

    async def fetch(self, dest: Path) -> Manifest:
        """Fetch the artifact to `dest`, which must not exist; `ArtifactInvalid` if none exists."""
        ...


class LocalArtifacts:
    """A directory that is an artifact, or contains artifacts; the highest cursor rank wins."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)

    async def latest(self) -> Manifest | None:
        found = await asyncio.to_thread(self._newest)
        return None if found is None else found[1]

    async def fetch(self, dest: Path) -> Manifest:
        found = await asyncio.to_thread(self._newest)
        if found is None:
            raise ArtifactInvalid("there is no artifact", path=self._path)
        artifact, manifest = found
        await asyncio.to_thread(shutil.copytree, artifact, dest, symlinks=True)
        return manifest

    def _newest(self) -> tuple[Path, Manifest] | None:
        beneath = sorted(self._path.iterdir()) if self._path.is_dir() else []
        # Unfinished artifacts are in hidden directories.
        shown = [path for path in (self._path, *beneath) if not path.name.startswith(".")]
        found = [(path, read_manifest(path)) for path in shown if (path / MANIFEST_FILE).is_file()]
        return max(found, key=lambda one: one[1].cursor.rank, default=None)
