"""Publishing: the pointer never goes back, and names what is there; of racers, the newest wins."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from penstock.fold import ArtifactInvalid, TransportError
from penstock.fold.artifact.atomic_dir import STAGE_PREFIX
from penstock.fold.ship.artifact_transport import SWAP_ATTEMPTS_MAX, ArtifactTransport
from penstock.fold.ship.pointer import Published, Superseded, payload_name
from support.folds import at
from support.transport import KEY, artifact

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.fold.ship.object_store import Objects, Seen
    from support.transport import Place

RACERS = 8


class Interrupted:
    """Objects between whose reading and swapping something happens, some times."""

    def __init__(self, inner: Objects, place: Place, pointers: list[bytes]) -> None:
        self._inner = inner
        self._place = place
        self._pointers = pointers

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def swap(self, path: str, body: bytes, seen: Seen | None) -> bool:
        if self._pointers:
            await self._place.set_pointer(self._pointers.pop(0))
        return await self._inner.swap(path, body, seen)


def interrupted(place: Place, pointers: list[bytes]) -> ArtifactTransport:
    return ArtifactTransport(Interrupted(place.objects(), place, pointers))  # type: ignore[arg-type]


def manifest_bytes(path: Path) -> bytes:
    return (path / "MANIFEST.json").read_bytes()


async def test_pointer_is_manifest_and_names_payload_path(place: Place, tmp_path: Path) -> None:
    manifest = artifact(tmp_path / "a", 5)
    assert await place.transport().manifest(KEY) is None
    assert await place.transport().upload(KEY, tmp_path / "a") == Published()
    assert await place.transport().manifest(KEY) == manifest
    assert await place.pointer() == manifest_bytes(tmp_path / "a")
    assert await place.payloads() == {payload_name(manifest_bytes(tmp_path / "a"))}


async def test_older_artifact_does_not_replace_newer_one(place: Place, tmp_path: Path) -> None:
    newer, _ = artifact(tmp_path / "new", 7), artifact(tmp_path / "old", 6)
    await place.transport().upload(KEY, tmp_path / "new")
    assert await place.transport().upload(KEY, tmp_path / "old") == Superseded(at(7))
    assert await place.transport().manifest(KEY) == newer


async def test_artifact_of_the_same_cursor_replaces_another(place: Place, tmp_path: Path) -> None:
    artifact(tmp_path / "one", 5)
    two = artifact(tmp_path / "two", 5, value=b"other")
    await place.transport().upload(KEY, tmp_path / "one")
    assert await place.transport().upload(KEY, tmp_path / "two") == Published()
    assert await place.transport().manifest(KEY) == two


async def test_slow_exporter_is_overtaken_between_its_upload_and_swap(
    place: Place, tmp_path: Path
) -> None:
    artifact(tmp_path / "old", 5)
    artifact(tmp_path / "slow", 6)
    artifact(tmp_path / "fast", 9)
    await place.transport().upload(KEY, tmp_path / "old")
    transport = interrupted(place, [manifest_bytes(tmp_path / "fast")])
    assert await transport.upload(KEY, tmp_path / "slow") == Superseded(at(9))
    assert await place.pointer() == manifest_bytes(tmp_path / "fast")


async def test_first_to_publish_may_find_that_it_was_not(place: Place, tmp_path: Path) -> None:
    artifact(tmp_path / "slow", 6)
    artifact(tmp_path / "fast", 9)
    transport = interrupted(place, [manifest_bytes(tmp_path / "fast")])
    assert await transport.upload(KEY, tmp_path / "slow") == Superseded(at(9))


async def test_race_lost_to_older_one_is_run_again(place: Place, tmp_path: Path) -> None:
    for cursor in range(1, 6):
        artifact(tmp_path / f"{cursor}", cursor)
    others = [manifest_bytes(tmp_path / f"{cursor}") for cursor in range(1, 5)]
    assert await interrupted(place, others).upload(KEY, tmp_path / "5") == Published()
    assert await place.pointer() == manifest_bytes(tmp_path / "5")


async def test_races_are_given_up_after_while(place: Place, tmp_path: Path) -> None:
    artifact(tmp_path / "a", 5)
    others = [b"{%d}" % n for n in range(SWAP_ATTEMPTS_MAX)]
    with pytest.raises(TransportError, match="races"):
        await interrupted(place, others).upload(KEY, tmp_path / "a")


@pytest.mark.parametrize("pointer", [b"", b"{}", b"\xff\xfe", b'{"schema_version": 9}'])
async def test_unreadable_pointer_is_replaced(place: Place, tmp_path: Path, pointer: bytes) -> None:
    manifest = artifact(tmp_path / "a", 5)
    await place.set_pointer(pointer)
    with pytest.raises(ArtifactInvalid):
        await place.transport().manifest(KEY)
    assert await place.transport().upload(KEY, tmp_path / "a") == Published()
    assert await place.transport().manifest(KEY) == manifest


async def test_pointer_too_long_to_be_one_is_left_alone(place: Place, tmp_path: Path) -> None:
    artifact(tmp_path / "a", 5)
    await place.set_pointer(b" " * ((1 << 20) + 1))
    with pytest.raises(ArtifactInvalid, match="longer"):
        await place.transport().upload(KEY, tmp_path / "a")


async def test_newest_of_concurrent_uploads_remains(place: Place, tmp_path: Path) -> None:
    for cursor in range(1, RACERS + 1):
        artifact(tmp_path / f"{cursor}", cursor)
    outcomes = await asyncio.gather(
        *(place.transport().upload(KEY, tmp_path / f"{cursor}") for cursor in range(1, RACERS + 1))
    )
    assert outcomes[-1] == Published()
    for outcome, cursor in zip(outcomes, range(1, RACERS + 1), strict=True):
        assert outcome == Published() or (
            isinstance(outcome, Superseded) and outcome.cursor.rank > cursor
        )
    assert await place.pointer() == manifest_bytes(tmp_path / f"{RACERS}")
    fetched = await place.transport().download(KEY, tmp_path / "fetched")
    assert fetched.cursor == at(RACERS)


async def test_same_artifact_published_twice_is_one(place: Place, tmp_path: Path) -> None:
    artifact(tmp_path / "a", 5)
    for _ in range(2):
        assert await place.transport().upload(KEY, tmp_path / "a") == Published()
    assert len(await place.payloads()) == 1


async def test_artifact_that_is_not_whole_is_not_published(place: Place, tmp_path: Path) -> None:
    artifact(tmp_path / "a", 5)
    (tmp_path / "a" / "data" / "fold.snap").write_bytes(b"something else")
    with pytest.raises(ArtifactInvalid, match="not those of the manifest"):
        await place.transport().upload(KEY, tmp_path / "a")
    with pytest.raises(ArtifactInvalid, match="no manifest"):
        await place.transport().upload(KEY, tmp_path / "a" / "data")
    assert await place.pointer() is None
    assert await place.payloads() == set()


async def test_nothing_remains_beside_artifact(place: Place, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    artifact(tmp_path / "made" / "a", 5)
    await place.transport().upload(KEY, tmp_path / "made" / "a")
    names = [path.name for path in (tmp_path / "made").iterdir()]
    assert not [name for name in names if name.startswith(STAGE_PREFIX)]


async def test_progress_grows_to_whole(place: Place, tmp_path: Path) -> None:
    artifact(tmp_path / "a", 5, value=b"v" * (4 << 20))
    told: list[tuple[int, int]] = []
    await place.transport().upload(KEY, tmp_path / "a", progress=lambda *one: told.append(one))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] > 20 << 20
    told.clear()
    fetched = tmp_path / "fetched"
    await place.transport().download(KEY, fetched, progress=lambda *one: told.append(one))
    assert len(told) >= 3
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]


async def test_keys_are_apart(place: Place, tmp_path: Path) -> None:
    artifact(tmp_path / "a", 9)
    artifact(tmp_path / "b", 5)
    await place.transport().upload("edge", tmp_path / "a")
    assert await place.transport().upload("edge/deeper", tmp_path / "b") == Published()
    await place.transport().prune("edge", grace=0)
    assert (await place.transport().download("edge/deeper", tmp_path / "got")).cursor == at(5)
