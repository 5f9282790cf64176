"""Artifacts are found where they are, also those another implementation has published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.fold import AppendLogSnapshot, ArtifactInvalid
from penstock.fold.artifact.manifest import decode_manifest
from penstock.spark.files.fold_reader import Artifact, columns_of, find_artifacts
from support.folds import at, put

if TYPE_CHECKING:
    from penstock.kv.kv_types import WatchCursor

GOLDEN = Path(__file__).parents[3] / "golden"
PUBLISHED = GOLDEN / "fold-published-0.7.3" / "edge"


def rows(artifact: Artifact, scratch: Path, prefix: str = "") -> list[tuple[object, ...]]:
    scratch.mkdir()
    found = []
    for columns in columns_of(artifact, scratch, {}, prefix):
        lists = (columns[name].to_pylist() for name in ("key", "value", "revision", "cursor"))
        found += zip(*lists, strict=True)
    return found


def test_artifacts_of_crate_are_found_by_key_and_path(tmp_path: Path) -> None:
    by_key = find_artifacts(str(PUBLISHED / "origins"), {})
    by_place = find_artifacts(f"file://{PUBLISHED}", {})
    assert [one.shard for one in by_key] == [one.shard for one in by_place] == ["origins"]
    manifest = decode_manifest((PUBLISHED / "origins.manifest.json").read_bytes())
    found = rows(by_key[0], tmp_path / "one")
    assert found
    assert {row[3] for row in found} == {manifest.cursor.revision}
    assert rows(by_place[0], tmp_path / "two") == found


def test_crates_artifact_is_table(tmp_path: Path) -> None:
    (artifact,) = find_artifacts(str(GOLDEN / "fold-artifact-0.7.3"), {})
    assert all(isinstance(row[0], str) for row in rows(artifact, tmp_path / "one"))


def made(place: Path, count: int, cursor: WatchCursor) -> None:
    with AppendLogSnapshot.open(place.with_name("log")) as store:
        store.apply([put(f"a.{n}", b"%d" % n, n + 1) for n in range(count)], cursor)
        store.export_to(place)


def test_entries_come_with_revision_and_cursor_and_prefix_narrows_them(tmp_path: Path) -> None:
    made(tmp_path / "fold", 12, at(20))
    (artifact,) = find_artifacts(str(tmp_path / "fold"), {})
    assert rows(artifact, tmp_path / "s", "a.1") == [
        ("a.1", b"1", 2, 20),
        ("a.10", b"10", 11, 20),
        ("a.11", b"11", 12, 20),
    ]


def test_empty_fold_is_empty_table(tmp_path: Path) -> None:
    made(tmp_path / "fold", 0, at(3))
    (artifact,) = find_artifacts(str(tmp_path / "fold"), {})
    assert rows(artifact, tmp_path / "s") == []


def test_damaged_artifact_gives_no_row(tmp_path: Path) -> None:
    made(tmp_path / "fold", 3, at(3))
    file = tmp_path / "fold" / "data" / "fold.snap"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ArtifactInvalid):
        rows(Artifact("fold", str(tmp_path / "fold")), tmp_path / "s")


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    assert find_artifacts(str(tmp_path), {}) == []
    assert find_artifacts(str(tmp_path / "missing"), {}) == []
