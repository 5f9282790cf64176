"""Files written by the Rust crate (beyond-slipstream 0.7.3) are read, and written as it does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.fold import AppendLogSnapshot, MemorySnapshot, read_manifest
from support.folds import KINDS, at, contents, delete, model, put

GOLDEN = Path(__file__).parents[2] / "golden"
LOG = GOLDEN / "fold-log-0.7.3.snap"
ARTIFACT = GOLDEN / "fold-artifact-0.7.3"
PAYLOAD = ARTIFACT / "data" / "fold.snap"
BATCHES = [
    ([put("node.a", b"hello", 1), put("node.b", b"", 2)], 2),
    ([put("café.日本", b"\x00\xff\x10", 3), delete("node.a", 4)], 4),
    ([delete("gone"), put("node.c", b"more", 5), put("node.c", b"last", 6)], 6),
]
STATE = model(update for batch, _ in BATCHES for update in batch)


def test_our_log_is_crates_byte_for_byte(tmp_path: Path) -> None:
    with AppendLogSnapshot.open(tmp_path / "log") as store:
        for batch, last in BATCHES:
            store.apply(batch, at(last))
    assert (tmp_path / "log").read_bytes() == LOG.read_bytes()


def test_crates_log_is_read_and_compacted_as_crate_does(tmp_path: Path) -> None:
    shutil.copy(LOG, tmp_path / "log")
    with AppendLogSnapshot.open(tmp_path / "log") as store:
        assert contents(store) == STATE
        assert store.cursor == at(6)
    assert (tmp_path / "log").read_bytes() == PAYLOAD.read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_crates_artifact_becomes_store_of_any_kind(kind: str, tmp_path: Path) -> None:
    with KINDS[kind].imported(ARTIFACT, tmp_path / "fold") as store:
        assert contents(store) == STATE
        assert store.cursor == at(6)


def test_our_manifest_is_crates_byte_for_byte(tmp_path: Path) -> None:
    theirs = read_manifest(ARTIFACT)
    with MemorySnapshot.import_from(ARTIFACT) as store:
        store.export_to(tmp_path / "artifact", created_at=theirs.created_at_unix)
    ours = tmp_path / "artifact"
    assert (ours / "MANIFEST.json").read_bytes() == (ARTIFACT / "MANIFEST.json").read_bytes()
    assert (ours / "data" / "fold.snap").read_bytes() == PAYLOAD.read_bytes()
