"""The store at a path is detected by its contents, and read without changing it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from penstock.fold import FoldStoreError
from penstock.fold.artifact.store_detect import bytes_at, is_artifact, kind_at, open_reader
from penstock.fold.store.registry import stores_with_files
from support.folds import at, put

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.fold import SnapshotStore

KINDS = sorted(stores_with_files(), key=str)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.backend)
def kind(request: pytest.FixtureRequest) -> type[SnapshotStore]:
    found: type[SnapshotStore] = request.param
    return found


def test_store_is_known_by_its_contents(kind: type[SnapshotStore], tmp_path: Path) -> None:
    with kind.open(tmp_path / "fold") as store:
        store.apply([put("a", b"1", 1)], at(1))
        store.export_to(tmp_path / "artifact")
    assert kind_at(tmp_path / "fold") is kind
    assert bytes_at(tmp_path / "fold") > 0
    assert is_artifact(tmp_path / "artifact")
    with open_reader(tmp_path / "fold") as reader:
        assert [entry.value for entry in reader.range()] == [b"1"]
        assert reader.cursor == at(1)


@pytest.mark.sockets
def test_another_process_reads_what_is_being_written(
    kind: type[SnapshotStore], tmp_path: Path
) -> None:
    path = tmp_path / "fold"
    program = (
        "import sys; from penstock.fold.artifact.store_detect import open_reader\n"
        "with open_reader(sys.argv[1]) as fold: print(fold.get('a').value, fold.cursor.rank)"
    )
    with kind.open(path) as store:
        store.apply([put("a", b"1", 1)], at(1))
        done = subprocess.run(
            [sys.executable, "-c", program, path], capture_output=True, text=True, check=False
        )
        assert done.stdout.split() == ["b'1'", "1"], done.stderr
        store.apply([put("a", b"2", 2)], at(2))
    with open_reader(path) as reader:
        assert reader.cursor == at(2)


def test_invalid_fold_is_named_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    for path, reason in (
        (tmp_path / "nothing", "no such fold"),
        (tmp_path / "text", "no fold"),
        (tmp_path, "no fold"),
    ):
        with pytest.raises(FoldStoreError, match=reason):
            kind_at(path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["text"]


def test_artifact_is_no_fold_yet(kind: type[SnapshotStore], tmp_path: Path) -> None:
    with kind.open(tmp_path / "fold") as store:
        store.export_to(tmp_path / "artifact")
    with pytest.raises(FoldStoreError, match="imported first"):
        open_reader(tmp_path / "artifact")
