"""Imports an artifact as a store; every byte is verified before the store is visible.

Artifacts are not trusted. The files are copied beside the destination and hashed on the way. The
copy is opened, and its cursor must be the manifest's; then one rename puts it in place. An
append-log artifact can be imported into a store of any kind by applying its records. An artifact
that covers more than the wanted scope is reduced to the scope before the rename.
"""

from __future__ import annotations

import mmap
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from penstock.fold.artifact.artifact_export import APPEND_LOG, APPEND_LOG_PAYLOAD
from penstock.fold.artifact.atomic_dir import (
    check_free,
    hashed,
    payload_files,
    put_in_place,
    read_bounded,
    staged_beside,
    sync_tree,
)
from penstock.fold.artifact.manifest import (
    EXTRA_BYTES_MAX,
    EXTRA_FILE,
    MANIFEST_BYTES_MAX,
    MANIFEST_FILE,
    PAYLOAD_DIRECTORY,
    Extra,
    Manifest,
    decode_extra,
    decode_manifest,
)
from penstock.fold.errors import (
    ArtifactInvalid,
    BackendMismatch,
    FoldCorruptedError,
    FoldFormatError,
)
from penstock.fold.store import pgss
from penstock.fold.store.atomic_files import os_errors
from penstock.fold.store.fold_meta import SnapshotMeta
from penstock.kv.kv_types import KvUpdate, Op, Scope, WatchCursor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.fold.store.contract import SnapshotStore

FOLD_UPDATES = 2_000
"""Number of append-log records applied to another store in one batch."""
_Store = TypeVar("_Store", bound="SnapshotStore")


def import_store(
    kind: type[_Store],
    artifact: Path | str,
    dest: Path | str,
    *,
    scope: Scope | None = None,
    **options: object,
) -> _Store:
    """Verify the artifact, create a store of `kind` at `dest`, and open it with `options`.

    With a `scope`, the store contains only the keys in scope and records that scope.
    """
    dest = Path(dest)
    check_free(dest)
    with verified(artifact, dest) as (manifest, extra, payload):
        made = _as_it_is(kind, manifest, payload)
        with _invalid_if_damaged():
            if made is not None:
                kind.check_payload(made)
            if made is None:
                made = payload.parent / "made"
                with kind.open(made) as store:
                    fold_log(store, _log_of(kind, manifest, payload))
                    store.finish_load()
            with kind.open(made) as store:
                _check(store, manifest, extra)
                extra = _cut_down(store, extra, scope)
        sync_tree(made.parent)
        put_in_place(made, dest)
    store = kind.open(dest, **options)
    _remember(store, extra)
    return store


def imported_in_memory(
    kind: type[_Store], artifact: Path | str, *, scope: Scope | None = None
) -> _Store:
    """Verify the artifact and apply it to a new store in memory."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        verified(artifact, Path(scratch) / "artifact") as (manifest, extra, payload),
        _invalid_if_damaged(),
    ):
        store = kind.open("")
        fold_log(store, _log_of(kind, manifest, payload))
        _check(store, manifest, extra)
        extra = _cut_down(store, extra, scope)
    _remember(store, extra)
    return store


@contextmanager
def verified(artifact: Path | str, beside: Path) -> Iterator[tuple[Manifest, Extra, Path]]:
    """Yield the manifest, the extra data and a verified copy of the payload beside a path."""
    artifact = Path(artifact)
    manifest = read_manifest(artifact)
    declared = {file.path for file in manifest.files}
    there = {path.relative_to(artifact).as_posix() for path in payload_files(artifact)}
    if declared != there:
        name = sorted(declared ^ there)[0]
        raise ArtifactInvalid(f"{name} is declared or there, not both", path=artifact)
    with staged_beside(beside) as stage:
        for file in manifest.files:
            copy = stage / file.path
            with os_errors(copy):
                copy.parent.mkdir(parents=True, exist_ok=True)
            if hashed(artifact / file.path, copy) != (file.size, file.blake3):
                raise ArtifactInvalid(f"{file.path} is not what the manifest says", path=artifact)
        yield manifest, _read_extra(artifact), stage / PAYLOAD_DIRECTORY


def read_manifest(artifact: Path | str) -> Manifest:
    data = read_bounded(Path(artifact) / MANIFEST_FILE, MANIFEST_BYTES_MAX)
    if data is None:
        raise ArtifactInvalid("there is no manifest", path=artifact)
    return decode_manifest(data)


def fold_log(store: SnapshotStore, log: Path) -> None:
    """Apply the records of a log to an empty store; set the cursor after the last record."""
    with os_errors(log), open(log, "rb") as file:
        if log.stat().st_size < len(pgss.HEADER):
            raise FoldFormatError("not an append log of a fold", path=log)
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with data:
        last = WatchCursor.NONE
        for batch, cursor in pgss.read_updates(data, FOLD_UPDATES, path=str(log)):
            last = last if cursor is None else cursor
            store.apply(batch, WatchCursor.NONE)
        store.apply([], last)


def _as_it_is(kind: type[SnapshotStore], manifest: Manifest, payload: Path) -> Path | None:
    """Return the path of the payload as a store of this kind, or None if it must be converted."""
    if manifest.backend != kind.backend:
        return None
    gated = kind.backend_version_gated
    if gated and manifest.backend_version != kind.backend_version:
        raise BackendMismatch(
            f"{manifest.backend} of format {manifest.backend_version}, not {kind.backend_version}"
        )
    return _single_file(payload, kind.payload) if kind.payload else payload


def _log_of(kind: type[SnapshotStore], manifest: Manifest, payload: Path) -> Path:
    if manifest.backend != APPEND_LOG:
        raise BackendMismatch(f"a {manifest.backend} artifact is no {kind.backend} store")
    if manifest.backend_version != str(pgss.VERSION):
        raise BackendMismatch(f"an append log of format {manifest.backend_version}")
    return _single_file(payload, APPEND_LOG_PAYLOAD)


def _single_file(payload: Path, name: str) -> Path:
    if [path.name for path in payload.iterdir()] != [name]:
        raise ArtifactInvalid(f"the payload is not the one file {name}")
    return payload / name


@contextmanager
def _invalid_if_damaged() -> Iterator[None]:
    """Convert format and corruption errors of the payload to ArtifactInvalid."""
    try:
        yield
    except (FoldFormatError, FoldCorruptedError) as error:
        raise ArtifactInvalid(f"the payload does not open: {error.reason}") from error


def _check(store: SnapshotStore, manifest: Manifest, extra: Extra) -> None:
    if store.cursor != manifest.cursor:
        raise ArtifactInvalid("the payload's cursor is not the manifest's", cursor=manifest.cursor)
    if extra.entries is not None and extra.entries != store.count():
        raise ArtifactInvalid(f"the payload has {store.count()} entries, not {extra.entries}")


def _cut_down(store: SnapshotStore, extra: Extra, scope: Scope | None) -> Extra:
    """Delete keys outside the scope; return the extra data of the reduced store."""
    if scope is None or scope.prefixes == (extra.scope or Scope.all().prefixes):
        return extra
    if extra.scope and not Scope(extra.scope).covers(scope):
        raise ArtifactInvalid(f"it is of the prefixes {extra.scope}, not of {scope.prefixes}")
    after = None
    while page := store.page(after=after):
        after = page[-1].key
        outside = [KvUpdate(Op.DELETE, one.key) for one in page if not scope.holds(one.key)]
        if outside:
            store.apply(outside, store.cursor)
    extra = msgspec.structs.replace(extra, scope=scope.prefixes)
    _remember(store, extra)
    store.compact()
    return extra


def _remember(store: SnapshotStore, extra: Extra) -> None:
    """Write the metadata from the artifact's extra data if the payload does not contain it."""
    meta = SnapshotMeta(
        extra.identity,
        extra.scope,
        extra.seen_evicting,
        losses=extra.losses,
        records=extra.records,
        witnesses=extra.witnesses,
        doubt=extra.doubt,
        keep=extra.keep,
    )
    if meta != store.meta and meta != SnapshotMeta():
        store.apply([], store.cursor, meta=meta)


def _read_extra(artifact: Path) -> Extra:
    data = read_bounded(artifact / EXTRA_FILE, EXTRA_BYTES_MAX)
    if data is None:
        return Extra()
    return decode_extra(data)
