"""Workers and drivers are killed while they replay an archive: each message is stored once, and
each that the target refuses is skipped, or kept once as a dead letter.

A proxy counts the acks that the server sends and kills in the middle of the write, so no kill comes
too late: first the workers, then in the same life the driver. The next life replays everything
again.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from penstock.spark.jobs import ServerOrigin, archive
from penstock.spark.spark_session import session
from support.drivers import Driver, kill
from support.proxy import Proxy
from support.servers import until
from support.spark_sinks import make_stream, stored, with_client

if TYPE_CHECKING:
    from collections import Counter

    from nats.aio.client import Client

    from support.servers import ServerUnderTest

LONG_ROUNDS = 3
ROWS = 600
LIFE_SECONDS = 900.0
WINDOW_NS = 4 * int(LIFE_SECONDS) * 10**9
DELIVERIES = ("strict", "exactlyOnce")
BAD_ROWS = ("fail", "skip", "deadletter")
BAD_EVERY = 7
#: The target's limit; bad messages are larger.
SIZE_MAX = 1000
PROGRAM = Path(__file__).with_name("replay_victim.py")
#: An ack that says that something was stored; atomic batches have one for all their rows.
STORED = b'"seq":'
ROWS_PER_ACK = {"strict": 30, "exactlyOnce": 1}


class Killer:
    """Kills all workers, then the driver, when as many acks have passed as `marks` says."""

    def __init__(self, marks: list[int]) -> None:
        self.marks = marks
        self.driver: Driver | None = None
        self.killed: list[str] = []
        self._acks = 0

    def __call__(self, connection: int, data: bytes) -> bytes:
        self._acks += data.count(STORED)
        if self.marks and self.driver is not None and self._acks >= self.marks[0]:
            self.marks.pop(0)
            self._strike(self.driver)
        return data

    def _strike(self, driver: Driver) -> None:
        if self.marks:
            for worker in driver.workers():
                kill(worker)
                self.killed.append("worker")
        else:
            driver.kill()
            self.killed.append("driver")


def payload(number: int, bad_rows: str) -> str:
    is_bad = bad_rows != "fail" and number % BAD_EVERY == 0
    return f"row {number}" + " large" * (SIZE_MAX if is_bad else 0)


def fill(server: ServerUnderTest, place: Path, bad_rows: str) -> list[str]:
    """Make the archive of a stream, and return its payloads."""
    make_stream(server, "IN")
    lines = [payload(number, bad_rows) for number in range(ROWS)]

    async def publish(client: Client) -> None:
        for number, line in enumerate(lines):
            await client.jetstream().publish(f"IN.{number % 5}", line.encode())

    with_client(server, publish)
    spark = session("archive", "local[1]", light=True, **{"spark.log.level": "ERROR"})
    try:
        archive(spark, ServerOrigin(spark, "IN", {"url": server.url}), str(place))
    finally:
        spark.stop()
    return lines


async def survive(
    server: ServerUnderTest, directory: Path, delivery: str, bad_rows: str, chance: Random
) -> list[str]:
    """One life that is killed, and one that completes the replay; return what was killed."""
    good = ROWS if bad_rows == "fail" else ROWS - ROWS // BAD_EVERY - 1
    acks = good // ROWS_PER_ACK[delivery]
    killer = Killer(sorted(chance.sample(range(2, acks - 1), 2)))
    log = directory / "log"
    async with Proxy(server.port, killer, chunk_bytes=256) as proxy:
        archived = str(directory.with_name("archive"))
        arguments = (archived, str(directory), delivery, bad_rows)
        first = Driver(PROGRAM, proxy.url, *arguments, log=log)
        killer.driver = first
        drivers = [first]
        try:
            await asyncio.to_thread(until, lambda: first.is_done, "kill", LIFE_SECONDS, first.story)
            assert set(killer.killed) == {"worker", "driver"}, first.story()
            last = Driver(PROGRAM, server.url, *arguments, log=log)
            drivers.append(last)
            await asyncio.to_thread(until, lambda: last.is_done, "end", LIFE_SECONDS, last.story)
            assert last.process.returncode == 0, last.story()
        finally:
            for driver in drivers:
                driver.bury()
    return killer.killed


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("bad_rows", BAD_ROWS)
def test_killed_replays_store_every_message_once_and_in_order(
    spark_server: ServerUnderTest,
    tmp_path: Path,
    rounds: int,
    tried: Counter[str],
    delivery: str,
    bad_rows: str,
) -> None:
    lines = fill(spark_server, tmp_path / "archive", bad_rows)
    good = [line for line in lines if len(line) <= SIZE_MAX]
    bad = [line for line in lines if len(line) > SIZE_MAX]
    for number in range(rounds):
        directory = tmp_path / f"round {number}"
        directory.mkdir()
        window = {"duplicate_window": WINDOW_NS}
        make_stream(spark_server, "COPY", allow_atomic=True, max_msg_size=SIZE_MAX, **window)
        make_stream(spark_server, "DEAD", **window)
        chance = Random(f"replay {delivery} {bad_rows} {number}")
        killed = asyncio.run(survive(spark_server, directory, delivery, bad_rows, chance))
        tried[f"Spark processes killed while replaying, {delivery}, {bad_rows}"] += len(killed)
        assert [one.data for one in stored(spark_server, "COPY")] == good
        letters = sorted(one.data for one in stored(spark_server, "DEAD"))
        assert letters == (sorted(bad) if bad_rows == "deadletter" else [])
        assert f"done, {len(bad)} refused" in (directory / "log").read_text()
