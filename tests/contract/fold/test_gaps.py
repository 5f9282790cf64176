"""What a fold does when its bucket lost something, or is not the bucket it was."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import nats
import pytest

from penstock.bulk import BulkReader
from penstock.fold import (
    Fold,
    FoldState,
    LocalArtifacts,
    Repair,
    SqliteSnapshot,
    watch_applied,
)
from penstock.kv.bucket_watcher import NatsWatcher
from penstock.kv.contract import BucketConfig
from penstock.kv.kv_connection import NatsConfig, NatsConnection
from penstock.kv.kv_types import Scope, WatchCursor
from support.folds import contents
from support.followed_folds import (
    HEARTBEAT,
    QUICK,
    assert_same,
    back_up,
    fill,
    folded_up_to,
    live,
    put_back,
    ready,
    recreate,
    until,
)
from support.patience import PATIENCE_SECONDS
from support.servers import OURS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.js import JetStreamContext

    from penstock.kv.bucket import NatsBucket
    from support.kv import Maker
    from support.servers import Implementation, ServerUnderTest, Starter

#: Keeps about eight values of a hundred bytes, and drops the oldest for the newest.
SMALL = BucketConfig(discard="old", max_bytes=1500)
VALUE = bytes(100)


@asynccontextmanager
async def following(bucket: NatsBucket, path: Path, **settings: Any) -> AsyncIterator[Fold]:
    async with Fold.open(bucket, path, batch=QUICK, heartbeat=HEARTBEAT, **settings) as fold:
        yield await ready(fold)


async def keys(fold: Fold) -> set[str]:
    return set(contents(fold.store))


async def overfill(bucket: NatsBucket, count: int, first: int = 1) -> int:
    revision = 0
    for number in range(first, first + count):
        version = await bucket.writer().put(f"k{number}", VALUE)
        revision = version.revision or 0
    return revision


async def overrun(make: Maker, path: Path) -> NatsBucket:
    """A bucket that a fold has followed up to revision 6, and that dropped values since."""
    bucket = await make(SMALL)
    await overfill(bucket, 6)
    async with following(bucket, path):
        pass
    await overfill(bucket, 30, 7)
    return bucket


async def first_seq(bucket: NatsBucket) -> int:
    watcher = bucket.watcher()
    assert watcher is not None
    return (await watcher.log_info()).first_seq


# -- the listing is the truth


async def test_gap_repair_removes_deleted_keys_and_updates_the_rest(
    bucket: NatsBucket, jetstream: JetStreamContext, tmp_path: Path
) -> None:
    await fill(bucket, 9)
    async with following(bucket, tmp_path / "fold") as fold:
        assert fold.count() == 9
    writer = bucket.writer()
    await writer.delete("k1")
    await writer.delete("k2")
    await writer.put("k2", b"again")
    await writer.put("k3", b"changed")
    # The markers of the deletes, and whatever else was before the last two writes, are no more.
    await jetstream.purge_stream(f"KV_{bucket.name}", seq=12)
    async with following(bucket, tmp_path / "fold") as fold:
        await assert_same(fold, bucket)
        assert await keys(fold) == {"k2", "k3"}
        assert fold.status().repairs == 1
    async with following(bucket, tmp_path / "fold") as fold:
        assert fold.status().repairs == 0


async def test_overwrites_alone_need_no_repair_where_losses_are_reported(
    bucket: NatsBucket, implementation: Implementation, tmp_path: Path
) -> None:
    await fill(bucket, 10)
    async with following(bucket, tmp_path / "fold"):
        pass
    await fill(bucket, 10)
    await fill(bucket, 10)
    assert await first_seq(bucket) == 21
    async with following(bucket, tmp_path / "fold") as fold:
        await assert_same(fold, bucket)
        assert fold.count() == 10
        assert fold.status().repairs == (0 if implementation is OURS else 1)


async def test_lost_delete_in_middle_is_detected(
    bucket: NatsBucket, jetstream: JetStreamContext, tmp_path: Path
) -> None:
    """The head of the log does not move: losses that are counted tell, or a remembered record."""
    await fill(bucket, 3)
    async with following(bucket, tmp_path / "fold"):
        pass
    await bucket.writer().delete("k2")
    await fill(bucket, 1, 9)
    await jetstream.purge_stream(f"KV_{bucket.name}", subject=f"$KV.{bucket.name}.k2")
    async with following(bucket, tmp_path / "fold") as fold:
        await assert_same(fold, bucket)
        assert "k2" not in await keys(fold)


async def test_purged_bucket_empties_fold(
    bucket: NatsBucket, jetstream: JetStreamContext, tmp_path: Path
) -> None:
    await fill(bucket, 5)
    async with following(bucket, tmp_path / "fold"):
        pass
    await fill(bucket, 5)
    await jetstream.purge_stream(f"KV_{bucket.name}")
    async with following(bucket, tmp_path / "fold") as fold:
        assert fold.count() == 0
        await folded_up_to(fold, await fill(bucket, 1))
        await assert_same(fold, bucket)


@pytest.mark.parametrize("written", [0, 3])
async def test_purge_up_to_cursor_is_detected_by_record_count(
    written: int, bucket: NatsBucket, jetstream: JetStreamContext, tmp_path: Path
) -> None:
    """The log begins in time, and what it lost was known: only the number tells."""
    await fill(bucket, 5)
    async with following(bucket, tmp_path / "fold"):
        pass
    await jetstream.purge_stream(f"KV_{bucket.name}")
    await fill(bucket, written, 7)
    async with following(bucket, tmp_path / "fold") as fold:
        await assert_same(fold, bucket)
        assert (fold.count(), fold.status().repairs) == (written, 1)


async def test_fold_without_repair_keeps_deleted_keys(
    bucket: NatsBucket, jetstream: JetStreamContext, tmp_path: Path
) -> None:
    await fill(bucket, 5)
    async with following(bucket, tmp_path / "fold"):
        pass
    await bucket.writer().delete("k1")
    await jetstream.purge_stream(f"KV_{bucket.name}")
    await fill(bucket, 1, 6)
    async with following(bucket, tmp_path / "fold", repair=Repair.none()) as fold:
        assert await keys(fold) == {"k1", "k2", "k3", "k4", "k5", "k6"}


# -- another log


@pytest.mark.parametrize("written", [0, 2, 9])
async def test_recreated_bucket_replaces_fold(
    written: int, bucket: NatsBucket, jetstream: JetStreamContext, tmp_path: Path
) -> None:
    """Whether the new one is behind the cursor or beyond it."""
    await fill(bucket, 5)
    async with following(bucket, tmp_path / "fold"):
        pass
    await recreate(bucket, jetstream)
    await fill(bucket, written, 4)
    async with following(bucket, tmp_path / "fold") as fold:
        await assert_same(fold, bucket)
        assert fold.count() == written
        assert fold.status().repairs == 1
    # An empty bucket has no revision to be at: then the fold begins again, which costs nothing.
    async with following(bucket, tmp_path / "fold") as fold:
        assert fold.status().repairs == 0
        await folded_up_to(fold, await fill(bucket, 1, 99))
        await assert_same(fold, bucket)


async def test_bucket_recreated_under_live_fold_replaces_it(
    bucket: NatsBucket, jetstream: JetStreamContext, tmp_path: Path
) -> None:
    await fill(bucket, 5)
    async with following(bucket, tmp_path / "fold") as fold:
        await recreate(bucket, jetstream)
        await fill(bucket, 2, 9)
        await until(lambda: fold.status().repairs == 1)
        await until(lambda: fold.state is FoldState.LIVE)
        await assert_same(fold, bucket)


async def test_bucket_restored_to_older_state_resets_fold(
    bucket: NatsBucket, server: ServerUnderTest, tmp_path: Path
) -> None:
    client = await nats.connect(server.url)
    try:
        await fill(bucket, 3)
        backup = await back_up(client, f"KV_{bucket.name}")
        await fill(bucket, 4, 3)
        async with following(bucket, tmp_path / "fold") as fold:
            assert fold.cursor.rank == 7
        await put_back(client, backup)
        async with following(bucket, tmp_path / "fold") as fold:
            assert await keys(fold) == {"k1", "k2", "k3"}
            await folded_up_to(fold, await fill(bucket, 1, 9))
            await assert_same(fold, bucket)
    finally:
        await client.close()


async def test_restored_bucket_written_beyond_cursor_is_detected_where_reported(
    bucket: NatsBucket, server: ServerUnderTest, implementation: Implementation, tmp_path: Path
) -> None:
    if implementation is not OURS:
        pytest.skip("nothing of the reference tells it from the bucket before")
    client = await nats.connect(server.url)
    try:
        await fill(bucket, 3)
        backup = await back_up(client, f"KV_{bucket.name}")
        await fill(bucket, 2, 4)
        async with following(bucket, tmp_path / "fold") as fold:
            assert fold.cursor.rank == 5
        await put_back(client, backup)
        await fill(bucket, 3, 7)
        async with following(bucket, tmp_path / "fold") as fold:
            await assert_same(fold, bucket)
            assert await keys(fold) == {"k1", "k2", "k3", "k7", "k8", "k9"}
            assert fold.status().repairs == 1
    finally:
        await client.close()


# -- buckets that drop values on their own


async def test_aged_out_values_stay_unless_configured(make: Maker, tmp_path: Path) -> None:
    bucket = await make(BucketConfig(max_age=0.5))
    await fill(bucket, 3)
    async with following(bucket, tmp_path / "fold"):
        pass
    await fill(bucket, 3, 4)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await first_seq(bucket) < 7:
            pass
    async with Fold.open(bucket, tmp_path / "fold", batch=QUICK) as fold:
        await until(lambda: fold.state is FoldState.STALE)
        assert "aged out" in fold.status().error
        assert await keys(fold) == {"k1", "k2", "k3"}
        assert fold.cursor.rank == 3
    async with following(bucket, tmp_path / "fold", repair=Repair.relist(mirror=True)) as fold:
        assert fold.count() == 0


@pytest.mark.parametrize("repair", [Repair.relist(), Repair.auto()])
async def test_values_dropped_by_full_bucket_are_not_deleted(
    repair: Repair, make: Maker, tmp_path: Path
) -> None:
    bucket = await overrun(make, tmp_path / "fold")
    async with Fold.open(bucket, tmp_path / "fold", repair=repair, batch=QUICK) as fold:
        await until(lambda: fold.state is FoldState.STALE)
        assert fold.count() == 6
        assert fold.cursor.rank == 6


async def test_full_bucket_is_mirrored_or_reread_if_configured(make: Maker, tmp_path: Path) -> None:
    bucket = await make(SMALL)
    await overfill(bucket, 4)
    for name in ("kept", "mirrored"):
        async with following(bucket, tmp_path / name):
            pass
    revision = await overfill(bucket, 30, 5)
    async with following(bucket, tmp_path / "kept", repair=Repair.none()) as fold:
        await folded_up_to(fold, revision)
        assert await keys(fold) == {"k1", "k2", "k3", "k4", *await live(bucket)}
    async with following(bucket, tmp_path / "mirrored", repair=Repair.relist(mirror=True)) as fold:
        await assert_same(fold, bucket)


async def test_bucket_that_dropped_values_stays_stale(
    make: Maker, jetstream: JetStreamContext, tmp_path: Path
) -> None:
    """Its limit is lifted before the fold comes back: what it dropped is still not there."""
    bucket = await overrun(make, tmp_path / "fold")
    await bucket.requests.demand(
        f"STREAM.UPDATE.KV_{bucket.name}", bucket.stream_config | {"max_bytes": -1}
    )
    async with Fold.open(bucket, tmp_path / "fold", batch=QUICK) as fold:
        await until(lambda: fold.state is FoldState.STALE)
        assert fold.count() == 6


async def test_artifact_fills_gap_of_bucket_that_drops_values(make: Maker, tmp_path: Path) -> None:
    bucket = await make(SMALL)
    await overfill(bucket, 6)
    async with following(bucket, tmp_path / "behind"):
        pass
    # One fold is always there and exports; the other misses what comes and goes.
    async with following(bucket, tmp_path / "always", backend="append-log") as always:
        await bucket.writer().delete("k2")
        await folded_up_to(always, await overfill(bucket, 12, 7))
        await always.export_to(tmp_path / "artifact", form="append-log")
        expected = await keys(always)
    assert expected == {f"k{number}" for number in range(1, 19)} - {"k2"}
    revision = await overfill(bucket, 3, 19)
    source = LocalArtifacts(tmp_path / "artifact")
    async with following(bucket, tmp_path / "behind", repair=Repair.auto(source)) as behind:
        await folded_up_to(behind, revision)
        assert behind.status().repairs == 1
        assert await keys(behind) == expected | {"k19", "k20", "k21"}


async def test_artifact_older_than_bucket_is_refused(make: Maker, tmp_path: Path) -> None:
    bucket = await make(SMALL)
    await overfill(bucket, 4)
    async with following(bucket, tmp_path / "behind"):
        pass
    await overfill(bucket, 2, 5)
    async with following(bucket, tmp_path / "other") as fold:
        await fold.export_to(tmp_path / "artifact")
    await overfill(bucket, 40, 7)
    source = LocalArtifacts(tmp_path / "artifact")
    async with Fold.open(
        bucket, tmp_path / "behind", repair=Repair.restore(source), batch=QUICK
    ) as fold:
        await until(lambda: "of no use" in fold.status().error)
        assert fold.state is FoldState.STALE
        assert fold.count() == 4


async def test_new_fold_begins_with_artifact(make: Maker, tmp_path: Path) -> None:
    bucket = await make(SMALL)
    await overfill(bucket, 6)
    async with following(bucket, tmp_path / "old") as fold:
        await folded_up_to(fold, await overfill(bucket, 6, 7))
        await fold.export_to(tmp_path / "artifact")
    await overfill(bucket, 2, 13)
    source = LocalArtifacts(tmp_path / "artifact")
    async with following(bucket, tmp_path / "new", bootstrap=source) as fold:
        assert await keys(fold) == {f"k{number}" for number in range(1, 15)}
        assert fold.status().repairs == 0
    # Made empty by other means, it is filled the same way.
    async with following(bucket, tmp_path / "empty", repair=Repair.auto(source)) as fold:
        assert await keys(fold) == {f"k{number}" for number in range(1, 15)}


async def test_limit_marker_removes_key(make: Maker, tmp_path: Path) -> None:
    bucket = await make(BucketConfig(allow_msg_ttl=True, marker_ttl=60.0))
    await fill(bucket, 2)
    ttl = bucket.ttl_writer()
    assert ttl is not None
    async with following(bucket, tmp_path / "fold") as fold:
        await ttl.create_with_ttl("short", b"1", 1.0)
        await until(lambda: fold.count() == 3)
        await until(lambda: fold.count() == 2)
        await assert_same(fold, bucket)


# -- while it is live


async def test_bookmarks_move_cursor_when_keys_do_not_change(
    make: Maker, server: ServerUnderTest, tmp_path: Path
) -> None:
    bucket = await make()
    await fill(bucket, 2, prefix="mine.")
    watcher = NatsWatcher(bucket.name, BulkReader.to(server.url), bookmark_seconds=0.05)
    stop = asyncio.Event()
    reached: list[WatchCursor] = []
    with SqliteSnapshot.open(tmp_path / "fold") as store:
        running = asyncio.create_task(
            watch_applied(
                watcher,
                Scope.prefix("mine."),
                store=store,
                on_applied=reached.append,
                batch=QUICK,
                heartbeat=HEARTBEAT,
                stop=stop,
            )
        )
        revision = await fill(bucket, 30, prefix="other.")
        await until(lambda: store.cursor.rank >= revision)
        stop.set()
        assert await running == reached[-1] == store.cursor
        assert store.count() == 2
    async with following(bucket, tmp_path / "fold", scope="mine.") as fold:
        assert fold.cursor.rank >= revision


async def test_fold_survives_server_restart(start: Starter, tmp_path: Path) -> None:
    server = start("", "-js", "-sd", "store")
    async with NatsConnection(NatsConfig.of(server.url)) as connection:
        bucket = await connection.bucket("b", BucketConfig())
        await fill(bucket, 3)
        async with following(bucket, tmp_path / "fold") as fold:
            await asyncio.to_thread(server.restart)
            async with NatsConnection(NatsConfig.of(server.url)) as again:
                revision = await fill(await again.bucket("b"), 2, 3)
                await folded_up_to(fold, revision)
                assert contents(fold.store) == await live(await again.bucket("b"))
            assert fold.status().restarts == 0
