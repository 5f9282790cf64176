"""Copies of folds for `penstock fold`: export, import, convert, compact, compare.

A source or destination is a directory, which then is the artifact, or a URL of an object store
(`s3://`, `gs://`, `az://`, `file://`) whose last part is the artifact's key. Nothing is
overwritten. Every byte of an import is checked.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock.cli.cli_errors import Failure, Misuse
from penstock.cli.folds.fold_files import described, facts
from penstock.cli.output import Facts, show_bytes, show_count

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator

    from penstock.cli.output import Screen
    from penstock.fold import ArtifactSource, Manifest, PublishedArtifact, SnapshotStore


@contextmanager
def meant() -> Iterator[None]:
    """Report an invalid name or address as an error of the command line."""
    try:
        yield
    except ValueError as error:
        raise Misuse(str(error)) from None


class TransferBar:
    """A progress bar that appears once the total is known."""

    def __init__(self, screen: Screen, title: str) -> None:
        self._screen = screen
        self._title = title
        self._stack = ExitStack()
        self._advance: Callable[[int], None] | None = None
        self._done = 0

    def __call__(self, done: int, total: int) -> None:
        if self._advance is None:
            bar = self._screen.progress(self._title, total, as_bytes=True)
            self._advance = self._stack.enter_context(bar)
        self._advance(done - self._done)
        self._done = done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


# -- locations


def is_url(place: str) -> bool:
    return "://" in place


def storage_options(options: Namespace) -> dict[str, Any]:
    """Return the settings of the object store; those of its HTTP client begin with `client.`."""
    found: dict[str, Any] = {}
    for name, value in options.storage_option or ():
        if name.startswith("client."):
            clients = found.setdefault("client_options", {})
            clients[name.removeprefix("client.")] = value
        else:
            found[name] = value
    return found


def published_at(url: str, options: Namespace, bar: TransferBar) -> PublishedArtifact:
    from penstock.fold import artifact_at

    with meant():
        return artifact_at(url, progress=bar, **storage_options(options))


def source_at(place: str, options: Namespace, bar: TransferBar) -> ArtifactSource:
    """Return the source of an artifact: a directory that is one or contains some, or a URL."""
    from penstock.fold import LocalArtifacts

    if is_url(place):
        return published_at(place, options, bar)
    if not Path(place).is_dir():
        raise Failure(f"{place}: there is no such directory")
    return LocalArtifacts(place)


def _opened(path: str) -> SnapshotStore:
    """Open the store at a path as its only writer."""
    from penstock.fold.artifact.store_detect import kind_at

    return kind_at(path).open(path)


def _kind(backend: str) -> type[SnapshotStore]:
    from penstock.fold.follow.open_target import backend_of

    return backend_of(backend)


# -- commands


def export(screen: Screen, options: Namespace) -> None:
    outcome = "exported"
    with _opened(options.path) as store:
        if is_url(options.dest):
            manifest, outcome = asyncio.run(_ship(screen, store, options))
        else:
            manifest = store.export_to(options.dest, form=options.form)
    document = {"outcome": outcome, "place": options.dest, **_manifest_document(manifest)}
    rows = [("outcome", outcome), ("place", options.dest), *_manifest_rows(manifest)]
    screen.answer(document, Facts(f"Artifact of {options.path}", rows))


async def _ship(screen: Screen, store: SnapshotStore, options: Namespace) -> tuple[Manifest, str]:
    from penstock.fold import Published
    from penstock.fold.artifact.atomic_dir import staged_beside

    with (
        TransferBar(screen, f"Uploading {options.path}") as bar,
        staged_beside(Path(options.path)) as stage,
    ):
        place = published_at(options.dest, options, bar)
        manifest = store.export_to(stage / "artifact", form=options.form)
        outcome = await place.transport.upload(place.key, stage / "artifact", progress=bar)
    return manifest, "published" if isinstance(outcome, Published) else "a newer one is there"


def import_(screen: Screen, options: Namespace) -> None:
    asyncio.run(_import(screen, options))


async def _import(screen: Screen, options: Namespace) -> None:
    from penstock.fold import bootstrap

    with TransferBar(screen, f"Fetching {options.source}") as bar:
        source = source_at(options.source, options, bar)
        manifest = await source.latest()
        if manifest is None:
            store = await _import_shards(options, bar)
        else:
            kind = _kind(options.backend or manifest.backend)
            store = await bootstrap(source, options.path, kind)
    _show_store(screen, store, Path(options.path))


async def _import_shards(options: Namespace, bar: TransferBar) -> SnapshotStore:
    """Create one fold from all shards that a job has published below a name."""
    from penstock.fold.artifact.artifact_export import APPEND_LOG
    from penstock.fold.artifact.atomic_dir import check_free, staged_beside
    from penstock.fold.artifact.shards import import_shards
    from penstock.fold.ship.artifact_transport import transport_for

    place, slash, name = options.source.rstrip("/").rpartition("/")
    with meant():
        transport = transport_for(place or slash or ".", **storage_options(options))
    keys = await transport.keys(name)
    if not keys:
        raise Failure(f"{options.source}: there is no artifact")
    path = Path(options.path)
    check_free(path)
    with staged_beside(path) as stage:
        parts = [stage / f"shard-{number}" for number in range(len(keys))]
        for key, part in zip(keys, parts, strict=True):
            await transport.download(key, part, progress=bar)
        return import_shards(_kind(options.backend or APPEND_LOG), parts, path)


def convert(screen: Screen, options: Namespace) -> None:
    from penstock.fold.artifact.atomic_dir import check_free, staged_beside

    path = Path(options.dest)
    check_free(path)
    with _opened(options.path) as store, staged_beside(path) as stage:
        store.export_to(stage / "artifact", form="append-log")
        made = _kind(options.backend).import_from(stage / "artifact", path)
    _show_store(screen, made, path)


def compact(screen: Screen, options: Namespace) -> None:
    from penstock.fold.artifact.store_detect import bytes_at

    before = bytes_at(options.path)
    with _opened(options.path) as store:
        store.compact()
    after = bytes_at(options.path)
    document = {"path": options.path, "bytes_before": before, "bytes": after}
    text = f"{options.path}: {show_bytes(before)} before, {show_bytes(after)} now"
    screen.answer(document, text)


def _show_store(screen: Screen, store: SnapshotStore, path: Path) -> None:
    with store:
        document = described(store, path)
    screen.answer(document, facts(document))


def _manifest_document(manifest: Manifest) -> dict[str, Any]:
    return {
        "backend": manifest.backend,
        "cursor": manifest.cursor.rank,
        "created_at": manifest.created_at_unix,
        "files": len(manifest.files),
        "bytes": sum(file.size for file in manifest.files),
    }


def _manifest_rows(manifest: Manifest) -> list[tuple[str, str]]:
    document = _manifest_document(manifest)
    return [
        ("backend", document["backend"]),
        ("revision", show_count(document["cursor"])),
        ("files", show_count(document["files"])),
        ("size", show_bytes(document["bytes"])),
    ]


# -- comparison


def verified(screen: Screen, options: Namespace) -> dict[str, Any]:
    """Read a fold or an artifact completely; compare it with an artifact if one is named."""
    from penstock.fold import digest_of
    from penstock.fold.artifact.store_detect import is_artifact, open_reader

    if is_url(options.path) or is_artifact(options.path):
        cursor, digest = asyncio.run(_digest_of_artifact(screen, options.path, options))
        document: dict[str, Any] = {"path": options.path, "cursor": cursor, "digest": digest}
    else:
        with open_reader(options.path) as fold:
            document = described(fold, Path(options.path)) | {"digest": digest_of(fold)}
    if options.artifact:
        theirs = asyncio.run(_digest_of_artifact(screen, options.artifact, options))
        document |= _compared(document, theirs)
    return document


def _compared(document: dict[str, Any], theirs: tuple[int, str]) -> dict[str, Any]:
    cursor, digest = theirs
    if cursor != document["cursor"]:
        raise Failure(
            f"the artifact is at revision {cursor}, {document['path']} at {document['cursor']}: "
            "copies can be compared at one revision only"
        )
    if digest != document["digest"]:
        raise Failure(f"at revision {cursor} the artifact and {document['path']} differ")
    return {"agree": True}


async def _digest_of_artifact(screen: Screen, place: str, options: Namespace) -> tuple[int, str]:
    from tempfile import TemporaryDirectory

    from penstock.fold.ship.fleet_status import digest_of_artifact

    with TransferBar(screen, f"Fetching {place}") as bar, TemporaryDirectory() as scratch:
        artifact = Path(scratch) / "artifact"
        await source_at(place, options, bar).fetch(artifact)
        cursor, digest = digest_of_artifact(artifact)
    return cursor.rank, digest
