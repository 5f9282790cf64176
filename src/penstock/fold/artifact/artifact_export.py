"""Exports a store as an artifact: copies it, opens and compares the copy, and adds checksums.

Invariant: a visible artifact is complete. It is assembled in a hidden directory, its manifest is
written last, and one rename makes it visible. Its cursor is the store's cursor, checked on the
copy. `SnapshotStore.export_to` calls this module; the caller must not apply updates meanwhile.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.fold.artifact.atomic_dir import check_free, put_in_place, sealed_files, staged_beside
from penstock.fold.artifact.manifest import (
    EXTRA_FILE,
    MANIFEST_FILE,
    PAYLOAD_DIRECTORY,
    SCHEMA_VERSION,
    Extra,
    Manifest,
    encode_extra,
)
from penstock.fold.errors import ArtifactInvalid, FoldStoreError
from penstock.fold.store import pgss
from penstock.fold.store.atomic_files import os_errors, replace, sync_directory, write_new
from penstock.fold.store.log_codec import encode_updates
from penstock.kv.kv_types import KvUpdate, Op

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.fold.store.contract import SnapshotStore

APPEND_LOG = "append-log"
APPEND_LOG_PAYLOAD = "fold.snap"


def export_store(
    store: SnapshotStore, dest: Path | str, *, form: str | None, created_at: int | None
) -> Manifest:
    """Export `store` to `dest` in its native form or as an append log."""
    dest = Path(dest)
    if form not in (None, store.backend, APPEND_LOG):
        raise BackendChoice(form, store.backend)
    check_free(dest)
    with staged_beside(dest) as stage:
        made = stage / "artifact"
        with os_errors(made):
            made.mkdir()
        native = form in (None, store.backend)
        copy = _copy_natively(store, made) if native else _copy_as_log(store, made)
        _compare(store, copy, native=native)
        manifest = Manifest(
            SCHEMA_VERSION,
            store.backend if native else APPEND_LOG,
            store.backend_version if native else str(pgss.VERSION),
            store.cursor.raw.hex(),
            int(time.time()) if created_at is None else created_at,
            sealed_files(made),
        )
        replace(made / EXTRA_FILE, [encode_extra(_extra(store))])
        replace(made / MANIFEST_FILE, [manifest.encode()])
        sync_directory(made)
        put_in_place(made, dest)
    return manifest


class BackendChoice(FoldStoreError):
    """The store cannot be exported in the requested form."""

    def __init__(self, form: str | None, backend: str) -> None:
        super().__init__(f"form {form!r}: a {backend} store exports as that or as {APPEND_LOG}")


def _copy_natively(store: SnapshotStore, made: Path) -> Path:
    data = made / PAYLOAD_DIRECTORY
    if not store.payload:
        store.copy_to(data)
        return data
    with os_errors(data):
        data.mkdir()
    store.copy_to(data / store.payload)
    return data / store.payload


def _copy_as_log(store: SnapshotStore, made: Path) -> Path:
    data = made / PAYLOAD_DIRECTORY
    with os_errors(data):
        data.mkdir()
    target = data / APPEND_LOG_PAYLOAD
    write_new(target, pgss.compacted(_records(store), store.cursor))
    return target


def _records(store: SnapshotStore) -> Iterator[bytes]:
    after = None
    while page := store.page(after=after):
        after = page[-1].key
        yield encode_updates(
            KvUpdate(Op.PUT, entry.key, entry.value, token=entry.version.raw) for entry in page
        )


def _compare(store: SnapshotStore, copy: Path, *, native: bool) -> None:
    """Open the copy; raise unless its cursor and entry count are those of the store."""
    if native and store.backend != APPEND_LOG:
        with store.open_copy(copy) as opened:
            cursor, entries = opened.cursor, opened.count()
    else:
        replay = pgss.replay(copy.read_bytes(), path=str(copy))
        cursor, entries = replay.cursor, len(replay.entries)
    if cursor != store.cursor or entries != store.count():
        raise ArtifactInvalid("the copy is not what the store is", path=copy, cursor=store.cursor)


def _extra(store: SnapshotStore) -> Extra:
    meta = store.meta
    return Extra(
        store.count(),
        meta.identity,
        meta.scope,
        meta.seen_evicting,
        meta.losses,
        meta.witnesses,
        keep=meta.keep,
        records=meta.records,
        doubt=meta.doubt,
    )
