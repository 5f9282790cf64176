"""The format `penstock-archive`: the same table whatever the form, and only the files it needs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.jobs import ServerOrigin, archive, open_archive
from support.iceberg import PLACE, catalog_options
from support.pipelines import fill, url_of
from support.s3 import s3_server

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from support.servers import ServerUnderTest

FORMS = ("parquet", "delta", "iceberg")
names = (f"ARF{n}" for n in itertools.count())


class Archived:
    """A stream of 90 messages in three commits, by the token that has three values."""

    def __init__(self, spark: SparkSession, server: ServerUnderTest, dest: str, form: str,
                 options: dict[str, Any]) -> None:  # fmt: skip
        self.spark = spark
        self.dest = dest
        self.options = options
        self.stream = next(names)
        fill(server, self.stream, 1, 90)
        self.origin = ServerOrigin(spark, self.stream, {"url": url_of(server)})
        archive(
            spark,
            self.origin,
            dest,
            form=form,
            token=1,
            sequences_per_commit=30,
            compact_bytes=0,
            storage_options=options,
        )

    def load(self, **more: Any) -> DataFrame:
        flat = {**self.options, **self.options.get("client_options", {})}
        flat.pop("client_options", None)
        told = {f"storage.{name}": value for name, value in flat.items()}
        return self.spark.read.format("penstock-archive").options(**told, **more).load(self.dest)


@pytest.fixture(params=FORMS)
def kept(request: pytest.FixtureRequest, spark: SparkSession, ours: ServerUnderTest,
         tmp_path: Path) -> Archived:  # fmt: skip
    if request.param == "iceberg":
        return Archived(spark, ours, PLACE, "iceberg", catalog_options(tmp_path))
    return Archived(spark, ours, str(tmp_path), request.param, {})


def test_every_form_is_the_same_table_read_from_few_files(kept: Archived) -> None:
    # One test, because an archive of three commits costs more than reading it.
    check_is_the_same_table(kept)
    check_unwanted_files_are_not_opened(kept)


def check_is_the_same_table(kept: Archived) -> None:
    found = kept.load()
    messages = ["stream", "subject", "seq", "timestamp", "headers", "data", "size"]
    assert found.columns == [*messages, "date", "token_1"]
    rows = found.select(*messages).orderBy("seq").collect()
    assert rows == kept.origin.rows(1, 90).select(*messages).orderBy("seq").collect()
    assert found.where("date = date(timestamp)").count() == 90
    assert found.where("token_1 = split(subject, '[.]')[1]").count() == 90
    narrow = kept.spark.read.schema("token_1 string, seq bigint").format("penstock-archive")
    told = {f"storage.{name}": value for name, value in kept.options.items()}
    assert narrow.options(**told).load(kept.dest).where("token_1 = '2'").count() == 30


def check_unwanted_files_are_not_opened(kept: Archived) -> None:
    table = open_archive(kept.dest, storage_options=kept.options)
    version = table.current()
    assert len(version.files) == 9
    wanted = [f for f in version.files if f.first_seq <= 60 and f.last_seq >= 31]
    doomed = [f.path for f in version.files if f not in wanted or f.partition["token_1"] != "1"]
    assert len(doomed) == 8
    for path in doomed:  # a file that is opened now fails the query
        table.storage.delete(path)
    chosen = kept.load(startingSeq=31, endingSeq=60)
    by_token = chosen.where("token_1 = '1' and date >= date'2020-01-01'")
    assert [row.seq for row in by_token.orderBy("seq").collect()] == list(range(31, 61, 3))
    seqs = kept.load().where("seq > 30 and seq < 61 and token_1 in ('1')")
    assert seqs.count() == 10
    subject = kept.load().where(f"seq between 31 and 60 and subject = '{kept.stream}.1.x'")
    if "iceberg" not in kept.dest:  # its bounds of text are cut, and not used
        assert subject.count() == 10
    assert kept.load().where("date < date'2020-01-01'").count() == 0
    assert kept.load().where("timestamp < timestamp'2020-01-01 00:00:00'").count() == 0
    assert kept.load(endingTimestamp="2020-01-01").count() == 0


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_archive_in_object_store_is_read(
    spark: SparkSession, ours: ServerUnderTest, form: str
) -> None:
    with s3_server() as s3:
        # As a user writes them: flat, and without `allow_http`, which the endpoint says.
        options = {name: value for name, value in s3.options().items() if name != "client_options"}
        kept = Archived(spark, ours, f"s3://{s3.new_bucket()}/a/b", form, options)
        assert kept.load().where("token_1 = '2'").count() == 30
        assert [row.seq for row in kept.load(startingSeq=89).orderBy("seq").collect()] == [89, 90]


def test_invalid_archive_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="there is no archive at"):
        spark.read.format("penstock-archive").load(str(tmp_path)).count()
