"""What the transport needs of a store of objects, and the time and size it allows for it.

A path is relative, with `/`. An object appears whole or not at all. `swap` is the one conditional
write: of several that saw the same object, one succeeds. Failures are `TransportError`, an object
that is not there where one must be is `ObjectMissing`; other exceptions do not come out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PART_BYTES = 8 * 1024 * 1024
"""What one request carries of a payload."""
PARTS_IN_FLIGHT = 8
REQUEST_SECONDS = 30.0
"""How long one request, or one part, may take."""
FINISH_SECONDS = REQUEST_SECONDS * PARTS_IN_FLIGHT
"""How long the last parts of an upload and its completion may take together."""

Progress = Callable[[int, int], None]
"""Told how many bytes are done, of how many."""


class Bounds(Struct, frozen=True, kw_only=True):
    """Seconds after which waiting is given up."""

    request: float = REQUEST_SECONDS
    finish: float = FINISH_SECONDS


class Seen(Struct, frozen=True):
    """An object as it was read, with what tells it from a later one."""

    body: bytes
    tag: tuple[str | None, str | None] = (None, None)


class ListedObject(Struct, frozen=True):
    """One object of a directory; `modified` in seconds since 1970."""

    name: str
    modified: float


class Objects(Protocol):
    """A store of objects."""

    async def read(self, path: str, size_max: int) -> Seen | None:
        """A small object; None if there is none. `ArtifactInvalid` if it is longer."""
        ...

    async def swap(self, path: str, body: bytes, seen: Seen | None) -> bool:
        """Write if the object is still the one seen, or still absent; False if it is not."""
        ...

    async def upload(self, path: str, file: Path, progress: Progress) -> None:
        """Put a file there, in place of what is there."""
        ...

    async def download(self, path: str, file: Path, progress: Progress) -> None:
        """Write an object to a file."""
        ...

    def listed(self, directory: str) -> AsyncIterator[ListedObject]:
        """The objects directly in a directory; none if it does not exist."""
        ...

    async def delete(self, path: str) -> None:
        """One that is gone already is no failure."""
        ...


def unheard(done: int, total: int) -> None:
    """The progress nobody asked for."""
