"""Values that a bucket loses before the cursor of a fold, and logs that were set back."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from penstock.fold import Fold
from penstock.kv.contract import BucketConfig
from penstock.kv.kv_connection import NatsConfig, NatsConnection
from support.folds import contents
from support.followed_folds import HEARTBEAT, QUICK, fill, live, ready, until
from support.proxy import Proxy
from support.servers import OURS

if TYPE_CHECKING:
    from pathlib import Path

    from nats.js import JetStreamContext

    from penstock.kv.bucket import NatsBucket
    from support.kv import Maker
    from support.servers import Implementation, Starter

BACKENDS = ["append-log", "sqlite", "lmdb", "rocksdb"]


def opened(bucket: NatsBucket, path: Path, backend: str = "sqlite") -> Fold:
    return Fold.open(bucket, path, batch=QUICK, heartbeat=HEARTBEAT, backend=backend)


async def same(fold: Fold, bucket: NatsBucket) -> None:
    """Wait until the fold holds what the bucket does, and nothing else."""
    there = await live(bucket)
    await until(lambda: contents(fold.store) == there, f"{fold.status()} {there.keys()}")


@pytest.mark.parametrize("backend", BACKENDS)
async def test_purge_under_live_fold_is_noticed(
    bucket: NatsBucket, jetstream: JetStreamContext, tmp_path: Path, backend: str
) -> None:
    await fill(bucket, 9, prefix="a.")
    await fill(bucket, 3, prefix="b.")
    async with opened(bucket, tmp_path / "fold", backend) as fold:
        await ready(fold)
        await jetstream.purge_stream(f"KV_{bucket.name}", subject=f"$KV.{bucket.name}.a.>")
        await same(fold, bucket)
        assert fold.status().doubt == ""


@pytest.mark.parametrize("backend", BACKENDS)
async def test_purge_of_recent_key_is_noticed_although_record_count_stays(
    bucket: NatsBucket, jetstream: JetStreamContext, tmp_path: Path, backend: str
) -> None:
    """The number of records never falls from one check to the next."""
    await fill(bucket, 9)
    async with opened(bucket, tmp_path / "fold", backend) as fold:
        await ready(fold)
        await fill(bucket, 3, prefix="new.")
        await jetstream.purge_stream(f"KV_{bucket.name}", subject=f"$KV.{bucket.name}.k7")
        await fill(bucket, 3, prefix="newer.")
        await same(fold, bucket)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_purge_followed_by_many_writes_is_noticed(
    bucket: NatsBucket, jetstream: JetStreamContext, tmp_path: Path, backend: str
) -> None:
    await fill(bucket, 9)
    async with opened(bucket, tmp_path / "fold", backend) as fold:
        await ready(fold)
    await jetstream.purge_stream(f"KV_{bucket.name}", subject=f"$KV.{bucket.name}.k1")
    await fill(bucket, 30, prefix="new.")
    async with opened(bucket, tmp_path / "fold", backend) as fold:
        await ready(fold)
        await same(fold, bucket)
    async with opened(bucket, tmp_path / "fold", backend) as fold:
        await ready(fold)
        assert fold.status().repairs == 0


@pytest.mark.parametrize("away", [True, False])
async def test_deleted_message_reveals_older_value_to_fold(
    make: Maker, jetstream: JetStreamContext, tmp_path: Path, away: bool
) -> None:
    bucket = await make(BucketConfig(history=5, deny_delete=False))
    await fill(bucket, 2)
    await bucket.writer().put("k1", b"old")
    version = await bucket.writer().put("k1", b"new")
    async with opened(bucket, tmp_path / "fold") as fold:
        await ready(fold)
        if not away:
            await jetstream.delete_msg(f"KV_{bucket.name}", version.revision or 0)
            await same(fold, bucket)
    if away:
        await jetstream.delete_msg(f"KV_{bucket.name}", version.revision or 0)
        async with opened(bucket, tmp_path / "fold") as fold:
            await ready(fold)
            await same(fold, bucket)


async def test_expired_value_reveals_older_one_or_fold_is_stale(
    make: Maker, implementation: Implementation, tmp_path: Path
) -> None:
    bucket = await make(BucketConfig(history=5, allow_msg_ttl=True))
    await bucket.writer().put("k", b"old")
    await bucket.requests.publish(f"$KV.{bucket.name}.k", b"new", {"Nats-TTL": "1s"})
    async with opened(bucket, tmp_path / "fold") as fold:
        await ready(fold)
        if implementation is not OURS:
            assert "does not report values that expire" in fold.status().doubt
            return
        await until(lambda: contents(fold.store)["k"].value == b"old")


@pytest.mark.parametrize("backend", BACKENDS)
async def test_restored_server_directory_is_detected_after_it_grew(
    start: Starter, tmp_path: Path, backend: str
) -> None:
    server = start("", "-js", "-sd", "store")
    store, copy = server.workdir / "store", tmp_path / "copy"
    config = NatsConfig.of(server.url)
    async with NatsConnection(config) as connection:
        bucket = await connection.bucket("b", BucketConfig())
        await fill(bucket, 5)
        server.stop()
        shutil.copytree(store, copy)
        server.restart()
    async with NatsConnection(NatsConfig.of(server.url)) as connection:
        bucket = await connection.bucket("b")
        await fill(bucket, 5, first=4, prefix="gone.")
        async with opened(bucket, tmp_path / "fold", backend) as fold:
            await ready(fold)
        server.stop()
        shutil.rmtree(store)
        shutil.copytree(copy, store)
        server.restart()
    async with NatsConnection(NatsConfig.of(server.url)) as connection:
        bucket = await connection.bucket("b")
        await fill(bucket, 12, prefix="other.")
        async with opened(bucket, tmp_path / "fold", backend) as fold:
            await ready(fold)
            await same(fold, bucket)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_server_directory_restored_under_live_fold_is_detected(
    start: Starter, tmp_path: Path, backend: str
) -> None:
    """The log has grown past the position of the watch before the fold reaches the server again."""
    server = start("", "-js", "-sd", "store")
    store, copy = server.workdir / "store", tmp_path / "copy"
    is_cut = False

    def spoil(_: int, data: bytes) -> bytes | None:
        return None if is_cut else data

    async with NatsConnection(NatsConfig.of(server.url)) as connection:
        bucket = await connection.bucket("b", BucketConfig())
        await fill(bucket, 5)
        server.stop()
        shutil.copytree(store, copy)
        server.restart()
    async with Proxy(server.port, spoil, spoil) as proxy:
        async with NatsConnection(NatsConfig.of(server.url)) as connection:
            bucket = await connection.bucket("b")
            await fill(bucket, 5, first=4, prefix="gone.")
        fold = Fold.open(
            "b",
            tmp_path / "fold",
            config=NatsConfig.of(proxy.url),
            batch=QUICK,
            heartbeat=HEARTBEAT,
            backend=backend,
        )
        async with fold:
            await ready(fold)
            is_cut = True
            server.stop()
            shutil.rmtree(store)
            shutil.copytree(copy, store)
            server.restart()
            async with NatsConnection(NatsConfig.of(server.url)) as connection:
                bucket = await connection.bucket("b")
                await fill(bucket, 12, prefix="other.")
                is_cut = False
                await same(fold, bucket)
