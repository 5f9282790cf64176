"""The memory map of a fold in LMDB: as large as wanted, or as large as the process may have it.

The map reserves addresses, neither memory nor disk, and is the largest the file can grow to. Where
the process has a limit of addresses (RLIMIT_AS), as in some containers, a smaller one is taken.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
from typing import TYPE_CHECKING, Any

from penstock.fold.errors import StoreIOError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import lmdb

MAP_BYTES = 64 * 1024**3
"""The largest the file can grow to. Only addresses are reserved, neither memory nor disk."""
MAP_BYTES_MIN = 64 * 1024**2
"""The smallest that is tried where addresses are limited; below it `map_bytes` has to be named."""
MAP_SHARE = 4
"""Under a limit of addresses (RLIMIT_AS) the map takes at most this part of them: 1 / MAP_SHARE."""

log = logging.getLogger(__name__)


def open_map(path: Path, map_bytes: int | None, **settings: Any) -> lmdb.Environment:
    """Open with the map asked for, or with the largest for which there are addresses."""
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


def map_sizes(wanted: int | None, addresses_max: int | None) -> Iterator[int]:
    """The sizes to try: what is wanted alone, or from a part of the addresses downwards."""
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
