"""Opens the store directory: the configured one, or one below the system's temporary directory.

Invariant: a directory belongs to one server at a time, because two would overwrite each other's
files. If a configured directory is locked, the start fails. Without a configured directory, the
server uses the reference's default or, if another server holds that, a directory beside it: several
test servers can run side by side.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from penstock.server.server_log import log
from penstock.store.errors import StoreError
from penstock.store.io.disk import RealDisk

DIRECTORY: Final = "jetstream"
NAME: Final = "nats"
PLACES_MAX: Final = 64
"""Servers without a configured directory on one machine."""


class DirectoryTaken(ValueError):
    """Another server holds the directory."""


def open_store_dir(configured: str) -> tuple[str, RealDisk]:
    """Return the path and the locked directory. Raises ValueError with the reason."""
    if configured:
        path = os.path.join(configured, DIRECTORY)
        return path, _open(path)
    for place in range(1, PLACES_MAX):
        path = os.path.join(_default(place), DIRECTORY)
        try:
            disk = _open(path)
        except DirectoryTaken:
            continue
        if place > 1:
            log.warning("the usual storage directory is in use by another server: using %s", path)
        return path, disk
    path = os.path.join(_default(PLACES_MAX), DIRECTORY)
    return path, _open(path)


def _default(place: int) -> str:
    """Return the reference's default directory, or one beside it."""
    import tempfile

    name = NAME if place == 1 else f"{NAME}-{place}"
    return os.path.join(tempfile.gettempdir(), name)


def _open(path: str) -> RealDisk:
    """Open and lock the directory; create it if it is missing."""
    try:
        disk = RealDisk.at(path, create=True)
    except StoreError as error:
        if error.errno in (errno.EEXIST, errno.ENOTDIR):
            why = "storage directory is not a directory"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            why = "storage directory is not writable"
        else:
            why = f"could not create storage directory - {error}"
        raise ValueError(f"Can't start JetStream: {why}") from error
    try:
        disk.lock()
    except StoreError as error:
        disk.close()
        raise DirectoryTaken(
            f"Can't start JetStream: another server or tool uses the storage directory {path}"
        ) from error
    return disk
