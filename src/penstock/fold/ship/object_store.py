"""The object store interface that the transport uses, and its time and size limits.

Paths are relative and use `/`. An object appears complete or not at all. `swap` is the only
conditional write: of several callers that saw the same object, one succeeds. A failed request
raises `TransportError`, a missing object `ObjectMissing`, and a failed access to a local file
`StoreIOError`; `read` raises `ArtifactInvalid` for an oversized object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PART_BYTES = 8 * 1024 * 1024
"""Size of the part of a payload that one request transfers."""
PARTS_IN_FLIGHT = 8
REQUEST_SECONDS = 30.0
"""Time limit of one request or one part."""
FINISH_SECONDS = REQUEST_SECONDS * PARTS_IN_FLIGHT
"""Time limit of the last parts of an upload and its completion together."""

Progress = Callable[[int, int], None]
"""Called with the bytes done and the total bytes."""


class Bounds(Struct, frozen=True, kw_only=True):
    """Time limits in seconds."""

    request: float = REQUEST_SECONDS
    finish: float = FINISH_SECONDS


class Seen(Struct, frozen=True):
    """An object as it was read; `tag` (ETag, version) identifies this version of it."""

    body: bytes
    tag: tuple[str | None, str | None] = (None, None)


class ListedObject(Struct, frozen=True):
    """One object of a directory; `modified` in seconds since 1970."""

    name: str
    modified: float


class Objects(Protocol):
    """A store of objects."""

    async def read(self, path: str, size_max: int) -> Seen | None:
        """Return a small object; None if missing, `ArtifactInvalid` if longer than `size_max`."""
        ...

    async def swap(self, path: str, body: bytes, seen: Seen | None) -> bool:
        """Write if the object is still `seen`, or still absent; return False otherwise."""
        ...

    async def upload(self, path: str, file: Path, progress: Progress) -> None:
        """Upload a file, replacing an existing object."""
        ...

    async def download(self, path: str, file: Path, progress: Progress) -> None:
        """Download an object to a file."""
        ...

    def listed(self, directory: str) -> AsyncIterator[ListedObject]:
        """Yield the objects directly in a directory; none if it does not exist."""
        ...

    async def delete(self, path: str) -> None:
        """Delete an object; a missing object is not an error."""
        ...


def unheard(done: int, total: int) -> None:
    """Ignore progress; the default callback."""
