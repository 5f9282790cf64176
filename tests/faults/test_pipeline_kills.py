"""Workers and drivers of Spark are killed while they archive and fold: nothing is lost or doubled.

When to kill is decided by how far the jobs have come, counted in what they committed. In the end
the archive holds each message once, and every shard of the fold is, byte for byte, what one gets
who folds the log from its beginning.
"""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import nats
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nats.js.api import KeyValueConfig

from faults.pipeline_victim import SHARDS, place
from penstock.fold import AppendLogSnapshot
from penstock.fold.artifact.shards import by_hash, hash_of
from penstock.fold.ship.artifact_transport import transport_for
from penstock.spark.jobs import open_archive
from penstock.spark.jobs.archive_job import FORMS
from support.drivers import Driver, kill
from support.folds import at, delete, put
from support.servers import until

if TYPE_CHECKING:
    from collections import Counter

    from penstock.kv.kv_types import KvUpdate
    from support.servers import ServerUnderTest

LONG_ROUNDS = 8
LAST = 600
KEYS = 40
COMMITS = 10
"""About as many as there are to be seen: versions of the archive, payloads of the fold."""
WORKER_KILLS = 2
LIFE_SECONDS = 900.0
PROGRAM = Path(__file__).with_name("pipeline_victim.py")


def update_of(revision: int) -> KvUpdate:
    """What happens to the bucket with a revision."""
    key = f"k.{revision * 7 % KEYS}"
    if revision % 11 == 0:
        return delete(key, revision)
    return put(key, b"value %d" % revision, revision)


async def fill(url: str, bucket: str) -> None:
    client = await nats.connect(url)
    js = client.jetstream()
    await js.create_key_value(KeyValueConfig(bucket, history=64))
    entries = await js.key_value(bucket)
    for revision in range(1, LAST + 1):
        update = update_of(revision)
        if update.value:
            assert await entries.put(update.key, update.value) == revision
        else:
            await entries.delete(update.key)
    await client.close()


def come_so_far(directory: Path) -> int:
    """How much has been committed."""
    versions = list((directory / "archive").rglob("*.json"))
    return len(versions) + len(list((directory / "folds").rglob("*.tar")))


def live_and_die(driver: Driver, directory: Path, chance: Random) -> int:
    """Kill workers, then the driver; how many processes were killed."""
    start = come_so_far(directory)
    marks = sorted(start + chance.randrange(1, COMMITS) for _ in range(WORKER_KILLS + 1))
    killed = 0
    for mark in marks:
        until(
            lambda mark=mark: driver.is_done or come_so_far(directory) >= mark,
            f"{mark} commits",
            LIFE_SECONDS,
            driver.story,
        )
        workers = driver.workers()
        if mark is marks[-1] or driver.is_done:
            break
        if workers:
            kill(chance.choice(workers))
            killed += 1
    if not driver.is_done:
        driver.kill()
        killed += 1
    return killed


def archived_messages(directory: Path, form: str) -> list[tuple[int, bytes]]:
    dest, options = place(directory, form)
    table = open_archive(dest, storage_options=options)
    version = table.current()
    assert version.cursor == LAST // 2
    files = [pq.read_table(io.BytesIO(table.storage.read(one.path))) for one in version.files]
    rows = pa.concat_tables(files).select(["seq", "data"]).to_pylist()
    return sorted((row["seq"], row["data"]) for row in rows)


def folded_anew(place: Path, shard: int) -> bytes:
    """The log of a shard, by a follower that was never stopped."""
    updates = [update_of(revision) for revision in range(1, LAST + 1)]
    with AppendLogSnapshot.open(place / f"anew-{shard}") as store:
        store.apply([one for one in updates if hash_of(one.key) % SHARDS == shard], at(LAST))
        store.export_to(place / f"artifact-{shard}")
    return (place / f"artifact-{shard}" / "data" / "fold.snap").read_bytes()


def check(directory: Path, bucket: str, form: str) -> None:
    messages = archived_messages(directory, form)
    assert messages == [(n, update_of(n).value) for n in range(1, LAST // 2 + 1)]
    for number, shard in enumerate(by_hash(SHARDS)):
        fetched = directory / f"fetched-{number}"
        transport = transport_for(str(directory / "folds"))
        asyncio.run(transport.download(f"{bucket}/{shard.name}", fetched))
        assert (fetched / "data" / "fold.snap").read_bytes() == folded_anew(directory, number)


@pytest.mark.parametrize("form", FORMS)
def test_killed_workers_and_drivers_lose_and_double_nothing(
    spark_server: ServerUnderTest, tmp_path: Path, rounds: int, tried: Counter[str], form: str
) -> None:
    bucket = f"B{form}"
    asyncio.run(fill(spark_server.url, bucket))
    for round_number in range(rounds):
        chance = Random(f"pipeline {form} {round_number}")
        directory = tmp_path / f"round {round_number}"
        directory.mkdir()
        arguments = (spark_server.url, str(directory), bucket, str(LAST), form)
        drivers = [Driver(PROGRAM, *arguments, log=directory / "log")]
        try:
            killed = live_and_die(drivers[0], directory, chance)
            tried[f"Spark processes killed while archiving ({form}) and folding"] += killed
            drivers.append(Driver(PROGRAM, *arguments, log=directory / "log"))
            last = drivers[-1]
            until(lambda last=last: last.is_done, "the end", LIFE_SECONDS, last.story)
            assert last.process.returncode == 0, last.story()
        finally:
            for driver in drivers:
                driver.bury()
        check(directory, bucket, form)
