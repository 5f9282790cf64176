"""The format `penstock-blocks`: files of a stopped server, and backups, hold what it showed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import nats
import pytest
from nats.js.api import StoreCompression

from penstock import Options, Server
from penstock.jetstream.account.store_scan import find_places
from penstock.server.config.options import JetStreamOptions
from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from support.servers import ServerUnderTest

PAYLOAD = b"some bytes that can be compressed, compressed, compressed " * 4
N = 3_000
ABSENT = (1, 7, 1_500, 2_999)


async def filled(url: str, name: str = "EV", **config: Any) -> list[tuple[Any, ...]]:
    """A stream of N messages, some with headers, some removed; what a reader of it should see."""
    client = await nats.connect(url)
    stream = client.jetstream()
    await stream.add_stream(name=name, subjects=[f"{name}.>"], **config)
    for n in range(1, N + 1):
        headers = {"N": str(n)} if n % 100 == 0 else None
        await client.publish(f"{name}.{n % 5}", b"%d " % n + PAYLOAD, headers=headers)
    await client.flush()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await stream.stream_info(name)).state.messages < N:
            await client.flush()
    await stream.purge_stream(name, subject=f"{name}.3", keep=10)
    for seq in ABSENT:
        await stream.delete_msg(name, seq)
    left = [n for n in range(1, N + 1) if n % 5 != 3 or n > N - 50]
    await client.close()
    return [
        (f"{name}.{n % 5}", n, b"%d " % n + PAYLOAD, {"N": [str(n)]} if n % 100 == 0 else None)
        for n in left
        if n not in ABSENT
    ]


def stored(directory: Path, **options: Any) -> list[tuple[Any, ...]]:
    """A store directory as a server leaves it, and what is in it."""
    config = options.pop("config", {})

    async def run() -> list[tuple[Any, ...]]:
        given = Options(
            port=-1, host="127.0.0.1", jetstream=True, store_dir=str(directory), **options
        )
        async with Server(options=given) as server:
            return await filled(server.url, **config)

    return asyncio.run(run())


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    wanted = frame.select("subject", "seq", "data", "headers").orderBy("seq").collect()
    return [(row.subject, row.seq, bytes(row.data), row.headers) for row in wanted]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[Any, ...]]]:
    directory = tmp_path_factory.mktemp("store")
    return directory, stored(directory)


def test_store_is_read_as_server_showed_it(
    spark: SparkSession, store: tuple[Path, list[tuple[Any, ...]]]
) -> None:
    directory, expected = store
    frame = spark.read.format("penstock-blocks").load(str(directory))
    assert rows(frame) == expected
    assert {row.stream for row in frame.select("stream").distinct().collect()} == {"EV"}


def test_one_streams_directory_is_enough_and_sequences_can_be_narrowed(
    spark: SparkSession, store: tuple[Path, list[tuple[Any, ...]]]
) -> None:
    directory, expected = store
    place = find_places(directory)[0].messages.parent
    read = spark.read.format("penstock-blocks").option("startingSeq", 100).option("endingSeq", 200)
    assert rows(read.load(str(place))) == [row for row in expected if 100 <= row[1] <= 200]


def test_compressed_and_encrypted_blocks_are_read_with_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    directory, key = tmp_path / "store", tmp_path / "key"
    key.write_text("a secret of the server\n")
    options = {"jetstream_options": JetStreamOptions(key="a secret of the server")}
    expected = stored(directory, config={"compression": StoreCompression.S2}, **options)
    read = spark.read.format("penstock-blocks")
    with pytest.raises(Exception, match="no key was given"):
        read.load(str(directory)).count()
    assert rows(read.option("keyFile", str(key)).load(str(directory))) == expected


def test_small_tasks_are_many_and_hold_the_same(
    spark: SparkSession, store: tuple[Path, list[tuple[Any, ...]]], tmp_path: Path
) -> None:
    directory, expected = store
    frame = spark.read.format("penstock-blocks").option("maxPartitionBytes", 1).load(str(directory))
    blocks = list(find_places(directory)[0].messages.glob("*.blk"))
    assert frame.rdd.getNumPartitions() == len(blocks)
    assert frame.count() == len(expected)


def test_store_that_server_holds_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    async def run() -> None:
        given = Options(port=-1, host="127.0.0.1", jetstream=True, store_dir=str(tmp_path))
        async with Server(options=given) as server:
            await filled(server.url)
            read = spark.read.format("penstock-blocks").load(str(tmp_path))
            with pytest.raises(Exception, match="held by a running server"):
                await asyncio.to_thread(read.count)

    asyncio.run(run())


def damaged(directory: Path) -> None:
    """Flip one bit in the middle of the first block."""
    block = min(find_places(directory)[0].messages.glob("*.blk"))
    data = bytearray(block.read_bytes())
    data[len(data) // 2] ^= 4
    block.write_bytes(data)


def test_damage_fails_read_or_is_left_out_and_shown_as_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    expected = stored(tmp_path)
    damaged(tmp_path)
    read = spark.read.format("penstock-blocks")
    with pytest.raises(Exception, match="failOnDamage"):
        read.load(str(tmp_path)).write.format("noop").mode("overwrite").save()
    found = rows(read.option("failOnDamage", False).load(str(tmp_path)))
    lost = {row[1] for row in expected} - {row[1] for row in found}
    assert 0 < len(lost) <= 2
    table = spark.read.format("penstock-blocks").option("damage", True).load(str(tmp_path))
    damage = [row for row in table.collect() if row.firstSeq is not None]
    assert {seq for row in damage for seq in range(row.firstSeq, row.lastSeq + 1)} == lost
    assert any(row.firstByte is not None for row in table.collect())


def test_sound_store_has_empty_table_of_damage(
    spark: SparkSession, store: tuple[Path, list[tuple[Any, ...]]]
) -> None:
    read = spark.read.format("penstock-blocks").option("damage", True)
    assert read.load(str(store[0])).collect() == []


def test_backup_is_read_without_server(
    spark: SparkSession, server: ServerUnderTest, tmp_path: Path
) -> None:
    name = f"B{server.port}"
    expected = asyncio.run(filled(f"nats://127.0.0.1:{server.port}", name))
    command = [sys.executable, "-m", "penstock", "stream", "backup", name, str(tmp_path / "kept")]
    url = ["--server", f"nats://127.0.0.1:{server.port}"]
    subprocess.run([*command, *url], check=True, timeout=PATIENCE_SECONDS * 6, capture_output=True)
    read = spark.read.format("penstock-blocks")
    frame = read.load(str(tmp_path / "kept"))
    assert rows(frame) == expected
    assert {row.stream for row in frame.select("stream").distinct().collect()} == {name}
    part = read.option("startingSeq", 50).option("endingSeq", 60).load(str(tmp_path / "kept"))
    assert [row[1] for row in rows(part)] == [n for n in range(50, 61) if n % 5 != 3]
    archive = next((tmp_path / "kept").glob("*.s2"))
    archive.write_bytes(archive.read_bytes()[:-40])
    with pytest.raises(Exception, match=r"cut short|checksum"):
        read.load(str(tmp_path / "kept")).count()


def test_path_that_holds_no_store_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="there is no store"):
        spark.read.format("penstock-blocks").load(str(tmp_path)).count()
