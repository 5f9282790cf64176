"""Buckets that are recreated under a fold: versions say of which log they are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from penstock.fold import Fold, VersionReset, WaitTimeout
from penstock.kv.contract import BucketConfig
from penstock.kv.kv_types import VersionToken
from support.followed_folds import HEARTBEAT, QUICK, assert_same, fill, ready, recreate, until
from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from nats.js import JetStreamContext

    from penstock.kv.bucket import NatsBucket
    from penstock.kv.kv_connection import NatsConnection

#: So rare that no test sees the second one.
SELDOM = 4 * PATIENCE_SECONDS


def following(bucket: NatsBucket, path: Path, heartbeat: float = SELDOM) -> Fold:
    return Fold.open(bucket, path, batch=QUICK, heartbeat=heartbeat)


async def test_waiting_for_version_of_new_log_returns_with_its_value(
    bucket: NatsBucket, jetstream: JetStreamContext, connection: NatsConnection, tmp_path: Path
) -> None:
    await fill(bucket, 9)
    async with following(bucket, tmp_path / "fold") as fold, asyncio.timeout(PATIENCE_SECONDS):
        await ready(fold)
        await recreate(bucket, jetstream)
        again = await connection.bucket(bucket.name, BucketConfig())
        version = await again.writer().put("k1", b"new")
        assert version.revision == 1
        await fold.wait_for(version)
        entry = fold.get("k1")
        assert entry is not None
        assert entry.value == b"new"
        await assert_same(fold, bucket)


async def test_handle_of_old_log_returns_versions_of_new_one(
    bucket: NatsBucket, jetstream: JetStreamContext, tmp_path: Path
) -> None:
    await fill(bucket, 9)
    async with following(bucket, tmp_path / "fold") as fold, asyncio.timeout(PATIENCE_SECONDS):
        await ready(fold)
        old = fold.status().identity
        await recreate(bucket, jetstream)
        version = await fold.put("k1", b"new")
        entry = fold.get("k1")
        assert entry is not None
        assert (entry.value, entry.version) == (b"new", version)
        assert version.log_identity == fold.status().identity != old


async def test_version_of_old_log_is_refused(
    bucket: NatsBucket, jetstream: JetStreamContext, tmp_path: Path
) -> None:
    await fill(bucket, 3)
    version = await bucket.writer().put("k1", b"old")
    async with following(bucket, tmp_path / "fold", HEARTBEAT) as fold:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await fold.wait_for(version)
            await recreate(bucket, jetstream)
            await fill(bucket, 9)
            await until(lambda: fold.status().identity != version.log_identity)
            with pytest.raises(VersionReset, match="is of KV_"):
                await fold.wait_for(version)


async def test_waiting_for_replaced_log_raises(
    bucket: NatsBucket, jetstream: JetStreamContext, tmp_path: Path
) -> None:
    await fill(bucket, 3)
    version = await bucket.writer().put("k1", b"old")
    async with following(bucket, tmp_path / "fold", HEARTBEAT) as fold:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await fold.wait_for(version)
            later = type(version).in_log(99, version.log_identity)  # type: ignore[attr-defined]
            waiting = asyncio.create_task(fold.wait_for(later))
            await fold.put("k2", b"seen")
            await recreate(bucket, jetstream)
            await fill(bucket, 2)
            with pytest.raises(VersionReset):
                await waiting


async def test_version_without_log_belongs_to_followed_log(
    bucket: NatsBucket, tmp_path: Path
) -> None:
    await fill(bucket, 3)
    async with following(bucket, tmp_path / "fold") as fold, asyncio.timeout(PATIENCE_SECONDS):
        await ready(fold)
        await fold.wait_for(VersionToken.of(3))
        with pytest.raises(WaitTimeout):
            await fold.wait_for(VersionToken.of(4), timeout=0.01)
