"""Pruning: only what can never be published again goes, and only after a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.fold.ship.pointer import Published, payload_name
from support.transport import KEY, artifact

if TYPE_CHECKING:
    from pathlib import Path

    from support.transport import Place

LONG = 3600.0


async def uploaded(place: Place, directory: Path, cursor: int) -> str:
    """A payload is there; whether it is published depends on the others."""
    artifact(directory, cursor)
    name = payload_name((directory / "MANIFEST.json").read_bytes())
    before = await place.pointer()
    if before is not None:
        await place.set_pointer(b"")
    assert await place.transport().upload(KEY, directory) == Published()
    if before is not None:
        await place.set_pointer(before)
    return name


async def test_objects_older_than_pointer_are_removed(place: Place, tmp_path: Path) -> None:
    for cursor in (3, 4, 5):
        artifact(tmp_path / f"{cursor}", cursor)
        await place.transport().upload(KEY, tmp_path / f"{cursor}")
    assert await place.transport().prune(KEY, grace=0) == 2
    newest = payload_name((tmp_path / "5" / "MANIFEST.json").read_bytes())
    assert await place.payloads() == {newest}
    assert await place.transport().prune(KEY, grace=0) == 0


async def test_young_files_stay(place: Place, tmp_path: Path) -> None:
    for cursor in (3, 5):
        artifact(tmp_path / f"{cursor}", cursor)
        await place.transport().upload(KEY, tmp_path / f"{cursor}")
    assert await place.transport().prune(KEY, grace=LONG) == 0
    assert len(await place.payloads()) == 2


async def test_publishable_writes_stay(place: Place, tmp_path: Path) -> None:
    older = await uploaded(place, tmp_path / "old", 3)
    published = await uploaded(place, tmp_path / "now", 5)
    await place.set_pointer((tmp_path / "now" / "MANIFEST.json").read_bytes())
    newer = await uploaded(place, tmp_path / "new", 7)
    artifact(tmp_path / "same", 5, value=b"other")
    same = payload_name((tmp_path / "same" / "MANIFEST.json").read_bytes())
    await place.set_payload(same, tmp_path / "same" / "MANIFEST.json")
    assert await place.transport().prune(KEY, grace=0) == 1
    assert await place.payloads() == {published, newer, same}
    assert older not in await place.payloads()


async def test_without_pointer_nothing_goes(place: Place, tmp_path: Path) -> None:
    assert await place.transport().prune(KEY, grace=0) == 0
    await uploaded(place, tmp_path / "a", 3)
    await place.set_pointer(b"spoilt")
    assert await place.transport().prune(KEY, grace=0) == 0
    assert len(await place.payloads()) == 1


async def test_foreign_files_stay(place: Place, tmp_path: Path) -> None:
    await uploaded(place, tmp_path / "a", 5)
    (tmp_path / "file").write_bytes(b"")
    for name in ("readme", "0-0.tar", "00000000000000zz-0000000000000000.tar"):
        await place.set_payload(name, tmp_path / "file")
    assert await place.transport().prune(KEY, grace=0) == 0


async def test_remains_of_killed_upload_are_removed_with_its_rank(
    place: Place, tmp_path: Path
) -> None:
    await uploaded(place, tmp_path / "a", 5)
    (tmp_path / "file").write_bytes(b"")
    for rank in (4, 5, 6):
        left = f"{rank:016x}-0123456789abcdef.tar.17-23"
        await place.set_payload(left, tmp_path / "file")
    assert await place.transport().prune(KEY, grace=0) == 1
    assert len(await place.payloads()) == 3
