"""Fetching: what arrives is the artifact that was published, or nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from penstock.fold import ArtifactInvalid, DestinationTaken
from penstock.fold.ship.artifact_transport import ArtifactTransport, PublishedArtifact
from penstock.fold.ship.bootstrap import bootstrap
from penstock.fold.ship.object_store import unheard
from penstock.fold.ship.pointer import payload_name
from support.folds import KINDS, at, contents, put
from support.transport import KEY, artifact

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from penstock.fold.ship.object_store import Objects, Progress
    from support.transport import Place


def everything_below(root: Path) -> dict[str, bytes]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


async def published(place: Place, directory: Path, cursor: int = 5) -> str:
    """The name of the payload of an artifact that was just published."""
    artifact(directory, cursor)
    await place.transport().upload(KEY, directory)
    return payload_name((directory / "MANIFEST.json").read_bytes())


async def payload_of(place: Place, name: str, file: Path) -> bytes:
    await place.objects().download(f"{KEY}.payloads/{name}", file, unheard)
    return everything_below(file.parent)[file.name]


def hidden(directory: Path) -> list[Path]:
    return list(directory.glob(".*"))


@pytest.mark.parametrize("kind", ["append-log", "rocksdb"])
async def test_fetched_bytes_equal_published_bytes(place: Place, tmp_path: Path, kind: str) -> None:
    manifest = artifact(tmp_path / "a", 300, kind=kind)
    await place.transport().upload(KEY, tmp_path / "a")
    assert await place.transport().download(KEY, tmp_path / "b") == manifest
    assert everything_below(tmp_path / "b") == everything_below(tmp_path / "a")


async def test_fetch_ends_in_place_that_is_free(place: Place, tmp_path: Path) -> None:
    await published(place, tmp_path / "a")
    (tmp_path / "empty").mkdir()
    await place.transport().download(KEY, tmp_path / "empty")
    with pytest.raises(DestinationTaken):
        await place.transport().download(KEY, tmp_path / "empty")


async def test_nothing_published_is_reported(place: Place, tmp_path: Path) -> None:
    source = PublishedArtifact(place.transport(), KEY)
    assert await source.latest() is None
    with pytest.raises(ArtifactInvalid, match="no artifact is published"):
        await source.fetch(tmp_path / "b")
    assert everything_below(tmp_path) == {}
    assert hidden(tmp_path) == []


async def test_payload_that_was_removed_is_reported(place: Place, tmp_path: Path) -> None:
    name = await published(place, tmp_path / "a")
    await place.objects().delete(f"{KEY}.payloads/{name}")
    with pytest.raises(ArtifactInvalid, match="missing"):
        await place.transport().download(KEY, tmp_path / "b")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("cut", [0, 1, 511, 512, 700, 1024, 2048, 2600])
async def test_truncated_payload_is_refused(place: Place, tmp_path: Path, cut: int) -> None:
    name = await published(place, tmp_path / "a")
    whole = await payload_of(place, name, tmp_path / "whole")
    (tmp_path / "part").write_bytes(whole[:cut])
    await place.set_payload(name, tmp_path / "part")
    with pytest.raises(ArtifactInvalid):
        await place.transport().download(KEY, tmp_path / "b")
    assert not (tmp_path / "b").exists()


async def test_changed_byte_of_payload_is_refused(place: Place, tmp_path: Path) -> None:
    name = await published(place, tmp_path / "a")
    whole = bytearray(await payload_of(place, name, tmp_path / "whole"))
    whole[whole.index(b"PGSS") + 60] ^= 1
    (tmp_path / "changed").write_bytes(whole)
    await place.set_payload(name, tmp_path / "changed")
    with pytest.raises(ArtifactInvalid, match="not what the manifest says"):
        await place.transport().download(KEY, tmp_path / "b")


async def test_payload_of_another_artifact_is_refused(place: Place, tmp_path: Path) -> None:
    other = await published(place, tmp_path / "a")
    await payload_of(place, other, tmp_path / "theirs")
    name = await published(place, tmp_path / "b", 6)
    await place.set_payload(name, tmp_path / "theirs")
    with pytest.raises(ArtifactInvalid, match="another artifact"):
        await place.transport().download(KEY, tmp_path / "c")


async def test_unreadable_pointer_is_refused(place: Place, tmp_path: Path) -> None:
    await published(place, tmp_path / "a")
    pointer = await place.pointer()
    assert pointer is not None
    for spoilt in (pointer[:-1], b"", pointer.replace(b"data/", b"../../"), b" " * (1 << 21)):
        await place.set_pointer(spoilt)
        with pytest.raises(ArtifactInvalid):
            await place.transport().download(KEY, tmp_path / "b")
    assert not (tmp_path / "b").exists()


class Overtaken:
    """Objects whose payloads are pruned at the moment a fetch begins."""

    def __init__(self, inner: Objects, before: Callable[[], Awaitable[object]]) -> None:
        self._inner = inner
        self._before = before

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def download(self, path: str, file: Path, progress: Progress) -> None:
        await self._before()
        await self._inner.download(path, file, progress)


async def test_fetch_overtaken_by_newer_artifact_takes_that(place: Place, tmp_path: Path) -> None:
    await published(place, tmp_path / "a")
    artifact(tmp_path / "newer", 6)

    async def overtake() -> None:
        await place.transport().upload(KEY, tmp_path / "newer")
        await place.transport().prune(KEY, grace=0)

    transport = ArtifactTransport(Overtaken(place.objects(), overtake))  # type: ignore[arg-type]
    assert (await transport.download(KEY, tmp_path / "b")).cursor == at(6)


async def test_store_of_any_kind_begins_with_what_is_published(
    place: Place, tmp_path: Path
) -> None:
    with KINDS["memory"].open("") as origin:
        origin.apply([put(f"k.{n}", os.urandom(40), n) for n in range(1, 200)], at(199))
        origin.export_to(tmp_path / "a")
        await place.transport().upload(KEY, tmp_path / "a")
        source = PublishedArtifact(place.transport(), KEY)
        for name in ("append-log", "sqlite", "lmdb"):
            kind = KINDS[name]
            with await bootstrap(source, tmp_path / name, kind.store, **kind.options) as store:
                assert contents(store) == contents(origin)
                assert store.cursor == at(199)
    assert hidden(tmp_path) == []
