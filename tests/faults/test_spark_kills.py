"""Workers and drivers of Spark are killed while they write into a stream: every row is stored once,
and every row that cannot be stored is skipped, or kept once as a dead letter.

A life has its workers killed a few times and then the driver, Python and Java together; the next
one goes on from the checkpoint. When to kill is decided by how much the stream has, not by time.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from penstock.spark.options import ConnectionOptions, parse
from penstock.spark.spark_connection import shared_reader
from support.drivers import Driver, kill
from support.servers import until
from support.spark_sinks import make_stream, stored

if TYPE_CHECKING:
    from collections import Counter

    from support.servers import ServerUnderTest

LONG_ROUNDS = 2
FILES = 8
ROWS = 150
WORKER_KILLS = 3
LIFE_SECONDS = 900.0
WINDOW_NS = 4 * int(LIFE_SECONDS) * 10**9
"""Of ids: `exactlyOnce` promises nothing to who comes back later than that, however busy he was."""
DELIVERIES = ("strict", "exactlyOnce")
BAD_ROWS = ("deadletter", "files", "skip")
BAD_EVERY = 7
#: Rows that are stored in every mode.
GOOD_MIN = FILES * ROWS * (BAD_EVERY - 1) // BAD_EVERY - FILES
PROGRAM = Path(__file__).with_name("spark_victim.py")


def victim(server: ServerUnderTest, directory: Path, delivery: str, bad_rows: str) -> Driver:
    arguments = (server.url, str(directory), delivery, bad_rows)
    return Driver(PROGRAM, *arguments, log=directory / "victim.log")


def lines_of(directory: Path, bad_every: int = 0) -> list[str]:
    """Rows in files, of which each is a batch of the query; some of them bad."""
    (directory / "in").mkdir(parents=True)
    lines: list[str] = []
    for number in range(FILES):
        found = [
            f"{'bad-' if bad_every and row % bad_every == 0 else ''}{number:02}-{row:04}"
            for row in range(ROWS)
        ]
        (directory / "in" / f"{number:02}.txt").write_text("\n".join(found) + "\n")
        lines += found
    return lines


def live_and_die(driver: Driver, server: ServerUnderTest, chance: Random) -> int:
    """Kill workers, then the driver; how many processes were killed."""

    reader = shared_reader(parse(ConnectionOptions, {"url": server.url}))

    def has(count: int) -> bool:
        return driver.is_done or reader.stream_state("OUT").messages >= count

    marks = sorted(chance.randrange(1, GOOD_MIN) for _ in range(WORKER_KILLS + 1))
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


def chance_of(number: int, *mode: str) -> Random:
    """The same kills for the same round of a mode, others in another mode."""
    return Random(f"{number} {mode}")


def survive(
    server: ServerUnderTest, directory: Path, delivery: str, chance: Random, bad_rows: str = "fail"
) -> int:
    """A life and the one after it; how many processes were killed."""
    first = victim(server, directory, delivery, bad_rows)
    try:
        killed = live_and_die(first, server, chance)
        second = victim(server, directory, delivery, bad_rows)
        try:
            until(lambda: second.is_done, "the end", LIFE_SECONDS, second.story)
            assert second.process.returncode == 0, second.story()
        finally:
            second.bury()
    finally:
        first.bury()
    return killed


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_killed_workers_and_drivers_leave_every_row_stored_once(
    spark_server: ServerUnderTest,
    tmp_path: Path,
    rounds: int,
    tried: Counter[str],
    delivery: str,
) -> None:
    for number in range(rounds):
        directory = tmp_path / f"round {number}"
        lines = lines_of(directory)
        make_stream(spark_server, "OUT", allow_atomic=True, duplicate_window=WINDOW_NS)
        killed = survive(spark_server, directory, delivery, chance_of(number, delivery))
        tried[f"Spark processes killed, {delivery}"] += killed
        assert sorted(one.data for one in stored(spark_server, "OUT")) == lines


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("bad_rows", BAD_ROWS)
def test_killed_workers_and_drivers_leave_every_bad_row_kept_once(
    spark_server: ServerUnderTest,
    tmp_path: Path,
    rounds: int,
    tried: Counter[str],
    delivery: str,
    bad_rows: str,
) -> None:
    for number in range(rounds):
        directory = tmp_path / f"round {number}"
        lines = lines_of(directory, BAD_EVERY)
        bad = sorted(line for line in lines if line.startswith("bad"))
        make_stream(spark_server, "OUT", allow_atomic=True, duplicate_window=WINDOW_NS)
        make_stream(spark_server, "DEAD", duplicate_window=WINDOW_NS)
        killed = survive(
            spark_server, directory, delivery, chance_of(number, delivery, bad_rows), bad_rows
        )
        tried[f"Spark processes killed, {delivery}, bad rows: {bad_rows}"] += killed
        good = sorted(set(lines) - set(bad))
        assert sorted(one.data for one in stored(spark_server, "OUT")) == good
        if bad_rows == "deadletter":
            assert sorted(one.data for one in stored(spark_server, "DEAD")) == bad
        if bad_rows == "files":
            assert letters_in(directory / "dead") == bad
        assert reported_as_refused(directory / "numbers") == len(bad)


def letters_in(directory: Path) -> list[str]:
    """The payloads of dead letters in Parquet files, sorted."""
    columns = [pq.read_table(path).column("data") for path in directory.glob("*.parquet")]
    return sorted(data.decode() for column in columns for data in column.to_pylist())


def reported_as_refused(directory: Path) -> int:
    """The sum over all batches: a repeated batch replaces its numbers."""
    return sum(json.loads(path.read_text())["refused"] for path in directory.glob("*.json"))
