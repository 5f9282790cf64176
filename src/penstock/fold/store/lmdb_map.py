"""Chooses the size of an LMDB memory map: the requested size, or the largest the process may have.

The map reserves address space, not memory or disk, and limits the size of the file. If the process
has an address space limit (RLIMIT_AS), as in some containers, a smaller map is used.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from penstock.fold.errors import FoldCorruptedError, StoreIOError
from penstock.fold.store.atomic_files import os_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import lmdb

DATA_FILE = "data.mdb"
MAP_BYTES = 64 * 1024**3
"""Default maximum size of the file. It reserves address space only, not memory or disk."""
MAP_BYTES_MIN = 64 * 1024**2
"""The smallest map that is tried automatically; for a smaller one, pass `map_bytes`."""
MAP_SHARE = 4
"""With an address space limit (RLIMIT_AS), the map takes at most 1 / MAP_SHARE of it."""

_READ_ALL = """
import sys, lmdb
env = lmdb.open(sys.argv[1], readonly=True, lock=False, max_dbs=16)
with env.begin() as txn:
    names = [bytes(key) for key in txn.cursor().iternext(values=False)]
for name in names:
    table = env.open_db(name, create=False)
    with env.begin() as txn:
        sum(len(value) for value in txn.cursor(table).iternext(keys=False))
"""

log = logging.getLogger(__name__)


def open_map(path: Path, map_bytes: int | None, **settings: Any) -> lmdb.Environment:
    """Open with the requested map size, or with the largest size that can be mapped."""
    import lmdb

    for size in map_sizes(map_bytes, _addresses_max()):
        try:
            env = lmdb.open(str(path), map_size=size, **settings)
        except (lmdb.MemoryError, MemoryError):
            continue
        except lmdb.Error as error:
            if os.strerror(errno.ENOMEM) not in str(error):
                raise
            continue
        if map_bytes is None and size < MAP_BYTES:
            log.warning("fold %s: addresses are limited; it can grow to %d bytes", path, size)
        return env
    raise StoreIOError(
        "not enough addresses (RLIMIT_AS) to map it: open it with less map_bytes, or raise the "
        "limit",
        path=path,
    )


def check_size(path: Path, env: lmdb.Environment) -> None:
    """Raise if the file ends before its tree: reading a mapped page beyond its end kills a process.

    A sound file may be short, too, because LMDB does not write new pages that are free again. So
    another process reads all of it.
    """
    size = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    with os_errors(path):
        if (path / DATA_FILE).stat().st_size >= size:
            return
    probe = subprocess.run(
        [sys.executable, "-c", _READ_ALL, path], capture_output=True, check=False
    )
    if probe.returncode:
        raise FoldCorruptedError("the file ends before its tree", path=path)


def map_sizes(wanted: int | None, addresses_max: int | None) -> Iterator[int]:
    """Yield the sizes to try: only `wanted`, or descending from a share of the address space."""
    if wanted is not None:
        yield wanted
        return
    size = MAP_BYTES
    if addresses_max is not None:
        size = max(min(size, addresses_max // MAP_SHARE), MAP_BYTES_MIN)
        size -= size % MAP_BYTES_MIN
    while size >= MAP_BYTES_MIN:
        yield size
        size //= 2


def _addresses_max() -> int | None:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit
