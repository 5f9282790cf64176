"""A store directory that cannot be used: the server says why and does not start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.servers import OURS, ServerStartError

if TYPE_CHECKING:
    from pathlib import Path

    from support.servers import Implementation, ServerPool


def test_store_directory_that_is_file_is_refused(
    pool: ServerPool, with_jetstream: Implementation, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ServerStartError, match="storage directory is not a directory"):
        pool.start(with_jetstream, flags=("-js", "-sd", str(tmp_path / "file")))


def test_store_directory_is_locked_by_one_server(pool: ServerPool, tmp_path: Path) -> None:
    flags = ("-js", "-sd", str(tmp_path))
    first = pool.start(OURS, flags=flags)
    try:
        with pytest.raises(
            ServerStartError, match="another server or tool uses the storage directory"
        ):
            pool.start(OURS, flags=flags)
    finally:
        first.kill()
