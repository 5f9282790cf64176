"""Writing through a fold: it waits for its own writes, and asks the bucket before it has a copy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from penstock.fold import BlockingFold, Fold, FoldStoreError, WaitTimeout
from penstock.kv.errors import BucketError, RevisionMismatch
from penstock.kv.kv_connection import NatsConfig, NatsConnection
from penstock.kv.kv_types import VersionToken
from support.followed_folds import HEARTBEAT, QUICK, fill, ready
from support.patience import PATIENCE_SECONDS
from support.servers import until

if TYPE_CHECKING:
    from pathlib import Path

    from support.kv import Maker
    from support.servers import ServerUnderTest


async def test_write_is_in_fold_when_it_returns(
    make: Maker, server: ServerUnderTest, tmp_path: Path
) -> None:
    bucket = await make()
    fold = Fold.open(bucket.name, tmp_path / "fold", config=NatsConfig.of(server.url), batch=QUICK)
    async with asyncio.timeout(PATIENCE_SECONDS), fold:
        version = await fold.put("a.1", b"one")
        entry = fold.get("a.1")
        assert entry is not None
        assert (entry.value, entry.version) == (b"one", version)
        second = await fold.put("a.1", b"two", expected=version)
        with pytest.raises(RevisionMismatch):
            await fold.put("a.1", b"three", expected=version)
        with pytest.raises(RevisionMismatch):
            await fold.delete("a.1", expected=version)
        marker = await fold.delete("a.1", expected=second)
        assert marker.revision == 3
        assert fold.get("a.1") is None
        await fold.put("a.2", b"new", expected=VersionToken.of(0))
        assert fold.get("a.2") is not None


async def test_write_outside_prefixes_is_refused(make: Maker, tmp_path: Path) -> None:
    async with Fold.open(await make(), tmp_path / "fold", scope="a.") as fold:
        with pytest.raises(ValueError, match="outside"):
            await fold.put("b.1", b"")
    with pytest.raises(FoldStoreError, match="not open"):
        await Fold.open(await make()).put("a", b"")


async def test_wait_timeout_carries_version(make: Maker, tmp_path: Path) -> None:
    async with Fold.open(await make(), tmp_path / "fold", batch=QUICK) as fold:
        await ready(fold)
        with pytest.raises(WaitTimeout) as late:
            await fold.wait_for(99, timeout=0.01)
        assert late.value.version == VersionToken.of(99)
        assert isinstance(late.value, TimeoutError)


async def test_reads_go_to_bucket_until_the_first_copy_is_ready(
    make: Maker, tmp_path: Path
) -> None:
    bucket = await make()
    await fill(bucket, 3)
    fold = Fold.open(bucket, tmp_path / "fold", batch=QUICK, heartbeat=HEARTBEAT, remote_reads=True)
    async with asyncio.timeout(PATIENCE_SECONDS), fold:
        entry = await fold.read("k1")  # the watch has not begun
        assert entry is not None
        assert entry.value == b"1"
        await ready(fold)
        await fold.run(fold.store.apply, [], fold.cursor)
        assert await fold.read("k1") == fold.get("k1")
        assert await fold.read("missing") is None


async def test_read_without_server_and_copy_raises(tmp_path: Path) -> None:
    fold = Fold.open("nats://127.0.0.1:1/b", tmp_path / "fold", remote_reads=True)
    async with asyncio.timeout(PATIENCE_SECONDS), fold:
        with pytest.raises(BucketError):
            await fold.read("k1")
        with pytest.raises(BucketError):
            await fold.put("k1", b"")
    local = Fold.open("nats://127.0.0.1:1/b", tmp_path / "fold")
    async with asyncio.timeout(PATIENCE_SECONDS), local:
        assert await local.read("k1") is None


async def test_blocking_fold_writes_too(
    make: Maker, server: ServerUnderTest, tmp_path: Path
) -> None:
    bucket = await make()
    config = NatsConfig.of(server.url)

    def write() -> None:
        with BlockingFold.open(bucket.name, tmp_path / "fold", config=config) as fold:
            version = fold.put("a", b"1", timeout=PATIENCE_SECONDS)
            entry = fold.get("a")
            assert entry is not None
            assert entry.version == version
            until(lambda: fold.is_healthy(max_lag=0), "the fold is live", PATIENCE_SECONDS)
            fold.delete("a", expected=version, timeout=PATIENCE_SECONDS)
            assert fold.get("a") is None
            assert fold.read("a") is None
            assert fold.resync(timeout=PATIENCE_SECONDS).removed == 0

    await asyncio.to_thread(write)


async def test_capabilities_report_whether_server_supports_ttl(
    connection: NatsConnection,
) -> None:
    assert connection.capabilities().ttl
    assert not NatsConnection(NatsConfig.of()).capabilities().ttl


async def test_names_of_crate_are_aliases(make: Maker) -> None:
    bucket = await make()
    writer = bucket.writer()
    version = await writer.put("a.b", b"1")
    assert await writer.delete_with_version("a.b", version)
    assert await writer.delete("a.b")
    watcher = bucket.watcher()
    assert watcher is not None
    assert bucket.purge_writer() is not None
    cursor = None
    for watch in (
        watcher.watch_all(),
        watcher.watch_prefix("a."),
        watcher.watch_prefixes(["a.", "b."]),
    ):
        async with asyncio.timeout(PATIENCE_SECONDS), watch as events:
            update = await anext(events)
            cursor = events.cursor
        assert update.key == "a.b"  # type: ignore[union-attr]
    assert cursor is not None
    await writer.put("a.c", b"2")
    for watch in (
        watcher.watch_all_from(cursor),
        watcher.watch_prefix_from("a.", cursor),
        watcher.watch_prefixes_from(["a.", "b."], cursor),
    ):
        async with asyncio.timeout(PATIENCE_SECONDS), watch as events:
            assert (await anext(events)).key == "a.c"  # type: ignore[union-attr]
