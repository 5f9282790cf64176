"""An artifact may come from anywhere: what no export wrote is refused."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from blake3 import blake3

from penstock.fold import ArtifactInvalid, SqliteSnapshot
from penstock.fold.artifact.artifact_import import read_manifest
from penstock.fold.artifact.manifest import Extra, decode_extra, encode_extra
from penstock.fold.errors import FoldFormatError
from penstock.fold.store.fold_meta import SnapshotMeta, encode_meta, read_meta
from penstock.fold.store.log_witnesses import Witness
from penstock.kv.kv_types import KvUpdate, Op, WatchCursor

PATH = Path("fold")
EXTRA = Extra(3, "KV_b@1+x", ("",), losses=4, witnesses=(Witness(3, "k", 7),))


def exported(path: Path) -> Path:
    with SqliteSnapshot.open(path / "fold") as store:
        meta = SnapshotMeta("KV_b@1", ("",))
        store.apply([KvUpdate(Op.PUT, "k", b"v", 3)], WatchCursor.of(3), meta=meta)
        store.export_to(path / "artifact")
    return path / "artifact"


def test_written_records_are_read() -> None:
    assert decode_extra(encode_extra(EXTRA)) == EXTRA


def test_files_of_older_versions_have_no_checksum() -> None:
    older = b'{"entries":3,"identity":"KV_b@1","scope":[""],"seen_evicting":true}'
    assert decode_extra(older) == Extra(3, "KV_b@1", ("",), seen_evicting=True)


def test_no_flipped_bit_changes_what_is_read() -> None:
    data = encode_extra(EXTRA)
    for place in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        try:
            assert decode_extra(bytes(flipped)) == EXTRA, place
        except ArtifactInvalid:
            continue


def test_no_flipped_bit_and_no_cut_changes_metadata_of_store() -> None:
    meta = SnapshotMeta("KV_b@1", ("",), True, 4, None, (Witness(3, "k", 7),))
    data = encode_meta(meta)
    assert read_meta(data, PATH) == meta
    cuts = [data[:size] for size in range(1, len(data))]
    for place in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        cuts.append(bytes(flipped))
    for damaged in cuts:
        try:
            assert read_meta(damaged, PATH) == meta, damaged
        except FoldFormatError:
            continue


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE other (x)",
        "CREATE VIEW other AS SELECT * FROM data",
        "CREATE TRIGGER other AFTER INSERT ON data BEGIN DELETE FROM data; END",
    ],
)
def test_database_with_more_than_fold_is_refused(tmp_path: Path, statement: str) -> None:
    artifact = exported(tmp_path)
    payload = artifact / "data" / SqliteSnapshot.payload
    db = sqlite3.connect(payload)
    db.execute(statement)
    db.commit()
    db.close()
    old, data = read_manifest(artifact).files[0], payload.read_bytes()
    manifest = (artifact / "MANIFEST.json").read_text()
    manifest = manifest.replace(old.blake3, blake3(data).hexdigest())
    manifest = manifest.replace(f'"size": {old.size}', f'"size": {len(data)}')
    (artifact / "MANIFEST.json").write_text(manifest)
    with pytest.raises(ArtifactInvalid, match="other is not of a fold"):
        SqliteSnapshot.import_from(artifact, tmp_path / "made")


def test_schemas_are_not_trusted(tmp_path: Path) -> None:
    with SqliteSnapshot.import_from(exported(tmp_path), tmp_path / "made") as store:
        assert store._connection().execute("PRAGMA trusted_schema").fetchone() == (0,)
        assert store.count() == 1
