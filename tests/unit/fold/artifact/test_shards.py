"""Shards: every key is in one, all of them are the fold, and some of them are not taken for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.fold import AppendLogSnapshot, ArtifactInvalid, SnapshotMeta, SqliteSnapshot
from penstock.fold.artifact.shards import by_hash, by_prefix, hash_of, import_shards
from support.folds import at, contents, put

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.fold.store.contract import SnapshotStore

KEYS = [f"k.{n}" for n in range(40)]


def exported(place: Path, count: int, *, identity: str = "KV_B@1", late: int = 0) -> list[Path]:
    """Artifacts of a fold cut by hash; the first one's cursor is `late` revisions behind."""
    made = []
    for number, shard in enumerate(by_hash(count)):
        artifact = place / shard.name
        with AppendLogSnapshot.open(place / f"{shard.name}.log") as store:
            keys = [key for key in KEYS if hash_of(key) % count == number]
            cursor = at(100 - late if number == 0 else 100)
            meta = SnapshotMeta(identity, shard.scope)
            store.apply([put(key, b"v", KEYS.index(key) + 1) for key in keys], cursor, meta=meta)
            store.export_to(artifact)
        made.append(artifact)
    return made


@pytest.mark.parametrize("kind", [AppendLogSnapshot, SqliteSnapshot])
def test_all_shards_together_are_fold(tmp_path: Path, kind: type[SnapshotStore]) -> None:
    artifacts = exported(tmp_path, 3, late=10)
    with import_shards(kind, artifacts, tmp_path / "store") as store:
        assert sorted(contents(store)) == sorted(KEYS)
        assert store.cursor == at(90)
        assert store.meta == SnapshotMeta("KV_B@1", ("",))


def test_some_shards_cut_by_hash_are_refused(tmp_path: Path) -> None:
    artifacts = exported(tmp_path, 3)
    with pytest.raises(ArtifactInvalid, match="not all shards"):
        import_shards(AppendLogSnapshot, artifacts[:2], tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_shards_of_two_buckets_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    mixed = [exported(tmp_path / "a", 2)[0], exported(tmp_path / "b", 2, identity="KV_C@2")[1]]
    with pytest.raises(ArtifactInvalid, match="not of one bucket"):
        import_shards(AppendLogSnapshot, mixed, tmp_path / "store")


@given(st.lists(st.text("ab.", min_size=1).map(lambda text: text + "."), min_size=1, unique=True))
def test_prefixes_that_overlap_or_look_alike_are_refused(prefixes: list[str]) -> None:
    overlap = any(a != b and a.startswith(b) for a in prefixes for b in prefixes)
    try:
        shards = by_prefix(prefixes)
    except ValueError:
        return
    assert not overlap
    assert len({shard.name for shard in shards}) == len(prefixes)


def test_scope_by_hash_covers_no_key() -> None:
    assert not any(key.startswith(shard.scope) for shard in by_hash(4) for key in KEYS)
