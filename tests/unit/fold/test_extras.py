"""What is not installed is asked for by name, and only by those who need it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from penstock.fold import FoldStoreError, LmdbSnapshot, MemorySnapshot, RocksDbSnapshot

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT = """
import sys
for name in ("blake3", "lmdb", "rocksdict"):
    sys.modules[name] = None
from penstock.fold import AppendLogSnapshot, SqliteSnapshot
from penstock.kv.kv_types import WatchCursor
for kind in (AppendLogSnapshot, SqliteSnapshot):
    with kind.open(f"{sys.argv[1]}/{kind.backend}") as store:
        store.apply([], WatchCursor.of(1))
"""


@pytest.mark.sockets
def test_log_and_sqlite_need_nothing_else(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("kind", "package", "extra"),
    [(LmdbSnapshot, "lmdb", "lmdb"), (RocksDbSnapshot, "rocksdict", "rocksdb")],
)
def test_store_without_its_library_names_what_to_install(
    kind: type[LmdbSnapshot],
    package: str,
    extra: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(FoldStoreError, match=rf"penstock\[{extra}\]"):
        kind.open(tmp_path / "fold")


def test_artifacts_without_their_hash_report_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "blake3", None)
    with MemorySnapshot.open() as store, pytest.raises(FoldStoreError, match=r"penstock\[fold\]"):
        store.export_to(tmp_path / "artifact")
    assert list(tmp_path.iterdir()) == []
