"""Streaming queries that come to harm while they write and are started again: each row is once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from support.servers import until
from support.spark_sinks import Sabotage, SabotagedJetStream, make_stream, stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from support.servers import ServerUnderTest, Starter

FILES = 2
ROWS = 300
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
STARTS_MAX = 3
STORE_FLAGS = ("-js", "-sd", "store")
STRICT = {"delivery": "strict", "batchRows": "70"}
BY_ID: dict[str, str] = {}


@pytest.fixture
def sabotaged(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with the sabotaged format, in which a task sees several Arrow batches."""
    spark.dataSource.register(SabotagedJetStream)
    spark.conf.set(ARROW_ROWS, 60)
    yield spark
    spark.conf.unset(ARROW_ROWS)


@pytest.fixture
def lines(tmp_path: Path) -> list[str]:
    """Rows in files, of which each is a batch of a query."""
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        text = "".join(f"{number}-{row:04}\n" for row in range(ROWS))
        (tmp_path / "in" / f"{number}.txt").write_text(text)
    return [f"{number}-{row:04}" for number in range(FILES) for row in range(ROWS)]


def rows_in(spark: SparkSession, directory: Path) -> DataFrame:
    read = spark.readStream.option("maxFilesPerTrigger", 1).text(str(directory / "in"))
    return read.selectExpr("concat('OUT.', value) subject", "value data", "value msgId")


def run(frame: DataFrame, directory: Path, **options: Any) -> int:
    """Start the query again and again until it ends well; how often it failed."""
    for failures in range(STARTS_MAX):
        query = (
            frame.writeStream.format("jetstream-sabotaged")
            .options(**options)
            .option("checkpointLocation", str(directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except StreamingQueryException:
            continue
        return failures
    raise AssertionError("the query fails whenever it is started")


HARMS = [
    ("raise", -1, BY_ID),
    ("kill", -1, BY_ID),
    ("kill", 3, BY_ID),
    ("kill", -1, STRICT),
    ("kill", 3, STRICT),
    ("raise", -1, STRICT),
]


@pytest.mark.parametrize(("kind", "after", "options"), HARMS)
def test_worker_that_fails_in_batch_leaves_every_row_stored_once(
    sabotaged: SparkSession,
    server: ServerUnderTest,
    tmp_path: Path,
    lines: list[str],
    kind: str,
    after: int,
    options: dict[str, str],
) -> None:
    make_stream(server, "OUT", allow_atomic=True)
    sabotage = Sabotage(tmp_path / "sabotage", kind, after)
    frame = rows_in(sabotaged, tmp_path)
    chosen = {"url": server.url, "stream": "OUT", "sabotage": sabotage.arm(), **options}
    assert run(frame, tmp_path, **chosen) == 1
    assert sorted(one.data for one in stored(server, "OUT")) == lines


def test_shuffled_partition_is_repeated_in_order_of_its_ids(
    sabotaged: SparkSession, server: ServerUnderTest, tmp_path: Path, lines: list[str]
) -> None:
    make_stream(server, "OUT", allow_atomic=True)
    sabotage = Sabotage(tmp_path / "sabotage", "raise")
    frame = rows_in(sabotaged, tmp_path).repartition(2, "msgId")
    chosen = {"url": server.url, "stream": "OUT", "sabotage": sabotage.arm(), **STRICT}
    assert run(frame, tmp_path, **chosen) == 1
    assert sorted(one.data for one in stored(server, "OUT")) == lines


def test_at_least_once_stores_what_was_written_before_failure_again(
    sabotaged: SparkSession, server: ServerUnderTest, tmp_path: Path, lines: list[str]
) -> None:
    make_stream(server, "OUT")
    sabotage = Sabotage(tmp_path / "sabotage", "raise")
    chosen = {"url": server.url, "stream": "OUT", "sabotage": sabotage.arm()}
    assert run(rows_in(sabotaged, tmp_path), tmp_path, delivery="atLeastOnce", **chosen) == 1
    found = [one.data for one in stored(server, "OUT")]
    assert sorted(set(found)) == lines
    assert len(found) == len(lines) + ROWS


@pytest.mark.parametrize("options", [BY_ID, STRICT], ids=["by id", "strict"])
def test_server_that_goes_and_comes_back_in_batch_has_every_row_once(
    sabotaged: SparkSession,
    start: Starter,
    tmp_path: Path,
    lines: list[str],
    options: dict[str, str],
) -> None:
    server = start("", *STORE_FLAGS)
    make_stream(server, "OUT", allow_atomic=True)
    sabotage = Sabotage(tmp_path / "sabotage", "wait", 2)
    chosen = {"url": server.url, "stream": "OUT", "sabotage": sabotage.arm(), **options}

    def restart() -> None:
        until((tmp_path / "sabotage.reached").exists, "the middle of a batch", seconds=60)
        server.restart()
        (tmp_path / "sabotage.done").touch()

    meanwhile = threading.Thread(target=restart)
    meanwhile.start()
    assert run(rows_in(sabotaged, tmp_path), tmp_path, **chosen) == 0
    meanwhile.join()
    assert sorted(one.data for one in stored(server, "OUT")) == lines
