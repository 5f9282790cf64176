"""Processes are killed with SIGKILL while they follow a bucket, list it, or repair their fold.

Between two lives the bucket is written to, loses its head to a purge, or is recreated. Whenever the
cursor that is left can be resumed from, every key that has not changed since is as the bucket has
it; and at the end the fold is what the bucket is. A fold that repairs nothing is found out.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from faults.fold_follower import Follow
from penstock.fold.follow.repair_policy import FoldStart, how_to_start
from penstock.fold.follow.resume import held_by
from penstock.kv.contract import BucketConfig
from penstock.kv.kv_connection import NatsConfig, NatsConnection
from penstock.server.config.options import Options
from support.folds import DURABLE, contents
from support.followed_folds import folded_up_to, live, ready
from support.killed_followers import victims
from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import AsyncIterator
    from pathlib import Path

    from penstock.kv.bucket import NatsBucket

LONG_ROUNDS = 10
KINDS = ["append-log, compacting", "sqlite", "lmdb"]
LIVES = 4
MUTANT_LIVES_MAX = 30
KEYS = 40
WRITTEN_MAX = 120
WORDS_MAX = 12


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[tuple[str, NatsBucket]]:
    options = Options(port=-1, host="127.0.0.1", jetstream=True, store_dir=str(directory))
    server = penstock.ThreadedServer(options=options)
    server.start()
    try:
        async with NatsConnection(NatsConfig.of(server.url)) as connection:
            yield server.url, await connection.bucket("b", BucketConfig())
    finally:
        server.stop()


async def disturb(bucket: NatsBucket, task: Follow, chance: Random) -> str:
    """What happens to a bucket while no fold follows it.

    A purge goes beyond the cursor: of what was removed behind it no log tells, and no fold learns.
    """
    with DURABLE[task.kind].open(task.path) as store:
        cursor = store.cursor.rank
    if chance.random() < 0.15:
        cursor = 0
        await bucket.requests.demand("STREAM.DELETE.KV_b")
        await bucket.requests.demand("STREAM.CREATE.KV_b", bucket.stream_config)
    await write(bucket, chance)
    last = (await _info(bucket)).last_seq
    if chance.random() < 0.5 and cursor < last:
        seq = chance.randrange(cursor + 2, last + 2)
        await bucket.requests.demand("STREAM.PURGE.KV_b", {"seq": seq})
        return "purged"
    return "written"


async def write(bucket: NatsBucket, chance: Random) -> None:
    """Some puts and deletes, in order; only the last is waited for."""
    client, count = bucket.requests._client, chance.randrange(1, WRITTEN_MAX)
    for number in range(count):
        subject = f"$KV.b.k.{chance.randrange(KEYS)}"
        value, headers = chance.randbytes(chance.choice((0, 5, 300))), None
        if chance.random() < 0.2:
            value, headers = b"", {"KV-Operation": "DEL"}
        if number < count - 1:
            await client.publish(subject, value, headers=headers)
        else:
            await client.request(subject, value, headers=headers, timeout=PATIENCE_SECONDS)


async def _info(bucket: NatsBucket) -> Any:
    watcher = bucket.watcher()
    assert watcher is not None
    return await watcher.log_info()


async def wrong_with(task: Follow, bucket: NatsBucket) -> str:
    """What is wrong with the fold that is left, as far as it believes in its cursor."""
    info, entries = await _info(bucket), await live(bucket)
    with DURABLE[task.kind].open(task.path) as store:
        found, held = contents(store), held_by(store)
    if how_to_start(held, info) is not FoldStart.DELTA:
        return ""
    changed = await keys_changed_since(bucket, held.cursor)
    for key in (found.keys() | entries.keys()) - changed:
        if found.get(key) != entries.get(key):
            return f"{key} is not as it was up to {held.cursor}, and has not changed since"
    return ""


async def keys_changed_since(bucket: NatsBucket, revision: int) -> set[str]:
    assert bucket.bulk is not None
    changed: set[str] = set()
    async for batch in bucket.bulk.newest(f"KV_{bucket.name}"):
        changed |= {row[0].removeprefix("$KV.b.") for row in batch.rows() if row[1] > revision}
    return changed


async def assert_same_at_last(task: Follow, bucket: NatsBucket) -> None:
    """Let the fold come back once more, and compare."""
    async with task.fold() as fold:
        await ready(fold)
        await folded_up_to(fold, min((await _info(bucket)).last_seq, _highest(await live(bucket))))
        assert contents(fold.store) == await live(bucket)


def _highest(entries: dict[str, Any]) -> int:
    return max((entry.revision for entry in entries.values()), default=0)


@pytest.mark.parametrize("kind", KINDS)
async def test_killed_follower_can_always_continue(
    kind: str, tmp_path: Path, rounds: int, tried: Counter[str]
) -> None:
    chance = Random(kind)
    async with serving(tmp_path / "server") as (url, bucket), victims() as making:
        task = Follow(f"{url}/b", str(tmp_path / "fold"), kind)
        for life in range(LIVES * rounds):
            tried[f"buckets {await disturb(bucket, task, chance)} while no fold followed"] += 1
            said = await making.live_and_die(task, chance.randrange(1, WORDS_MAX))
            tried["following processes killed"] += 1
            tried["repairs seen by them"] += said.count("repaired")
            assert await wrong_with(task, bucket) == "", f"life {life}"
        await assert_same_at_last(task, bucket)


async def test_fold_that_repairs_nothing_is_found_out(tmp_path: Path) -> None:
    chance = Random(1)
    async with serving(tmp_path / "server") as (url, bucket), victims() as making:
        task = Follow(f"{url}/b", str(tmp_path / "fold"), "sqlite", mutant=True)
        for _ in range(MUTANT_LIVES_MAX):
            await disturb(bucket, task, chance)
            await making.live_and_die(task, WRITTEN_MAX)
            if await wrong_with(task, bucket):
                return
    raise AssertionError("no kill found the mutant")
