"""The recipes for other libraries work, where these are installed."""

from __future__ import annotations

import importlib.util
import itertools
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.spark.jobs import ServerOrigin, fold
from support.pipelines import fill, tell, url_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.servers import ServerUnderTest

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "dlt_stream.py"
names = (f"RECIPE{n}" for n in itertools.count())


def test_duckdb_reads_stream(server: ServerUnderTest) -> None:
    duckdb = pytest.importorskip("duckdb")
    stream = next(names)
    fill(server, stream, 1, 30)
    events = penstock.read(stream, url=url_of(server)).reader()
    found = duckdb.sql("select subject, count(*), max(seq) from events group by 1 order by 1")
    assert events is not None
    assert found.fetchall() == [
        (f"{stream}.{n}.x", 10, last) for n, last in enumerate((30, 28, 29))
    ]


@pytest.mark.skipif(importlib.util.find_spec("dlt") is None, reason="dlt is not installed")
@pytest.mark.filterwarnings("ignore")
def test_dlt_loads_what_came_since_the_last_run(
    server: ServerUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dlt
    import duckdb

    stream = next(names)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt"))
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    messages = runpy.run_path(str(EXAMPLE))["messages"]
    target = dlt.destinations.duckdb(str(tmp_path / "kept.duckdb"))
    pipeline = dlt.pipeline(stream, destination=target, dataset_name="streams")
    for first, last in ((1, 20), (21, 30)):
        fill(server, stream, first, last)
        pipeline.run(messages(stream, url_of(server)), loader_file_format="parquet")
    with duckdb.connect(str(tmp_path / "kept.duckdb")) as kept:
        seqs = kept.sql("select seq from streams.messages order by seq").fetchall()
    assert seqs == [(n,) for n in range(1, 31)]


def test_state_begins_with_fold_at_its_cursor(
    spark: SparkSession, ours: ServerUnderTest, tmp_path: Path
) -> None:
    async def put(js, **values: bytes) -> None:  # type: ignore[no-untyped-def]
        bucket = await js.create_key_value(bucket="STATE")
        for key, value in values.items():
            await bucket.put(key, value)

    tell(ours, lambda js: put(js, a=b"1", b=b"2"))
    folds = str(tmp_path / "folds")
    origin = ServerOrigin(spark, "KV_STATE", {"url": url_of(ours)})
    fold(spark, origin, "STATE", folds, shards=1)
    tell(ours, lambda js: put(js, b=b"3", c=b"4"))
    recipe = runpy.run_path(str(EXAMPLES / "fold_state.py"))
    spark.conf.set(recipe["PROVIDER_KEY"], recipe["PROVIDER"])
    spark.conf.set("spark.sql.shuffle.partitions", 1)
    try:
        query = recipe["changes"](spark, url_of(ours), "STATE", folds).writeStream
        query = query.format("memory").queryName("state").trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "kept")).start().awaitTermination()
        found = {row.key: (row.before, row.now) for row in spark.table("state").collect()}
    finally:
        spark.conf.unset(recipe["PROVIDER_KEY"])
        spark.conf.unset("spark.sql.shuffle.partitions")
    assert found == {"b": (b"2", b"3"), "c": (None, b"4")}
