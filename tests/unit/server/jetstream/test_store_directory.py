"""Which directory a server gets."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pytest

from penstock.server.jetstream.store_directory import DirectoryTaken, open_store_dir

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_directory_belongs_to_one_server(tmp_path: Path) -> None:
    path, disk = open_store_dir(str(tmp_path))
    assert path == f"{tmp_path}/jetstream"
    with pytest.raises(
        DirectoryTaken, match=f"another server or tool uses the storage directory {path}"
    ):
        open_store_dir(str(tmp_path))
    disk.close()
    open_store_dir(str(tmp_path))[1].close()


def test_servers_without_directory_of_their_own_run_side_by_side(temporary: Path) -> None:
    first, one = open_store_dir("")
    second, other = open_store_dir("")
    assert (first, second) == (f"{temporary}/nats/jetstream", f"{temporary}/nats-2/jetstream")
    one.close()
    again, third = open_store_dir("")
    assert again == first
    for disk in (other, third):
        disk.close()


def test_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "jetstream").write_text("")
    with pytest.raises(ValueError, match="storage directory is not a directory"):
        open_store_dir(str(tmp_path))
