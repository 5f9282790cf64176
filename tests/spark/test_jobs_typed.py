"""Archives with typed payloads, and messages that limits remove while they are archived."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.jobs import (
    ArchiveError,
    ServerOrigin,
    archive,
    archived,
    open_archive,
    replay,
    verify,
)
from penstock.spark.jobs.archive_removals import missing
from penstock.spark.jobs.job_inputs import InputExtent, without_losses
from support.cli import Cli, command_line
from support.iceberg import PLACE, catalog_options
from support.pipelines import fill, tell, url_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from support.servers import ServerUnderTest

__all__ = ["command_line"]
FORMS = ("parquet", "delta", "iceberg")
NARROW = "n INT, tags ARRAY<STRING>"
WIDE = f"{NARROW}, city STRING"
names = (f"TYPED{n}" for n in itertools.count())


@pytest.fixture
def stream() -> str:
    return next(names)


@dataclass
class Typed:
    """A stream of JSON and its archive of one form."""

    spark: SparkSession
    server: ServerUnderTest
    stream: str
    form: str
    dest: str
    options: dict[str, Any]

    def publish(self, first: int, last: int, **more: str) -> None:
        async def send(js: Any) -> None:
            if first == 1:
                await js.add_stream(name=self.stream, subjects=[f"{self.stream}.>"])
            for n in range(first, last + 1):
                value = {"n": n, "tags": [f"t{n}"], **more}
                await js.publish(f"{self.stream}.x", json.dumps(value).encode())

        tell(self.server, send)

    def archive(self, ddl: str, **options: Any) -> Any:
        payload = {"payload": "json", "payloadSchema": ddl} if ddl else {}
        origin = ServerOrigin(self.spark, self.stream, {"url": url_of(self.server)}, payload)
        more = {"storage_options": self.options, **options}
        return archive(self.spark, origin, self.dest, form=self.form, **more)

    def rows(self) -> DataFrame:
        table = open_archive(self.dest, storage_options=self.options)
        return archived(self.spark, table, table.current()).orderBy("seq")

    def numbers(self) -> list[tuple[int, list[str]]]:
        rows = self.rows().select("value.n", "value.tags").collect()
        return [(row.n, list(row.tags)) for row in rows]


@pytest.fixture(params=FORMS)
def typed(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    ours: ServerUnderTest,
    stream: str,
    tmp_path: Path,
) -> Typed:
    iceberg = request.param == "iceberg"
    dest = PLACE if iceberg else str(tmp_path / "kept")
    options = catalog_options(tmp_path) if iceberg else {}
    return Typed(spark, ours, stream, request.param, dest, options)


def expected(first: int, last: int) -> list[tuple[int, list[str]]]:
    return [(n, [f"t{n}"]) for n in range(first, last + 1)]


def test_payloads_become_typed_columns(typed: Typed) -> None:
    typed.publish(1, 20)
    typed.archive(NARROW, until=10, sequences_per_commit=5, compact_bytes=0)
    assert typed.archive(NARROW).rows_added == 10  # and joins the files of both runs
    assert typed.numbers() == expected(1, 20)
    assert "data" not in typed.rows().columns
    stored = {f"storage.{name}": value for name, value in typed.options.items()}
    reading = typed.spark.read.format("penstock-archive").options(**stored)
    assert reading.load(typed.dest).where("value.n > 15").count() == 5
    origin = ServerOrigin(typed.spark, typed.stream, {"url": url_of(typed.server)})
    report = verify(typed.spark, origin=origin, archive=typed.dest, storage_options=typed.options)
    assert report.is_well
    assert "their sizes were compared" in report.checks[-1].detail


def test_payloads_that_are_only_typed_are_not_replayed(typed: Typed) -> None:
    typed.publish(1, 3)
    typed.archive(NARROW)
    connection = {"url": url_of(typed.server)}
    with pytest.raises(ArchiveError, match="typed payloads only"):
        replay(typed.spark, typed.dest, "X", connection, storage_options=typed.options)


def test_raw_and_typed_rows_do_not_mix(typed: Typed) -> None:
    typed.publish(1, 10)
    typed.archive(NARROW, until=5)
    with pytest.raises(ArchiveError, match="data"):
        typed.archive("")
    assert typed.numbers() == expected(1, 5)


def test_typed_rows_do_not_follow_raw_ones(typed: Typed) -> None:
    typed.publish(1, 10)
    typed.archive("", until=5)
    with pytest.raises(ArchiveError, match="data"):
        typed.archive(NARROW)
    assert typed.rows().count() == 5


def test_payload_schema_grows_in_iceberg_and_is_refused_elsewhere(typed: Typed) -> None:
    typed.publish(1, 5)
    typed.archive(NARROW)
    typed.publish(6, 10, city="Graz")
    if typed.form != "iceberg":
        with pytest.raises(ArchiveError, match="columns value differ"):
            typed.archive(WIDE)
        return
    typed.archive(WIDE)
    assert typed.numbers() == expected(1, 10)
    cities = [row.city for row in typed.rows().select("value.city").collect()]
    assert cities == [None] * 5 + ["Graz"] * 5


def test_command_line_takes_payload_and_schema(
    typed: Typed, command_line: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NATS_URL", url_of(typed.server))
    typed.publish(1, 4)
    options = [f"--storage-option={name}={value}" for name, value in typed.options.items()]
    asked = ("--payload", "json", "--payload-schema", NARROW, *options)
    command_line.done("pipeline", "archive", typed.stream, typed.dest, "--form", typed.form, *asked)
    assert typed.numbers() == expected(1, 4)
    asked = ("--payload", "text", "--store", str(tmp_path))
    refused = command_line.refused("pipeline", "archive", typed.stream, "x", *asked, code=2)
    assert "--store" in refused


# -- removal during a run


@dataclass
class Overtaken:
    """A stream that gets more messages than its limit, just before a range is read."""

    origin: ServerOrigin
    server: ServerUnderTest
    first: int
    last: int

    def extent(self) -> InputExtent:
        return self.origin.extent()

    def rows(self, first: int, last: int) -> DataFrame:
        rows = self.origin.rows(first, last)
        fill(self.server, self.origin.stream, self.first, self.last, make=False)
        return rows


@pytest.mark.parametrize("form", FORMS)
def test_messages_removed_during_run_are_reported(
    spark: SparkSession, server: ServerUnderTest, stream: str, tmp_path: Path, form: str
) -> None:
    dest = PLACE if form == "iceberg" else str(tmp_path / "kept")
    options = catalog_options(tmp_path) if form == "iceberg" else {}
    fill(server, stream, 1, 30, max_msgs=30)
    origin = ServerOrigin(spark, stream, {"url": url_of(server)})
    told = archive(
        spark, Overtaken(origin, server, 31, 42), dest, form=form, storage_options=options
    )
    assert (told.rows_added, told.removed, told.cursor) == (18, 12, 30)
    assert open_archive(dest, storage_options=options).current().evicted == ((1, 12),)
    again = archive(spark, origin, dest, storage_options=options)
    assert (again.rows_added, again.removed) == (12, 0)


def test_missing_ranges_are_what_is_not_held() -> None:
    assert missing([], 3, 5) == [(3, 5)]
    assert missing([4, 3, 7], 2, 9) == [(2, 2), (5, 6), (8, 9)]
    assert missing([2, 3], 2, 3) == []


def test_allowed_loss_reaches_reader(spark: SparkSession) -> None:
    lenient = without_losses(ServerOrigin(spark, "S", {}, {"payload": "text"}))
    assert isinstance(lenient, ServerOrigin)
    assert lenient.options == {"payload": "text", "failOnDataLoss": "false"}
