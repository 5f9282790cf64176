"""Finds the streams at or below a directory, with their messages and consumers.

The operator may pass the messages directory of one stream, a stream, an account, or the whole
store. The callers are the offline store commands and Spark's block reader. They call `find_places`
and read inside `held`, which locks the files: a file that changes while it is read looks damaged.
"""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.jetstream.consumers.state.consumer_recovery import STATE_SUFFIX
from penstock.jetstream.host.asset_files import (
    CONSUMERS_NAME,
    MESSAGES_NAME,
    META_NAME,
    META_SUFFIX,
)
from penstock.store.block_file import number_of
from penstock.store.errors import StoreError
from penstock.store.io.directories import hold_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

ASIDE: Final = ".damaged-"
"""A replaced file stays beside the new one, under its name with this suffix and a number."""
UNFINISHED: Final = ".repaired-"
DEPTH_MAX: Final = 6
LOCK_LEVELS: Final = 5
"""How many directories to lock, from the messages of a stream upwards."""
SERVER_LEVEL: Final = 3
"""A server locks `jetstream` in `jetstream/<account>/<stream>/msgs`, and nothing below it."""
NOT_OURS: Final = (errno.EACCES, errno.EPERM, errno.ENOENT)


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """The files of one stream. `messages` holds its blocks; the other paths may be missing.

    A stream with a `meta` but without its messages directory is damaged; it is listed, too.
    """

    messages: Path
    consumers: Path | None = None
    meta: Path | None = None

    @property
    def shown(self) -> str:
        """Return the path to show to the operator."""
        return str(self.messages.parent if self.meta else self.messages)

    def consumer_names(self) -> list[str]:
        """Return the consumers that have a `.meta` file, or a state file without one."""
        if self.consumers is None:
            return []
        names = [path.name for path in self.consumers.iterdir()]
        return sorted(
            {
                name.removesuffix(suffix)
                for name in names
                for suffix in (META_SUFFIX, STATE_SUFFIX)
                if name.endswith(suffix)
            }
        )


def find_places(root: Path) -> list[StoreLocation]:
    """Return every stream at or below a directory."""
    return sorted(_below(root.resolve(), DEPTH_MAX), key=lambda place: place.shown)


def _below(directory: Path, depth: int) -> Iterator[StoreLocation]:
    if ASIDE in directory.name or UNFINISHED in directory.name:
        return
    entries = list(directory.iterdir())
    if directory.name == MESSAGES_NAME or any(number_of(path.name) is not None for path in entries):
        yield _place(directory)
        return
    if any(path.name == META_NAME and path.is_file() for path in entries):
        yield _place(directory / MESSAGES_NAME)
        return
    for path in entries if depth else ():
        if path.is_dir() and not path.is_symlink():
            yield from _below(path, depth - 1)


def _place(messages: Path) -> StoreLocation:
    stream = messages.parent
    if messages.name != MESSAGES_NAME or not (stream / META_NAME).exists():
        return StoreLocation(messages)
    consumers = stream / CONSUMERS_NAME
    return StoreLocation(messages, consumers if consumers.is_dir() else None, stream / META_NAME)


@contextmanager
def held(places: Sequence[StoreLocation], *, alone: bool = False) -> Iterator[None]:
    """Keep servers away from the files of streams while the body runs.

    Every lock is shared, so tools that read the same files, or neighbours below the same directory,
    can run at the same time. `alone` also keeps other tools off these streams. Raises Locked if a
    server holds one of the directories, or another tool changes one of the streams.
    """
    streams = {place.messages for place in places}
    above = {directory for place in places for directory in _lockable(place)} - streams
    with ExitStack() as locks:
        for directory in sorted(above | streams):
            try:
                fd = hold_directory(directory, alone=alone and directory in streams)
            except StoreError as error:
                if error.errno not in NOT_OURS:
                    raise
                continue  # a server of this user cannot lock it either
            locks.callback(os.close, fd)
        yield


def _lockable(place: StoreLocation) -> list[Path]:
    """Return the directories that a server could lock, the messages first."""
    levels = [place.messages, *place.messages.parents][:LOCK_LEVELS]
    return levels if place.meta is None else [levels[0], *levels[SERVER_LEVEL:]]


def aside_name(path: Path, suffix: str = ASIDE) -> Path:
    """Return an unused name beside a file or directory."""
    number = 1
    while (free := path.with_name(f"{path.name}{suffix}{number}")).exists():
        number += 1
    return free
