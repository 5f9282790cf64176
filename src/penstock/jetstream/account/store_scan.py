"""Where stores are: the streams below a directory, with their messages and consumers.

A directory given by an operator may be the messages of one stream, a stream, an account, or all
of them. `held` locks them for a tool: what changes while it is read looks damaged.
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
"""What was replaced is kept beside under its name with this and a number."""
UNFINISHED: Final = ".repaired-"
DEPTH_MAX: Final = 6
LOCK_LEVELS: Final = 5
"""How many directories are locked, from the messages of a stream upwards."""
SERVER_LEVEL: Final = 3
"""A server locks `jetstream` in `jetstream/<account>/<stream>/msgs`; nothing below it."""
NOT_OURS: Final = (errno.EACCES, errno.EPERM, errno.ENOENT)


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """The files of one stream. `messages` holds its blocks; the others may not be there.

    A stream whose directory of messages is missing has a `meta`, and is a place too: damage.
    """

    messages: Path
    consumers: Path | None = None
    meta: Path | None = None

    @property
    def shown(self) -> str:
        """What to call it."""
        return str(self.messages.parent if self.meta else self.messages)

    def consumer_names(self) -> list[str]:
        """The consumers that have a description, or a state without one."""
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
    """Every stream at or below a directory."""
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

    Every lock is shared, so tools that look at the same files, or at neighbours under the same
    directory, do not disturb each other; `alone` also keeps other tools off these streams. Raises
    Locked if a server holds one of the directories, or another tool changes one of the streams.
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
                continue  # no server of this user can hold it either
            locks.callback(os.close, fd)
        yield


def _lockable(place: StoreLocation) -> list[Path]:
    """The directories that a server could hold, the messages first."""
    levels = [place.messages, *place.messages.parents][:LOCK_LEVELS]
    return levels if place.meta is None else [levels[0], *levels[SERVER_LEVEL:]]


def aside_name(path: Path, suffix: str = ASIDE) -> Path:
    """A name beside a file or directory that is still free."""
    number = 1
    while (free := path.with_name(f"{path.name}{suffix}{number}")).exists():
        number += 1
    return free
