"""Workers and drivers of Spark are killed while they write into a stream: every row is stored once.

A life has its workers killed a few times and then the driver, Python and Java together; the next
one goes on from the checkpoint. When to kill is decided by how much the stream has, not by time.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from penstock.spark.connecting import shared_reader
from penstock.spark.options import ConnectionOptions, parse
from support_drivers import Driver, kill
from support_servers import until
from support_spark_sinks import make_stream, stored

if TYPE_CHECKING:
    from collections import Counter

    from support_servers import ServerUnderTest

LONG_ROUNDS = 15
FILES = 8
ROWS = 150
WORKER_KILLS = 3
LIFE_SECONDS = 900.0
WINDOW_NS = 4 * int(LIFE_SECONDS) * 10**9
"""Of ids: `exactlyOnce` promises nothing to who comes back later than that, however busy he was."""
DELIVERIES = ("strict", "exactlyOnce")
PROGRAM = Path(__file__).with_name("spark_victim.py")


def victim(server: ServerUnderTest, directory: Path, delivery: str) -> Driver:
    arguments = (server.url, str(directory), delivery)
    return Driver(PROGRAM, *arguments, log=directory / "victim.log")


def lines_of(directory: Path) -> list[str]:
    """Rows in files, of which each is a batch of the query."""
    (directory / "in").mkdir(parents=True)
    for number in range(FILES):
        text = "".join(f"{number:02}-{row:04}\n" for row in range(ROWS))
        (directory / "in" / f"{number:02}.txt").write_text(text)
    return [f"{number:02}-{row:04}" for number in range(FILES) for row in range(ROWS)]


def live_and_die(driver: Driver, server: ServerUnderTest, chance: Random) -> int:
    """Kill workers, then the driver; how many processes were killed."""

    reader = shared_reader(parse(ConnectionOptions, {"url": server.url}))

    def has(count: int) -> bool:
        return driver.is_done or reader.stream_state("OUT").messages >= count

    marks = sorted(chance.randrange(1, FILES * ROWS) for _ in range(WORKER_KILLS + 1))
    killed = 0
    for mark in marks[:-1]:
        until(lambda mark=mark: has(mark), f"{mark} rows", LIFE_SECONDS, driver.story)
        workers = driver.workers()
        if workers:
            kill(chance.choice(workers))
            killed += 1
    until(lambda: has(marks[-1]), f"{marks[-1]} rows", LIFE_SECONDS, driver.story)
    if driver.is_done:
        assert driver.process.returncode == 0, driver.story()
    else:
        driver.kill()
        killed += 1
    return killed


def survive(server: ServerUnderTest, directory: Path, delivery: str, chance: Random) -> int:
    """A life and the one after it; how many processes were killed."""
    first = victim(server, directory, delivery)
    try:
        killed = live_and_die(first, server, chance)
        second = victim(server, directory, delivery)
        try:
            until(lambda: second.is_done, "the end", LIFE_SECONDS, second.story)
            assert second.process.returncode == 0, second.story()
        finally:
            second.bury()
    finally:
        first.bury()
    return killed


def test_killed_workers_and_drivers_leave_every_row_stored_once(
    spark_server: ServerUnderTest, tmp_path: Path, rounds: int, tried: Counter[str]
) -> None:
    for number in range(rounds):
        delivery = DELIVERIES[number % len(DELIVERIES)]
        directory = tmp_path / f"round {number}"
        lines = lines_of(directory)
        make_stream(spark_server, "OUT", allow_atomic=True, duplicate_window=WINDOW_NS)
        killed = survive(spark_server, directory, delivery, Random(number))
        tried[f"Spark processes killed, {delivery}"] += killed
        assert sorted(one.data for one in stored(spark_server, "OUT")) == lines
