"""Artifacts: complete when they exist, checked before they are believed, and for every store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import pytest

from penstock.fold import (
    ArtifactInvalid,
    BackendMismatch,
    DestinationTaken,
    SnapshotMeta,
    read_manifest,
)
from penstock.fold.artifact.atomic_dir import STAGE_PREFIX
from penstock.fold.store.log_witnesses import Witness
from penstock.kv.kv_types import Scope, WatchCursor
from support.folds import KINDS, at, contents, delete, put

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.fold import SnapshotStore
    from support.folds import Kind

ORIGIN = SnapshotMeta(
    "KV_b 2026", ("k.",), True, 4, 9, (Witness(3, "k.3", 7),), "may hold more", "keys-only"
)


@pytest.fixture
def filled(store: SnapshotStore) -> SnapshotStore:
    store.apply([put(f"k.{n}", b"v" * n, n) for n in range(300)], at(300), meta=ORIGIN)
    store.apply([delete("k.5", 301), put("x" * 600, b"", token=b"0123456789")], at(301))
    return store


def staged(directory: Path) -> list[str]:
    return [one.name for one in directory.iterdir() if one.name.startswith(STAGE_PREFIX)]


def test_every_field_of_metadata_is_compared() -> None:
    unknown = msgspec.structs.asdict(SnapshotMeta())
    assert all(unknown[name] != value for name, value in msgspec.structs.asdict(ORIGIN).items())


@pytest.mark.parametrize("form", [None, "append-log"])
def test_artifact_round_trips_to_the_same_fold(
    kind: Kind, filled: SnapshotStore, tmp_path: Path, form: str | None
) -> None:
    manifest = filled.export_to(tmp_path / "artifact", form=form)
    assert read_manifest(tmp_path / "artifact") == manifest
    assert manifest.cursor == at(301)
    with kind.imported(tmp_path / "artifact", tmp_path / "copy") as copy:
        assert contents(copy) == contents(filled)
        assert copy.cursor == filled.cursor
        assert copy.meta == ORIGIN
        copy.apply([put("new", b"1", 302)], at(302))
    assert filled.get("new") is None
    assert staged(tmp_path) == []


@pytest.mark.parametrize("form", [None, "append-log"])
@pytest.mark.parametrize("recorded", [("",), ("k.",), ()])
def test_part_of_artifact_can_be_loaded(
    kind: Kind,
    store: SnapshotStore,
    tmp_path: Path,
    form: str | None,
    recorded: tuple[str, ...],
) -> None:
    entries = [put(f"k.{letter}.{n}", b"v", n) for letter in "abc" for n in range(700)]
    store.apply(entries, at(700), meta=SnapshotMeta("KV_b@1", recorded, seen_evicting=True))
    store.export_to(tmp_path / "artifact", form=form)
    scope = Scope.of(["k.a.", "k.c."])
    with kind.imported(tmp_path / "artifact", tmp_path / "copy", scope=scope) as copy:
        assert contents(copy) == {k: v for k, v in contents(store).items() if k[2] in "ac"}
        assert (copy.cursor, copy.count()) == (at(700), 1400)
        assert copy.meta == SnapshotMeta("KV_b@1", scope.prefixes, seen_evicting=True)
    assert staged(tmp_path) == []


def test_artifact_with_smaller_scope_is_refused(
    kind: Kind, filled: SnapshotStore, tmp_path: Path
) -> None:
    filled.export_to(tmp_path / "artifact")
    for scope in (Scope.all(), Scope.prefix("x."), Scope.of(["k.", "x."])):
        with pytest.raises(ArtifactInvalid, match="prefixes"):
            kind.imported(tmp_path / "artifact", tmp_path / "copy", scope=scope)
        assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("other", KINDS)
def test_append_log_form_becomes_store_of_any_kind(
    filled: SnapshotStore, tmp_path: Path, other: str
) -> None:
    filled.export_to(tmp_path / "artifact", form="append-log")
    with KINDS[other].imported(tmp_path / "artifact", tmp_path / "copy") as copy:
        assert contents(copy) == contents(filled)
        assert copy.cursor == filled.cursor
        assert copy.meta == ORIGIN


def test_append_log_form_is_the_same_bytes_from_every_store(
    filled: SnapshotStore, tmp_path: Path
) -> None:
    manifest = filled.export_to(tmp_path / "artifact", form="append-log", created_at=1)
    with KINDS["memory"].open("") as memory:
        memory.apply([put(f"k.{n}", b"v" * n, n) for n in range(300) if n != 5], at(1))
        memory.apply([put("x" * 600, b"", token=b"0123456789")], at(301))
        expected = memory.export_to(tmp_path / "expected", created_at=1)
    assert manifest == expected


def test_empty_store_has_artifact(kind: Kind, store: SnapshotStore, tmp_path: Path) -> None:
    assert store.export_to(tmp_path / "artifact").cursor == WatchCursor.NONE
    with kind.imported(tmp_path / "artifact", tmp_path / "copy") as copy:
        assert contents(copy) == {}
        assert copy.cursor == WatchCursor.NONE


def test_export_overwrites_nothing(kind: Kind, filled: SnapshotStore, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("taken", "file"):
        with pytest.raises(DestinationTaken):
            filled.export_to(tmp_path / name)
    filled.export_to(tmp_path / "artifact")
    if kind.durable:
        for name in ("taken", "file"):
            with pytest.raises(DestinationTaken):
                kind.imported(tmp_path / "artifact", tmp_path / name)
    assert (tmp_path / "taken" / "mine").read_text() == "mine"
    assert (tmp_path / "file").read_text() == "mine"


def test_empty_directory_may_be_destination(
    kind: Kind, filled: SnapshotStore, tmp_path: Path
) -> None:
    (tmp_path / "artifact").mkdir()
    (tmp_path / "copy").mkdir()
    filled.export_to(tmp_path / "artifact")
    with kind.imported(tmp_path / "artifact", tmp_path / "copy") as copy:
        assert copy.count() == filled.count()


def refused(kind: Kind, tmp_path: Path, reason: str) -> None:
    with pytest.raises(ArtifactInvalid, match=reason):
        kind.imported(tmp_path / "artifact", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert staged(tmp_path) == []


def test_changed_byte_anywhere_is_detected(
    kind: Kind, filled: SnapshotStore, tmp_path: Path
) -> None:
    manifest = filled.export_to(tmp_path / "artifact")
    paths = [tmp_path / "artifact" / file.path for file in manifest.files]
    with_bytes = [path for path in paths if path.stat().st_size]
    assert with_bytes
    for path in with_bytes:
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        refused(kind, tmp_path, "not what the manifest says")
        path.write_bytes(good)


def test_missing_extra_and_unexpected_files_are_refused(
    kind: Kind, filled: SnapshotStore, tmp_path: Path
) -> None:
    filled.export_to(tmp_path / "artifact")
    surplus = tmp_path / "artifact" / "data" / "surplus"
    surplus.write_bytes(b"")
    refused(kind, tmp_path, "declared or there")
    surplus.unlink()
    os.symlink("/etc/passwd", surplus)
    refused(kind, tmp_path, "neither a file nor a directory")
    surplus.unlink()
    some = next((tmp_path / "artifact" / "data").iterdir())
    some.unlink()
    refused(kind, tmp_path, "declared or there")
    (tmp_path / "artifact" / "MANIFEST.json").unlink()
    refused(kind, tmp_path, "no manifest")


def test_cursor_that_differs_from_payload_is_refused(
    kind: Kind, filled: SnapshotStore, tmp_path: Path
) -> None:
    manifest = filled.export_to(tmp_path / "artifact")
    lie = msgspec.structs.replace(manifest, cursor_hex=at(999).raw.hex())
    (tmp_path / "artifact" / "MANIFEST.json").write_bytes(lie.encode())
    refused(kind, tmp_path, "cursor is not the manifest's")


def test_artifact_of_unknown_backend_is_refused_by_name(
    kind: Kind, filled: SnapshotStore, tmp_path: Path
) -> None:
    manifest = filled.export_to(tmp_path / "artifact")
    foreign = msgspec.structs.replace(manifest, backend="fjall", backend_version="3")
    (tmp_path / "artifact" / "MANIFEST.json").write_bytes(foreign.encode())
    with pytest.raises(BackendMismatch, match="a fjall artifact"):
        kind.imported(tmp_path / "artifact", tmp_path / "copy")


def test_another_generation_of_format_is_refused(
    kind: Kind, filled: SnapshotStore, tmp_path: Path
) -> None:
    manifest = filled.export_to(tmp_path / "artifact", form="append-log")
    newer = msgspec.structs.replace(manifest, backend_version="3")
    (tmp_path / "artifact" / "MANIFEST.json").write_bytes(newer.encode())
    with pytest.raises(BackendMismatch, match="format 3"):
        kind.imported(tmp_path / "artifact", tmp_path / "copy")


def test_payload_that_is_not_store_is_artifact_error(
    kind: Kind, filled: SnapshotStore, tmp_path: Path
) -> None:
    from penstock.fold.artifact.atomic_dir import hashed

    manifest = filled.export_to(tmp_path / "artifact", form="append-log")
    payload = tmp_path / "artifact" / "data" / "fold.snap"
    payload.write_bytes(b"PG")
    size, digest = hashed(payload)
    file = msgspec.structs.replace(manifest.files[0], size=size, blake3=digest)
    told = msgspec.structs.replace(manifest, files=[file])
    (tmp_path / "artifact" / "MANIFEST.json").write_bytes(told.encode())
    with pytest.raises(ArtifactInvalid):
        kind.imported(tmp_path / "artifact", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert staged(tmp_path) == []
