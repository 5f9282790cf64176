"""Where a fold gets a whole copy of itself: to begin with, or after the bucket forgot too much.

`ArtifactSource` is all that repair and bootstrap ask for; object stores have one, and so does a
directory. What a source hands out is not trusted: importing checks every byte. Calls may raise
`ArtifactInvalid`, or whatever their transport raises; nothing is retried here.
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
        """Its manifest, without fetching it; None if there is none."""
        ...

    async def fetch(self, dest: Path) -> Manifest:
        """Put the artifact at `dest`, which does not exist; `ArtifactInvalid` if there is none."""
        ...


class LocalArtifacts:
    """A directory that is an artifact, or that holds some: then the one with the highest rank."""

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
        # What is being made or was left behind half made is hidden; so it is no artifact.
        shown = [path for path in (self._path, *beneath) if not path.name.startswith(".")]
        found = [(path, read_manifest(path)) for path in shown if (path / MANIFEST_FILE).is_file()]
        return max(found, key=lambda one: one[1].cursor.rank, default=None)
