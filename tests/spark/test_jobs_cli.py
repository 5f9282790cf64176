"""`penstock pipeline`: the jobs from a command line, with their outcome as JSON and exit code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from penstock.spark.jobs import archive, open_archive, replay
from penstock.spark.jobs.job_inputs import ServerOrigin
from penstock.spark.jobs.task_progress import task_progress
from support.cli import Cli, command_line
from support.pipelines import fill, tell, url_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from support.servers import ServerUnderTest

__all__ = ["command_line"]
STREAM = "PIPE"


@pytest.fixture
def cli(
    spark: SparkSession,
    command_line: Cli,
    server: ServerUnderTest,
    monkeypatch: pytest.MonkeyPatch,
) -> Cli:
    monkeypatch.setenv("NATS_URL", url_of(server))
    return command_line


def test_archive_verify_and_profile_report_what_they_did(
    cli: Cli, server: ServerUnderTest, tmp_path: Path
) -> None:
    fill(server, STREAM, 1, 40)
    place = str(tmp_path / "kept")
    told = json.loads(cli.done("pipeline", "archive", STREAM, place, "--json").out)
    assert (told["rows_added"], told["cursor"], told["form"]) == (40, 40, "parquet")
    assert "Archive of PIPE" in cli.done("pipeline", "archive", STREAM, place).out
    verify = ("pipeline", "verify", "--stream", STREAM, "--archive", place)
    assert json.loads(cli.done(*verify, "--json").out)["is_well"]
    chart = tmp_path / "chart.svg"
    told = json.loads(cli.done("pipeline", "profile", place, "--chart", str(chart), "--json").out)
    assert told["messages"] == 40
    assert chart.exists()
    table = open_archive(place)
    base = table.current()
    table.commit(base, [], [base.files[0].path])
    assert cli.refused(*verify, "--json").endswith("they differ")


def test_fold_publishes_shards(cli: Cli, server: ServerUnderTest, tmp_path: Path) -> None:
    async def make(js) -> None:  # type: ignore[no-untyped-def]
        bucket = await js.create_key_value(bucket="PIPED")
        for n in range(10):
            await bucket.put(f"k{n}", b"v")

    tell(server, make)
    place = str(tmp_path / "folds")
    arguments = ("pipeline", "fold", "PIPED", place, "--shards", "2", "--json")
    told = json.loads(cli.done(*arguments).out)
    assert sum(shard["entries"] for shard in told["shards"]) == 10
    verify = ("pipeline", "verify", "--bucket", "PIPED", "--folds", place)
    told = json.loads(cli.done(*verify, "--json").out)
    assert [check["found"] for check in told["checks"] if "entries" in check["what"]] != []
    assert sum(check["found"] for check in told["checks"] if "entries" in check["what"]) == 10
    assert cli.refused(*verify, "--shards", "3").endswith("they differ")
    empty = str(tmp_path / "empty")
    assert cli.refused(*verify[:-1], empty).endswith("they differ")
    made = str(tmp_path / "edge")
    assert (
        json.loads(cli.done("fold", "import", f"{place}/PIPED", made, "--json").out)["entries"]
        == 10
    )


def test_failures_are_one_line(cli: Cli, tmp_path: Path) -> None:
    place = str(tmp_path / "kept")
    assert "NOWHERE" in cli.refused("pipeline", "archive", "NOWHERE", place)
    assert "no archive" in cli.refused("pipeline", "replay", place, "S")
    assert "say what" in cli.refused("pipeline", "verify", "--stream", STREAM, code=2)


def test_progress_counts_tasks_of_spark(spark: SparkSession) -> None:
    seen: list[tuple[int, int]] = []
    with task_progress(spark, lambda done, total: seen.append((done, total))):
        assert spark.range(0, 100, 1, 5).selectExpr("id + 1").toArrow().num_rows == 100
    assert seen[-1] == (5, 5)
    with task_progress(spark, None):
        spark.range(3).count()
    assert seen[-1] == (5, 5)


def test_progress_of_replay_counts_messages_of_target(
    spark: SparkSession, ours: ServerUnderTest, tmp_path: Path
) -> None:
    fill(ours, "REPLAYED", 1, 20)
    connection = {"url": url_of(ours)}
    archive(spark, ServerOrigin(spark, "REPLAYED", connection), str(tmp_path))
    tell(ours, lambda js: js.add_stream(name="AGAIN", subjects=["AGAIN.>"]))
    seen: list[tuple[int, int]] = []
    replay(
        spark,
        str(tmp_path),
        "AGAIN",
        connection,
        rename=("REPLAYED", "AGAIN"),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (20, 20)
