"""Folds that are shipped: rounds over a bucket's own lease, new machines, and old ones mended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from penstock.fold import (
    ArtifactInvalid,
    ExportLease,
    Fold,
    Published,
    PublishedArtifact,
    export_round,
    transport_for,
)
from penstock.kv.contract import BucketConfig
from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from penstock.fold.ship.artifact_transport import ArtifactTransport
    from penstock.kv.bucket import NatsBucket
    from support.kv import Maker

KEY = "edge/origins"
TTL = 300.0


@pytest.fixture
async def leases(make: Maker) -> NatsBucket:
    return await make()


@pytest.fixture
async def in_time() -> AsyncIterator[None]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        yield


@pytest.fixture
def transport(tmp_path: Path) -> ArtifactTransport:
    return transport_for(f"file://{tmp_path}/published")


def state(fold: Fold) -> dict[str, bytes]:
    return {entry.key: entry.value for entry in fold.range()}


@pytest.mark.usefixtures("in_time")
async def test_one_fleet_member_ships_and_new_machine_begins_with_it(
    bucket: NatsBucket, leases: NatsBucket, transport: ArtifactTransport, tmp_path: Path
) -> None:
    last = [await bucket.writer().put(f"k.{n}", b"%d" % n) for n in range(50)][-1]

    async def member(name: str) -> tuple[str, object]:
        scratch = tmp_path / name
        scratch.mkdir()
        async with Fold.open(bucket, scratch / "fold", backend="append-log") as fold:
            await fold.wait_for(last)
            lease = ExportLease(leases, "export", name)
            return name, await export_round(lease, TTL, fold, transport, KEY, scratch)

    rounds = await asyncio.gather(*(member(f"node-{n}") for n in range(3)))
    (done,) = [one for _, one in rounds if one is not None]
    assert done.outcome == Published()  # type: ignore[attr-defined]
    more = await bucket.writer().put("k.50", b"50")
    source = PublishedArtifact(transport, KEY)
    async with Fold.open(bucket, tmp_path / "new", bootstrap=source) as fold:
        begun_at = fold.cursor
        await fold.wait_for(more)
        assert begun_at.rank >= (last.revision or 0)
        assert state(fold) == {f"k.{n}": b"%d" % n for n in range(51)}
    assert [path.name for path in hidden(tmp_path)] == []


@pytest.mark.usefixtures("in_time")
async def test_new_machine_with_smaller_scope_begins_with_that_part(
    bucket: NatsBucket, transport: ArtifactTransport, tmp_path: Path
) -> None:
    for key in ("eu.1", "us.1", "eu.2", "us.2"):
        last = await bucket.writer().put(key, b"old")
    async with Fold.open(bucket, tmp_path / "whole") as fold:
        await fold.wait_for(last)
        await fold.export_to(tmp_path / "artifact")
    await transport.upload(KEY, tmp_path / "artifact")
    await bucket.writer().put("us.1", b"new")
    last = await bucket.writer().put("eu.1", b"new")
    source = PublishedArtifact(transport, KEY)
    for time in range(2):  # made from the artifact, then opened again
        async with Fold.open(bucket, tmp_path / "part", scope="eu.", bootstrap=source) as fold:
            await fold.wait_for(last)
            assert state(fold) == {"eu.1": b"new", "eu.2": b"old"}
            assert fold.status().repairs == 0
            await fold.export_to(tmp_path / f"part-{time}")
    await transport.upload("part", tmp_path / "part-1")
    part = PublishedArtifact(transport, "part")
    with pytest.raises(ArtifactInvalid, match="prefixes"):
        await Fold.open(bucket, tmp_path / "more", bootstrap=part).__aenter__()
    assert not (tmp_path / "more").exists()


@pytest.mark.usefixtures("in_time")
async def test_new_machine_has_values_bucket_dropped(
    make: Maker, leases: NatsBucket, transport: ArtifactTransport, tmp_path: Path
) -> None:
    bucket = await make(BucketConfig(max_bytes=4096, discard="old"))
    expected = {}
    async with Fold.open(bucket, tmp_path / "old") as fold:
        for n in range(60):
            expected[f"k.{n}"] = b"%d" % n * 60
            written = await bucket.writer().put(f"k.{n}", expected[f"k.{n}"])
        await fold.wait_for(written)
        lease = ExportLease(leases, "export", "old")
        assert await export_round(lease, TTL, fold, transport, KEY, tmp_path) is not None
    assert len([one async for one in bucket.reader().scan()]) < 40
    source = PublishedArtifact(transport, KEY)
    async with Fold.open(bucket, tmp_path / "new", bootstrap=source) as fold:
        await fold.ready()
        assert state(fold) == expected


def hidden(directory: Path) -> list[Path]:
    return [path for path in directory.rglob(".*") if path.suffix != ".lock"]
