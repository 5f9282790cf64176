"""A fold of a live bucket: it becomes what the bucket is, and stays so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from penstock.fold import BlockingFold, Fold, FoldMismatch, FoldState
from penstock.kv.contract import BucketConfig
from support.folds import DURABLE, KINDS, contents
from support.followed_folds import (
    HEARTBEAT,
    QUICK,
    assert_same,
    fill,
    folded_up_to,
    live,
    ready,
    until,
)
from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.kv.bucket import NatsBucket
    from penstock.kv.kv_types import KvUpdate
    from support.kv import Maker
    from support.servers import ServerUnderTest


@pytest.mark.parametrize("name", KINDS)
async def test_fold_equals_bucket_and_follows_it(
    name: str, bucket: NatsBucket, tmp_path: Path
) -> None:
    kind = KINDS[name]
    await fill(bucket, 5)
    async with Fold.open(
        bucket, tmp_path / "fold", backend=kind.store, options=kind.options, batch=QUICK
    ) as fold:
        await ready(fold)
        assert contents(fold.store) == await live(bucket)
        await bucket.writer().put("k1", b"again")
        await bucket.writer().delete("k2")
        purger = bucket.purger()
        assert purger is not None
        await purger.purge("k3")
        await bucket.writer().put("k6", b"")
        await assert_same(fold, bucket)
        assert fold.count() == 4
        status = fold.status()
        assert (status.state, status.lag, status.entries) == (FoldState.LIVE, 0, 4)


@pytest.mark.parametrize("name", DURABLE)
async def test_fold_resumes_after_its_cursor(name: str, bucket: NatsBucket, tmp_path: Path) -> None:
    kind = DURABLE[name]
    await fill(bucket, 5)
    for first in (6, 11):
        async with Fold.open(
            bucket, tmp_path / "fold", backend=kind.store, options=kind.options, batch=QUICK
        ) as fold:
            came: list[KvUpdate] = []
            changes = fold.changes()
            await ready(fold)
            await folded_up_to(fold, await fill(bucket, 5, first))
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not came or came[-1].key != f"k{first + 4}":
                    came += await anext(changes)
            # The second time nothing comes again that was there the first time.
            assert len(came) == (10 if first == 6 else 5)
            await assert_same(fold, bucket)
            assert fold.status().repairs == 0


async def test_more_keys_than_page_or_window_are_folded(bucket: NatsBucket, tmp_path: Path) -> None:
    await asyncio.gather(*(fill(bucket, 300, first) for first in range(1, 2400, 300)))
    async with Fold.open(bucket, tmp_path / "fold", batch=QUICK) as fold:
        await ready(fold)
        assert fold.count() == 2400
        assert contents(fold.store) == await live(bucket)


async def test_fold_holds_only_its_prefixes(bucket: NatsBucket, tmp_path: Path) -> None:
    for prefix in ("a.", "b.", "b.c.", "d."):
        await fill(bucket, 3, prefix=prefix)
    async with Fold.open(bucket, tmp_path / "fold", scope=["a.", "b.", "b.c."]) as fold:
        await ready(fold)
        wanted = {key: entry for key, entry in (await live(bucket)).items() if key[0] in "ab"}
        assert len(wanted) == 9
        assert contents(fold.store) == wanted
        assert fold.lag == 0  # what came behind its last key is of others
        await fill(bucket, 2, 9, prefix="d.")
        await folded_up_to(fold, await fill(bucket, 1, 9, prefix="a."))
        assert fold.count() == 10
    with pytest.raises(FoldMismatch, match="prefixes"):
        async with Fold.open(bucket, tmp_path / "fold") as fold:
            await ready(fold)


async def test_fold_of_another_bucket_is_refused(make: Maker, tmp_path: Path) -> None:
    one, other = await make(), await make()
    await fill(one, 3)
    async with Fold.open(one, tmp_path / "fold") as fold:
        await ready(fold)
    async with Fold.open(other, tmp_path / "fold") as fold:
        with pytest.raises(FoldMismatch, match=one.name):
            await ready(fold)
        with pytest.raises(FoldMismatch):
            await fold.wait_for(99)
        assert fold.state is FoldState.FAILED
        assert fold.count() == 3


async def test_empty_bucket_is_ready_at_once(bucket: NatsBucket, tmp_path: Path) -> None:
    async with Fold.open(bucket, tmp_path / "fold", batch=QUICK) as fold:
        await ready(fold)
        assert fold.status().entries == 0
        await folded_up_to(fold, await fill(bucket, 1))
        assert fold.count() == 1


async def test_export_contains_everything_received(bucket: NatsBucket, tmp_path: Path) -> None:
    await fill(bucket, 4)
    async with Fold.open(bucket, tmp_path / "fold", batch=QUICK) as fold:
        await ready(fold)
        manifest = await fold.export_to(tmp_path / "artifact", form="append-log")
        assert manifest.cursor.rank == 4
        with pytest.raises(Exception, match="exists"):
            await fold.export_to(tmp_path / "artifact", form="append-log")
        await folded_up_to(fold, await fill(bucket, 1, 5))
    with pytest.raises(Exception, match="closed"):
        await fold.export_to(tmp_path / "another")


async def test_application_parses_before_cursor_moves(bucket: NatsBucket, tmp_path: Path) -> None:
    await fill(bucket, 4)
    seen: dict[str, int] = {}
    ranks: list[tuple[int, int]] = []

    def parse(update: KvUpdate) -> tuple[str, int] | None:
        return None if update.key == "k2" else (update.key, int(update.value))

    async def apply(batch: list[tuple[str, int]]) -> None:
        ranks.append((fold.cursor.rank, len(batch)))
        seen.update(batch)

    async with Fold.open(bucket, tmp_path / "fold", parse=parse, apply=apply, batch=QUICK) as fold:
        await ready(fold)
        assert seen == {"k1": 1, "k3": 3, "k4": 4}
        assert ranks[0] == (0, 3)
        assert fold.count() == 4
        # What `parse` cannot read is in the fold, and holds nothing up.
        await bucket.writer().put("k3", b"not a number")
        await folded_up_to(fold, await fill(bucket, 1, 9))
        assert seen["k3"] == 3
        assert seen["k9"] == 9


async def test_fold_waits_for_unreachable_server_and_serves_meanwhile(
    make: Maker, server: ServerUnderTest, tmp_path: Path
) -> None:
    bucket = await make()
    await fill(bucket, 3)
    async with Fold.open(bucket, tmp_path / "fold") as fold:
        await ready(fold)
    async with Fold.open(f"nats://127.0.0.1:1/{bucket.name}", tmp_path / "fold") as fold:
        await until(lambda: fold.state is FoldState.RETRYING)
        assert fold.count() == 3
        assert "127.0.0.1:1" in fold.status().error
        await fold.export_to(tmp_path / "artifact")


async def test_recreated_bucket_makes_fold_stale_then_correct(
    make: Maker, connection: object, tmp_path: Path
) -> None:
    bucket = await make(BucketConfig(history=2))
    await fill(bucket, 3)
    async with Fold.open(bucket, tmp_path / "fold", batch=QUICK, heartbeat=HEARTBEAT) as fold:
        await ready(fold)
        await bucket.requests.demand(f"STREAM.DELETE.KV_{bucket.name}")
        await until(lambda: fold.state is FoldState.STALE)
        assert fold.count() == 3
        await bucket.requests.demand(f"STREAM.CREATE.KV_{bucket.name}", bucket.stream_config)
        await fill(bucket, 1, 3)
        await until(lambda: fold.state is FoldState.LIVE)
        await assert_same(fold, bucket)
        assert fold.status().repairs == 1


def test_fold_for_threads_blocks(server: ServerUnderTest, tmp_path: Path) -> None:
    import nats

    async def prepare() -> None:
        client = await nats.connect(server.url)
        jetstream = client.jetstream()
        kv = await jetstream.create_key_value(bucket="blocking")
        await kv.put("a", b"1")
        await client.close()

    async def more() -> int:
        client = await nats.connect(server.url)
        kv = await client.jetstream().key_value("blocking")
        revision = await kv.put("b", b"2")
        await client.close()
        return revision

    async def tidy() -> None:
        client = await nats.connect(server.url)
        await client.jetstream().delete_key_value("blocking")
        await client.close()

    asyncio.run(prepare())
    with BlockingFold.open(f"{server.url}/blocking", tmp_path / "fold") as fold:
        fold.ready(timeout=PATIENCE_SECONDS)
        entry = fold.get("a")
        assert entry is not None
        assert entry.value == b"1"
        changes = fold.changes()
        fold.wait_for(asyncio.run(more()), timeout=PATIENCE_SECONDS)
        assert [update.key for update in next(changes)] == ["b"]
        assert [entry.key for entry in fold.range()] == ["a", "b"]
        assert fold.export_to(tmp_path / "artifact").cursor == fold.cursor
        with pytest.raises(TimeoutError):
            fold.wait_for(99, timeout=0.01)
    assert next(changes, None) is None
    asyncio.run(tidy())
