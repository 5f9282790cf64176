"""Where stores are: the streams below a directory, with their messages and consumers.

A directory given by an operator may be the messages of one stream, a stream, an account, or all
of them. Directories that a server holds are refused: what changes while it is read looks damaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.jetstream.files import CONSUMERS_NAME, MESSAGES_NAME, META_NAME
from penstock.store.blockfile import number_of
from penstock.store.consumer_recovery import STATE_SUFFIX
from penstock.store.disk import RealDisk
from penstock.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ASIDE: Final = ".damaged-"
"""What was replaced is kept beside under its name with this and a number."""
UNFINISHED: Final = ".repaired-"
DEPTH_MAX: Final = 6
LOCK_LEVELS: Final = 5
"""How many directories above are asked whether a server holds them."""


@dataclass(frozen=True, slots=True)
class Place:
    """The files of one stream. `messages` holds its blocks; the others may not be there."""

    messages: Path
    consumers: Path | None = None
    meta: Path | None = None

    @property
    def shown(self) -> str:
        """What to call it."""
        return str(self.messages.parent if self.meta else self.messages)

    def consumer_names(self) -> list[str]:
        if self.consumers is None:
            return []
        return sorted(
            path.name.removesuffix(STATE_SUFFIX)
            for path in self.consumers.iterdir()
            if path.name.endswith(STATE_SUFFIX)
        )


def find_places(root: Path) -> list[Place]:
    """Every stream at or below a directory."""
    return sorted(_below(root.resolve(), DEPTH_MAX), key=lambda place: place.shown)


def _below(directory: Path, depth: int) -> Iterator[Place]:
    if ASIDE in directory.name or UNFINISHED in directory.name:
        return
    entries = list(directory.iterdir())
    if directory.name == MESSAGES_NAME or any(number_of(path.name) is not None for path in entries):
        yield _place(directory)
        return
    for path in entries if depth else ():
        if path.is_dir() and not path.is_symlink():
            yield from _below(path, depth - 1)


def _place(messages: Path) -> Place:
    stream = messages.parent
    if messages.name != MESSAGES_NAME or not (stream / META_NAME).exists():
        return Place(messages)
    consumers = stream / CONSUMERS_NAME
    return Place(messages, consumers if consumers.is_dir() else None, stream / META_NAME)


def refuse_if_served(places: list[Place]) -> None:
    """Raises Locked if a server holds the directory of a stream, or one above it."""
    above = {
        directory
        for place in places
        for directory in [place.messages, *place.messages.parents][:LOCK_LEVELS]
    }
    for directory in sorted(above):
        try:
            disk = RealDisk.at(directory)
        except StoreError:
            continue  # not ours to open, so nobody's store
        try:
            disk.lock()
        finally:
            disk.close()


def aside_name(path: Path, suffix: str = ASIDE) -> Path:
    """A name beside a file or directory that is still free."""
    number = 1
    while (free := path.with_name(f"{path.name}{suffix}{number}")).exists():
        number += 1
    return free
