"""The map of LMDB: how large it is where the addresses of a process are limited."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from penstock.fold.store.lmdb_map import MAP_BYTES, MAP_BYTES_MIN, MAP_SHARE, map_sizes

if TYPE_CHECKING:
    from pathlib import Path

ADDRESSES_BYTES = 4 * 1024**3
LIMITED = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({ADDRESSES_BYTES}, {ADDRESSES_BYTES}))
from penstock.fold import LmdbSnapshot, StoreIOError, KvUpdate, Op, WatchCursor
with LmdbSnapshot.open(sys.argv[1]) as store:
    store.apply([KvUpdate(Op.PUT, "a", b"1", 1)], WatchCursor.of(1))
try:
    LmdbSnapshot.open(sys.argv[1] + ".large", map_bytes={MAP_BYTES})
except StoreIOError as error:
    print(error)
"""


def test_without_limit_map_is_as_large_as_it_gets() -> None:
    assert next(map_sizes(None, None)) == MAP_BYTES
    assert list(map_sizes(123_456, ADDRESSES_BYTES)) == [123_456]


def test_under_limit_it_is_part_of_addresses_and_then_less() -> None:
    sizes = list(map_sizes(None, ADDRESSES_BYTES))
    assert sizes[0] == ADDRESSES_BYTES // MAP_SHARE
    assert sizes[-1] == MAP_BYTES_MIN
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.resident  # a sanitizer needs more addresses than the limit
@pytest.mark.sockets
def test_fold_opens_under_limit_and_option_that_cannot_be_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "fold")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "map_bytes" in done.stdout
    assert "RLIMIT_AS" in done.stdout
