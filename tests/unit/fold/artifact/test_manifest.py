"""The manifest: exact bytes, and nothing in it that could lead outside of the artifact."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.fold import ArtifactFile, ArtifactInvalid, Manifest
from penstock.fold.artifact.manifest import decode_manifest
from penstock.kv.kv_types import WatchCursor

DIGEST = "9b58ad2659a27c56c856fcefe22bb63cb8fa17d4e15773edb1cd574d06015cf0"
TEXT = f"""{{
  "schema_version": 1,
  "backend": "append-log",
  "backend_version": "2",
  "cursor_hex": "0000000000000004",
  "created_at_unix": 1765400000,
  "files": [
    {{
      "path": "data/fold.snap",
      "size": 46,
      "blake3": "{DIGEST}"
    }}
  ]
}}"""
MANIFEST = Manifest(
    1,
    "append-log",
    "2",
    "0000000000000004",
    1765400000,
    [ArtifactFile("data/fold.snap", 46, DIGEST)],
)


def changed(**fields: Any) -> bytes:
    return json.dumps({**json.loads(TEXT), **fields}).encode()


def with_path(path: str) -> bytes:
    return changed(files=[{"path": path, "size": 46, "blake3": DIGEST}])


def test_manifest_has_exactly_these_bytes() -> None:
    from blake3 import blake3

    assert MANIFEST.encode() == TEXT.encode()
    assert blake3(MANIFEST.encode()).hexdigest()[:16] == "eb55ef3d2319521d"


def test_written_records_are_read() -> None:
    assert decode_manifest(TEXT.encode()) == MANIFEST
    assert MANIFEST.cursor == WatchCursor.of(4)
    assert decode_manifest(changed(cursor_hex="")).cursor == WatchCursor.NONE


@pytest.mark.parametrize("size", range(len(TEXT)))
def test_manifest_that_was_cut_off_is_invalid(size: int) -> None:
    with pytest.raises(ArtifactInvalid):
        decode_manifest(TEXT.encode()[:size])


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe",
        b"[]",
        changed(schema_version=2),
        changed(more="x"),
        changed(files=[{"path": "data/a", "size": 1, "blake3": "", "more": 1}]),
        changed(files=[{"path": "data/a", "size": 1, "blake3": ""}] * 2),
        changed(cursor_hex="0"),
        changed(cursor_hex="zz"),
        changed(cursor_hex="00" * 11),
        changed(created_at_unix="now"),
    ],
)
def test_manifest_that_is_not_as_it_should_be_is_invalid(data: bytes) -> None:
    with pytest.raises(ArtifactInvalid):
        decode_manifest(data)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "data",
        "data/",
        "fold.snap",
        "/data/a",
        "data//a",
        "data/./a",
        "data/../a",
        "data/..",
        "data/a/",
        "other/a",
        "data\\a",
        "data/a\\b",
        "../data/a",
        "data/a\0b",
    ],
)
def test_path_that_is_not_plainly_below_data_is_invalid(path: str) -> None:
    with pytest.raises(ArtifactInvalid, match="path"):
        decode_manifest(with_path(path))


@pytest.mark.parametrize("path", ["data/a", "data/.hidden", "data/a/b/c", "data/...", "data/ü"])
def test_path_plainly_below_data_is_taken(path: str) -> None:
    assert decode_manifest(with_path(path)).files[0].path == path
