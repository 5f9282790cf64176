"""A round: the member that wins the lease publishes, and leaves nothing on any path."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from penstock.fold import (
    AppendLogSnapshot,
    ExportLease,
    Manifest,
    Published,
    StoreIOError,
    Superseded,
    TransportError,
    export_round,
)
from penstock.fold.artifact.atomic_dir import STAGE_PREFIX, staged_beside
from penstock.fold.ship.artifact_transport import ArtifactTransport
from penstock.fold.ship.export_round import repeat_rounds
from penstock.fold.ship.local_objects import LocalObjects
from support.folds import at, put
from support.memory_bucket import MemoryBucket
from support.transport import artifact

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from penstock.fold import ExportRound, SnapshotStore
    from penstock.fold.ship.object_store import Progress

KEY = "edge"
TTL = 60.0


class Exports:
    """Exports a store, as a fold does between two batches."""

    def __init__(self, store: SnapshotStore) -> None:
        self.store = store
        self.fails: Exception | None = None

    async def export_to(self, dest: Path, *, form: str | None = None) -> Manifest:
        if self.fails is not None:
            raise self.fails
        return await asyncio.to_thread(self.store.export_to, dest, form=form)


class Spoilt(LocalObjects):
    """Objects on whose upload something happens."""

    during: Callable[[], Awaitable[None]]

    async def upload(self, path: str, file: Path, progress: Progress) -> None:
        await self.during()
        await super().upload(path, file, progress)


class Setting:
    """All that a round needs, on one machine."""

    def __init__(self, directory: Path, store: SnapshotStore) -> None:
        self.scratch = directory / "scratch"
        self.scratch.mkdir()
        self.now = 1_000_000.0
        self.lease = ExportLease(MemoryBucket(), "lease", "me", now=lambda: self.now)
        self.exports = Exports(store)
        self.objects = Spoilt(directory / "published")
        self.objects.during = self.nothing
        self.transport = ArtifactTransport(self.objects)

    async def nothing(self) -> None:
        pass

    async def round(self) -> ExportRound | None:
        return await export_round(self.lease, TTL, self.exports, self.transport, KEY, self.scratch)

    def advance(self, revision: int) -> None:
        self.exports.store.apply([put("k", b"v", revision)], at(revision))
        self.now += TTL

    def left(self) -> list[str]:
        return [path.name for path in self.scratch.iterdir()]

    async def payloads(self) -> int:
        return len([one async for one in self.objects.listed(f"{KEY}.payloads")])


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    with AppendLogSnapshot.open(tmp_path / "fold") as store:
        store.apply([put("k", b"v", 5)], at(5))
        yield Setting(tmp_path, store)


async def test_round_publishes_and_reports_it(setting: Setting) -> None:
    done = await setting.round()
    assert done is not None
    assert done.outcome == Published()
    assert await setting.transport.manifest(KEY) == done.manifest
    record = await setting.lease.current()
    assert record is not None
    assert record.completed_cursor_hex == at(5).raw.hex()
    assert setting.left() == []


async def test_there_is_one_round_in_its_time(setting: Setting) -> None:
    assert await setting.round() is not None
    assert await setting.round() is None
    setting.advance(6)
    again = await setting.round()
    assert again is not None
    assert again.manifest.cursor == at(6)


async def test_round_that_is_overtaken_is_done(setting: Setting, tmp_path: Path) -> None:
    artifact(tmp_path / "newer", 9)

    async def overtake() -> None:
        await ArtifactTransport(LocalObjects(tmp_path / "published")).upload(
            KEY, tmp_path / "newer"
        )

    setting.objects.during = overtake
    done = await setting.round()
    assert done is not None
    assert done.outcome == Superseded(at(9))
    record = await setting.lease.current()
    assert record is not None
    assert record.completed_cursor_hex == at(5).raw.hex()


async def test_round_that_cannot_export_is_given_back(setting: Setting) -> None:
    setting.exports.fails = StoreIOError("disk full")
    with pytest.raises(StoreIOError):
        await setting.round()
    assert setting.left() == []
    setting.exports.fails = None
    assert await setting.round() is not None


async def test_round_that_cannot_upload_is_given_back(setting: Setting) -> None:
    async def fail() -> None:
        raise TransportError("gone")

    setting.objects.during = fail
    with pytest.raises(TransportError):
        await setting.round()
    assert setting.left() == []
    assert await setting.transport.manifest(KEY) is None
    setting.objects.during = setting.nothing
    assert await setting.round() is not None


async def test_round_that_is_cancelled_is_given_back(setting: Setting) -> None:
    begun = asyncio.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    setting.objects.during = hang
    task = asyncio.create_task(setting.round())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert setting.left() == []
    setting.objects.during = setting.nothing
    assert await setting.round() is not None


async def test_scratch_that_is_not_there_gives_round_back(setting: Setting) -> None:
    setting.scratch.rmdir()
    with pytest.raises(StoreIOError):
        await setting.round()
    setting.scratch.mkdir()
    assert await setting.round() is not None


async def test_rounds_follow_each_other_and_one_that_fails_ends_nothing(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    made: asyncio.Queue[int] = asyncio.Queue()
    fails = iter([True, False, True, False])

    async def sometimes() -> None:
        setting.now += 1
        if next(fails, False):
            raise TransportError("gone")
        made.put_nowait(1)

    setting.objects.during = sometimes
    scratch, transport = setting.scratch, setting.transport
    task = asyncio.create_task(
        repeat_rounds(setting.lease, 0.001, setting.exports, transport, KEY, scratch)
    )
    async with asyncio.timeout(10):
        for _ in range(3):
            await made.get()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert caplog.text.count("export round failed") == 2


async def test_remains_of_killed_round_are_swept(setting: Setting) -> None:
    dead, young = (setting.scratch / f"{STAGE_PREFIX}{name}" for name in ("dead", "young"))
    for stage in (dead, young):
        (stage / "artifact").mkdir(parents=True)
    os.utime(dead, (1, 1))
    with staged_beside(setting.scratch / "x") as alive:
        os.utime(alive, (1, 1))
        await setting.round()
        assert sorted(setting.left()) == sorted([alive.name, young.name])


async def test_old_payloads_go_after_some_rounds(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setting.round()
    setting.advance(6)
    young = await setting.round()
    assert young is not None
    assert young.pruned == 0
    monkeypatch.setattr("penstock.fold.ship.export_round.GRACE_ROUNDS", 0)
    setting.advance(7)
    late = await setting.round()
    assert late is not None
    assert late.pruned == 2
    assert await setting.payloads() == 1


async def test_tidying_that_fails_does_not_undo_round(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object, **__: object) -> int:
        raise TransportError("gone")

    monkeypatch.setattr(setting.transport, "prune", fail)
    done = await setting.round()
    assert done is not None
    assert done.outcome == Published()
    assert "old payloads remain" in caplog.text
