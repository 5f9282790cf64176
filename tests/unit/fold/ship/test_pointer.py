"""Names of published objects are those of the Rust crate, and the rules decide at their edges."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.fold import read_manifest
from penstock.fold.artifact.manifest import ArtifactFile, Manifest
from penstock.fold.ship.artifact_transport import transport_for
from penstock.fold.ship.pointer import (
    check_key,
    newer_than,
    payload_name,
    payload_path,
    pointer_path,
    prunable,
    published,
)
from penstock.kv.kv_types import WatchCursor
from support.folds import at

GOLDEN = Path(__file__).parents[3] / "golden"
DIGEST = "9b58ad2659a27c56c856fcefe22bb63cb8fa17d4e15773edb1cd574d06015cf0"


def pointer(cursor: WatchCursor, created: int = 1_765_400_000) -> bytes:
    files = [ArtifactFile("data/fold.snap", 46, DIGEST)]
    return Manifest(1, "append-log", "2", cursor.raw.hex(), created, files).encode()


AT_4 = pointer(at(4))


def test_name_of_payload_is_rank_and_checksum_of_manifest() -> None:
    assert payload_name(AT_4) == "0000000000000004-eb55ef3d2319521d.tar"
    assert payload_path("edge/o", AT_4) == f"edge/o.payloads/{payload_name(AT_4)}"
    assert pointer_path("edge/o") == "edge/o.manifest.json"


@pytest.mark.parametrize("cursor", [WatchCursor.NONE, WatchCursor(b"0123456789"), at(0)])
def test_cursor_that_is_no_revision_ranks_lowest(cursor: WatchCursor) -> None:
    assert payload_name(pointer(cursor)).startswith("0" * 16 + "-")
    assert newer_than(pointer(at(1)), cursor) == at(1)
    assert newer_than(pointer(cursor), at(1)) is None


def test_only_higher_rank_forbids_to_publish() -> None:
    assert newer_than(None, at(1)) is None
    assert newer_than(AT_4, at(3)) == at(4)
    assert newer_than(AT_4, at(4)) is None
    assert newer_than(AT_4, at(5)) is None
    assert newer_than(AT_4[:-1], at(3)) is None


def test_only_lower_rank_can_go_and_only_after_while() -> None:
    older, newer = payload_name(pointer(at(3))), payload_name(pointer(at(5)))
    same = payload_name(pointer(at(4), created=1))
    assert prunable(older, AT_4, age=10, grace=10)
    assert not prunable(older, AT_4, age=9, grace=10)
    for name in (payload_name(AT_4), same, newer):
        assert not prunable(name, AT_4, age=10, grace=0)
    for unread in (None, b"", AT_4[:-1]):
        assert not prunable(older, unread, age=10, grace=0)


@pytest.mark.parametrize(
    "name", ["", "x", "3-eb55ef3d2319521d.tar", "+000000000000003-eb55ef3d2319521d.tar"]
)
def test_objects_without_rank_are_never_removed(name: str) -> None:
    assert not prunable(name, AT_4, age=10, grace=0)


def test_keys_that_others_would_spell_otherwise_are_refused() -> None:
    for key in ("a", "a/b-c.d_e", "a b", "us-east/1", "x=1,y@2"):
        assert check_key(key) == key
    for key in ("", "/", "a/", "/a", "a//b", ".", "a/..", "a/./b", "ä", "a%b", "a*", "a\n", "a\\b"):
        with pytest.raises(ValueError, match="cannot be the key"):
            check_key(key)


def test_pointer_of_crate_is_read() -> None:
    directory = GOLDEN / "fold-published-0.7.3" / "edge"
    body = (directory / "origins.manifest.json").read_bytes()
    assert published(body) == read_manifest(GOLDEN / "fold-artifact-0.7.3")
    assert [path.name for path in (directory / "origins.payloads").iterdir()] == [
        payload_name(body)
    ]


async def test_artifacts_of_crate_are_fetched(tmp_path: Path) -> None:
    transport = transport_for(f"{GOLDEN}/fold-published-0.7.3")
    await transport.download("edge/origins", tmp_path / "got")
    for name in ("MANIFEST.json", "data/fold.snap"):
        theirs = (GOLDEN / "fold-artifact-0.7.3" / name).read_bytes()
        assert (tmp_path / "got" / name).read_bytes() == theirs


async def test_we_publish_where_crate_does(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "fold-artifact-0.7.3", tmp_path / "a")
    await transport_for(f"{tmp_path}/published").upload("edge/origins", tmp_path / "a")
    assert shown(tmp_path / "published") == shown(GOLDEN / "fold-published-0.7.3")


def shown(root: Path) -> set[str]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix() for path in files if path.name[0] != "."}
