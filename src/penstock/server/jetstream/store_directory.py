"""The store directory: the one the operator named, or one below the machine's temporary files.

A directory belongs to one server at a time, else they would write over each other's files. Who
names one is refused when it is taken. Who names none gets the reference's place, or if another
server is there already a place beside it: servers for a quick try run side by side.
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
"""Servers without a directory of their own, on one machine."""


class DirectoryTaken(ValueError):
    """Another server has the directory."""


def open_store_dir(configured: str) -> tuple[str, RealDisk]:
    """The directory and its path, ours alone. Raises ValueError, saying why not."""
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
    """Where the reference keeps its files if nobody says where, or a place beside it."""
    import tempfile

    name = NAME if place == 1 else f"{NAME}-{place}"
    return os.path.join(tempfile.gettempdir(), name)


def _open(path: str) -> RealDisk:
    """The directory, made if need be."""
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
